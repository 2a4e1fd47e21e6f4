# SPDX-License-Identifier: BSD-3-Clause
"""Decodes JSON and MessagePack from other sources; every fault in the bytes raises the same error.

msgspec itself raises RecursionError for deep nesting and UnicodeDecodeError for invalid UTF-8, which every caller would
have to handle.

Nor may threads begin to decode a type at once: msgspec 0.22 shows a type to the others before all of its fields are
known, which ends the process by SIGSEGV. So the decoder of a type is made once, by one thread at a time, before any
other uses it. Delete that with a msgspec under which its test passes without.
"""

from __future__ import annotations

import threading
from typing import Any, TypeVar, overload

import msgspec

_Value = TypeVar("_Value")
_JsonDecoders = dict[Any, "msgspec.json.Decoder[Any]"]
_MsgpackDecoders = dict[Any, "msgspec.msgpack.Decoder[Any]"]
_making = threading.Lock()
_json: _JsonDecoders = {}
_msgpack: _MsgpackDecoders = {}


@overload
def decode_json(content: bytes | str) -> Any: ...  # noqa: ANN401 - of any shape, for the caller to check
@overload
def decode_json(content: bytes | str, kind: type[_Value]) -> _Value: ...
def decode_json(content: bytes | str, kind: Any = Any) -> Any:
    """Decode JSON to a value of type ``kind``. Raises msgspec.DecodeError, a ValueError, for anything else."""
    try:
        return (_json.get(kind) or _made_json(kind)).decode(content)
    except RecursionError:
        raise msgspec.DecodeError("it is nested too deep") from None
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
    except (UnicodeDecodeError, TypeError, OverflowError) as err:
        raise msgspec.DecodeError(str(err)) from None


def _made_json(kind: type[Any]) -> msgspec.json.Decoder[Any]:
    with _making:
        if kind not in _json:
            _json[kind] = msgspec.json.Decoder(kind)
        return _json[kind]


def _made_msgpack(kind: type[Any]) -> msgspec.msgpack.Decoder[Any]:
    with _making:
        if kind not in _msgpack:
            _msgpack[kind] = msgspec.msgpack.Decoder(kind)
        return _msgpack[kind]
