# SPDX-License-Identifier: BSD-3-Clause
"""Decodes JSON and MessagePack, and converts what was decoded; every fault in the bytes raises the same error.

msgspec itself raises RecursionError for deep nesting, and before 0.23 UnicodeDecodeError for invalid UTF-8, which every
caller would have to handle.

Nor may threads begin to decode a type at once: msgspec 0.22 shows a type to the others before all of its fields are
known, which ends the process by SIGSEGV. So the decoder of a type is made once, by one thread at a time, before any
other uses it, and nothing else calls msgspec's own functions for it (ruff's TID251 in pyproject.toml). Delete that with
a msgspec under which its test passes without.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar, overload

import msgspec

_Value = TypeVar("_Value")
_Hook = Callable[[type[Any], Any], object]
_JsonDecoders = dict[tuple[Any, _Hook | None], "msgspec.json.Decoder[Any]"]
_MsgpackDecoders = dict[Any, "msgspec.msgpack.Decoder[Any]"]
_NO_MEMORY = "its values need more memory than this process has"
_making = threading.Lock()
_json: _JsonDecoders = {}
_msgpack: _MsgpackDecoders = {}


@overload
def decode_json(content: bytes | str) -> Any: ...  # noqa: ANN401 - of any shape, for the caller to check
@overload
def decode_json(content: bytes | str, kind: type[_Value], hook: _Hook | None = None) -> _Value: ...
def decode_json(content: bytes | str, kind: Any = Any, hook: _Hook | None = None) -> Any:
    """Decode JSON to a value of type ``kind``. Raises msgspec.DecodeError, a ValueError, for anything else.

    ``hook`` makes the values of types that msgspec does not know, as its ``dec_hook``; name a function of a module,
    since the decoder is kept for it.
    """
    try:
        return (_json.get((kind, hook)) or _made_json(kind, hook)).decode(content)
    except RecursionError:
        raise msgspec.DecodeError("it is nested too deep") from None
    except MemoryError:
        raise msgspec.DecodeError(_NO_MEMORY) from None
    except UnicodeDecodeError as err:
        raise msgspec.DecodeError(f"byte {err.start} is not valid UTF-8") from None


@overload
def decode_msgpack(content: bytes) -> Any: ...  # noqa: ANN401 - as decode_json
@overload
def decode_msgpack(content: bytes, kind: type[_Value]) -> _Value: ...
def decode_msgpack(content: bytes, kind: Any = Any) -> Any:
    """Like decode_json, for MessagePack; unhashable keys of maps are an error, too."""
    try:
        return (_msgpack.get(kind) or _made_msgpack(kind)).decode(content)
    except RecursionError:
        raise msgspec.DecodeError("it is nested too deep") from None
    except MemoryError:
        raise msgspec.DecodeError(_NO_MEMORY) from None
    except (UnicodeDecodeError, TypeError, OverflowError) as err:
        raise msgspec.DecodeError(str(err)) from None


def convert(value: object, kind: type[_Value]) -> _Value:
    """Convert a decoded value to the type ``kind``. Raises msgspec.ValidationError, a ValueError, for anything else."""
    if kind not in _msgpack:
        _made_msgpack(kind)  # from then on the type is whole for every thread
    return msgspec.convert(value, kind)


def _made_json(kind: type[Any], hook: _Hook | None) -> msgspec.json.Decoder[Any]:
    with _making:
        if (kind, hook) not in _json:
            _json[kind, hook] = msgspec.json.Decoder(kind, dec_hook=hook)
        return _json[kind, hook]


def _made_msgpack(kind: type[Any]) -> msgspec.msgpack.Decoder[Any]:
    with _making:
        if kind not in _msgpack:
            _msgpack[kind] = msgspec.msgpack.Decoder(kind)
        return _msgpack[kind]
