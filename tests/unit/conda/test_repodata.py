# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import json
import tracemalloc

import msgspec
import pytest
import zstandard

from channel_tools.conda.repodata import decode_repodata, encode_json, unpack_index, unread_entries
from channel_tools.system.errors import IntegrityError


def test_an_index_is_read_with_its_records_of_both_formats() -> None:
    index = {
        "info": {"subdir": "noarch"},
        "packages": {"old-1-0.tar.bz2": {"name": "old"}},
        "packages.conda": {"new-1-0.conda": {"name": "new"}},
        "removed": ["gone-1-0.conda"],
    }
    found = decode_repodata(json.dumps(index).encode())
    assert [*found.records] == ["old-1-0.tar.bz2", "new-1-0.conda"]
    assert (found.removed, found.base_url) == (("gone-1-0.conda",), None)
    with pytest.raises(msgspec.MsgspecError):
        decode_repodata(b"[]")


def test_entries_that_no_reader_of_ours_knows_are_counted() -> None:
    assert unread_entries({"packages": {}, "packages.conda": {}, "info": {}}) == {}
    assert unread_entries({"packages.new": {"a": {"name": "a"}, "b": {"name": "b"}}}) == {"packages.new": 2}


def test_the_same_value_has_the_same_bytes() -> None:
    assert encode_json({"b": 1, "a": [2]}) == encode_json({"a": [2], "b": 1})


def test_a_small_packed_index_takes_little_memory() -> None:
    """A read of all that an index may have in one call makes room for it first, which a limit on memory forbids."""
    packed = zstandard.compress(b"{}")
    tracemalloc.start()
    try:
        assert unpack_index(packed, "an index") == b"{}"
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()


def test_a_packed_index_that_is_too_large_is_not_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("channel_tools.conda.repodata.INDEX_LIMIT_BYTES", 10)
    assert unpack_index(zstandard.compress(b"0123456789"), "an index") == b"0123456789"
    with pytest.raises(IntegrityError, match="an index: unpacks to more than the 10 bytes"):
        unpack_index(zstandard.compress(b"01234567890"), "an index")
