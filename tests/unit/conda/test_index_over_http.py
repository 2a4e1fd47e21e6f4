# SPDX-License-Identifier: BSD-3-Clause
"""Records read over HTTP, from shards or a whole index."""

from __future__ import annotations

import functools
import hashlib
import http.server
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
import zstandard

from channel_tools.conda import index
from channel_tools.conda.index import SubdirRecords, read_index
from channel_tools.system.errors import ChannelError
from tests.support.server_thread import in_thread
from tests.unit.mirror.bundles import http_client, toy_channel

SUBDIR = "linux-64"
NAMES = ("toy", "more", "last")
FILES = {f"{name}-1.0-0.conda" for name in NAMES}


@pytest.fixture
def channel(tmp_path: Path) -> Path:
    return toy_channel(tmp_path, list(NAMES), []).path


@contextmanager
def served(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """An HTTP server on loopback; its address and the names of the files that were asked for."""
    asked: list[str] = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
            del code, size
            asked.append(Path(self.path).name)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            """Not on the terminal."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(folder)))
    with in_thread(server) as address:
        yield address, asked


def read(address: str, names: set[str]) -> SubdirRecords:
    return read_index(address, SUBDIR, names, http_client()).records


def test_few_records_come_from_their_shards(channel: Path) -> None:
    with served(channel) as (address, asked):
        found = read(address, {"toy-1.0-0.conda", "none-1.0-0.conda"})
    assert list(found) == ["toy-1.0-0.conda"]
    assert asked[0] == "repodata_shards.msgpack.zst"
    assert not [name for name in asked if name.startswith("repodata.json")]
    assert len(set(asked)) == 2


@pytest.mark.parametrize("source", ["folder", "address", "shards"])
def test_entries_that_are_not_read_are_named_with_their_number(
    channel: Path, source: str, caplog: pytest.LogCaptureFixture
) -> None:
    newer = {
        "v3": {"conda": {"a-1-0": {}, "b-1-0": {}}, "whl": {"c-1-0": {}}},
        "packages.new": {"d-1-0.new": {"name": "d"}},
        "removed": ["e-1-0.conda"],
        "repodata_version": 3,
        "signatures": {},
        "more": [],
    }
    folder = channel / SUBDIR
    if source == "shards":
        records_of_toy = json.loads((folder / "repodata.json").read_bytes())["packages.conda"]
        shard = zstandard.compress(msgspec.msgpack.encode({"packages.conda": records_of_toy} | newer))
        sha256 = hashlib.sha256(shard)
        (folder / f"{sha256.hexdigest()}.msgpack.zst").write_bytes(shard)
        index = {"info": {"shards_base_url": "./"}, "shards": {"toy": sha256.digest()}}
        (folder / "repodata_shards.msgpack.zst").write_bytes(zstandard.compress(msgspec.msgpack.encode(index)))
    else:
        for path in (*folder.glob("repodata_shards*"), *folder.glob("repodata.json.zst")):
            path.unlink()
        content = json.loads((folder / "repodata.json").read_bytes()) | newer
        (folder / "repodata.json").write_text(json.dumps(content))
    with served(channel) as (address, _):
        found = read(channel.as_uri() if source == "folder" else address, {"toy-1.0-0.conda"})
    assert list(found) == ["toy-1.0-0.conda"]
    assert [record.getMessage().partition("left out ")[2] for record in caplog.records] == [
        "1 entry under 'packages.new' in its index, which this program does not read",
        "3 entries under 'v3' in its index, which this program does not read",
    ]


def test_many_records_come_from_one_index_and_are_the_same(channel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with served(channel) as (address, asked):
        from_shards = read(address, FILES)
        monkeypatch.setattr(index, "_MANY_SHARDS", 2)
        asked.clear()
        assert read(address, FILES) == from_shards == read(channel.as_uri(), FILES)
        assert set(asked) == {"repodata_shards.msgpack.zst", "repodata.json.zst"}
        (channel / SUBDIR / "repodata.json.zst").unlink()
        assert read(address, FILES) == from_shards
        (channel / SUBDIR / "repodata.json").unlink()
        assert read(address, FILES) == from_shards
    assert set(from_shards) == FILES


def test_a_channel_without_any_index_is_named(channel: Path) -> None:
    for path in (channel / SUBDIR).glob("repodata*"):
        path.unlink()
    with served(channel) as (address, _asked), pytest.raises(ChannelError, match=r"linux-64/: not a channel"):
        read(address, FILES)
