# SPDX-License-Identifier: BSD-3-Clause
"""Decodes JSON and MessagePack from other sources; every fault in the bytes raises the same error.

msgspec itself raises RecursionError for deep nesting and UnicodeDecodeError for invalid UTF-8, which every caller would
have to handle.
"""

from __future__ import annotations

from typing import Any, TypeVar, overload

import msgspec

_Value = TypeVar("_Value")


@overload
def decode_json(content: bytes | str) -> Any: ...  # noqa: ANN401 - of any shape, for the caller to check
@overload
def decode_json(content: bytes | str, kind: type[_Value]) -> _Value: ...
def decode_json(content: bytes | str, kind: Any = Any) -> Any:
    """Decode JSON to a value of type ``kind``. Raises msgspec.DecodeError, a ValueError, for anything else."""
    try:
        return msgspec.json.decode(content, type=kind)
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
        return msgspec.msgpack.decode(content, type=kind)
    except RecursionError:
        raise msgspec.DecodeError("it is nested too deep") from None
    except (UnicodeDecodeError, TypeError, OverflowError) as err:
        raise msgspec.DecodeError(str(err)) from None
