# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import json

import msgspec
import pytest

from channel_tools.conda.repodata import decode_repodata, encode_json, unread_entries


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
