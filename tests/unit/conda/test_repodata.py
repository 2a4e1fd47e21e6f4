# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tracemalloc
from collections.abc import Callable

import msgspec
import pytest
import zstandard

from channel_tools.conda.repodata import (
    decode_repodata,
    decode_shard,
    decode_shard_index,
    encode_json,
    unpack_index,
    unread_entries,
)
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


def test_a_packed_index_that_is_too_large_is_not_cut_off() -> None:
    assert unpack_index(zstandard.compress(b"0123456789"), "an index", limit_bytes=10) == b"0123456789"
    with pytest.raises(IntegrityError, match="an index: unpacks to more than the 10 bytes"):
        unpack_index(zstandard.compress(b"01234567890"), "an index", limit_bytes=10)


def bomb(size_bytes: int) -> bytes:
    """So many zeros, packed."""
    packer, piece = zstandard.ZstdCompressor().compressobj(), bytes(1 << 24)
    return b"".join(packer.compress(piece) for _ in range(size_bytes // len(piece))) + packer.flush()


@pytest.mark.parametrize(
    "decode",
    [
        pytest.param(lambda packed: decode_shard(packed, hashlib.sha256(packed).digest(), "the shard"), id="shard"),
        pytest.param(lambda packed: decode_shard_index(packed, "the shard"), id="index-of-shards"),
    ],
)
def test_a_small_shard_that_unpacks_to_six_gibibytes_takes_little_memory(decode: Callable[[bytes], object]) -> None:
    packed = bomb(1 << 26) * 96  # frames one after the other are one stream
    tracemalloc.start()
    try:
        with pytest.raises(IntegrityError, match="the shard: unpacks to more than the 67108864 bytes"):
            decode(packed)
        assert tracemalloc.get_traced_memory()[1] < 256 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_what_does_not_fit_into_memory_is_said_in_words() -> None:
    """In a process with a limit, as a batch job's."""
    script = """
import resource, sys
from channel_tools.conda.repodata import unpack_index
from channel_tools.system.document import decode_json
from channel_tools.system.errors import IntegrityError
resource.setrlimit(resource.RLIMIT_AS, (400 << 20, 400 << 20))
try:
    unpack_index(sys.stdin.buffer.read(), "the index")
except IntegrityError as err:
    print(err.message)
try:
    decode_json(b"[" + b"[],[]," * 8_000_000 + b"[]]")
except ValueError as err:
    print(err)
"""
    words = [sys.executable, "-c", script]
    run = subprocess.run(words, input=bomb(512 << 20), capture_output=True, check=False, timeout=300)
    assert run.stdout.decode().splitlines() == [
        "the index: unpacks to more than this process has memory for",
        "its values need more memory than this process has",
    ], run.stderr.decode()
