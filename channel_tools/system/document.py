# SPDX-License-Identifier: BSD-3-Clause
"""JSON and MessagePack that came from elsewhere: whatever is wrong with the bytes is one error.

msgspec alone raises RecursionError for what is nested deep and UnicodeDecodeError for what is no text, which those who
name the file would each have to think of.
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
    """The value of type ``kind`` that the JSON has. Raises msgspec.DecodeError, a ValueError, for anything else."""
    try:
        return msgspec.json.decode(content, type=kind)
    except RecursionError:
        raise msgspec.DecodeError("it is nested too deep") from None
    except UnicodeDecodeError as err:
        raise msgspec.DecodeError(f"byte {err.start} is no UTF-8") from None


@overload
def decode_msgpack(content: bytes) -> Any: ...  # noqa: ANN401 - as decode_json
@overload
def decode_msgpack(content: bytes, kind: type[_Value]) -> _Value: ...
def decode_msgpack(content: bytes, kind: Any = Any) -> Any:
    """As decode_json, for MessagePack; keys of its maps that no mapping can have are an error, too."""
    try:
        return msgspec.msgpack.decode(content, type=kind)
    except RecursionError:
        raise msgspec.DecodeError("it is nested too deep") from None
    except (UnicodeDecodeError, TypeError, OverflowError) as err:
        raise msgspec.DecodeError(str(err)) from None
