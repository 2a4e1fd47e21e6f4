# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import msgspec
import pytest

from channel_tools.system.document import decode_json, decode_msgpack


def test_values_are_decoded_to_the_type_that_is_asked_for() -> None:
    assert decode_json(b'{"a": [1]}') == {"a": [1]}
    assert decode_json('{"a": "b"}', dict[str, str]) == {"a": "b"}
    assert decode_msgpack(msgspec.msgpack.encode({"a": 1}), dict[str, int]) == {"a": 1}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "truncated"),
        (b"[" * 100_000 + b"]" * 100_000, "nested too deep"),
        (b'"\xff"', "is not valid UTF-8"),
        (b'{"a": 1}', "Expected `str`"),
    ],
    ids=["empty", "deep", "not UTF-8", "another type"],
)
def test_every_fault_of_json_is_the_one_error(content: bytes, said: str) -> None:
    with pytest.raises(msgspec.DecodeError, match=said):
        decode_json(content, dict[str, str] if content.startswith(b"{") else object)


@pytest.mark.parametrize(
    "content",
    [b"", b"\x91" * 100_000 + b"\xc0", b"\xa1\xff", b"\x81\x80\x01"],
    ids=["empty", "deep", "not UTF-8", "a map as key"],
)
def test_every_fault_of_messagepack_is_the_one_error(content: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_msgpack(content)
