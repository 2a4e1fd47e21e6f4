# SPDX-License-Identifier: BSD-3-Clause
"""Reading a channel's records over HTTP: few of them from shards, many from one index, and always the same."""

from __future__ import annotations

import functools
import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from channel_tools.errors import ChannelError
from channel_tools.mirror import upstream
from channel_tools.mirror.credentials import Credentials
from channel_tools.mirror.http import HttpReader
from channel_tools.mirror.upstream import SubdirRecords, read_records
from tests.unit.mirror.bundles import toy_channel

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
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def read(address: str, names: set[str]) -> SubdirRecords:
    return read_records(address, SUBDIR, names, HttpReader(credentials=Credentials({})))


def test_few_records_come_from_their_shards(channel: Path) -> None:
    with served(channel) as (address, asked):
        found = read(address, {"toy-1.0-0.conda", "none-1.0-0.conda"})
    assert list(found.all) == ["toy-1.0-0.conda"]
    assert asked[0] == "repodata_shards.msgpack.zst"
    assert not [name for name in asked if name.startswith("repodata.json")]
    assert len(set(asked)) == 2


def test_many_records_come_from_one_index_and_are_the_same(channel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with served(channel) as (address, asked):
        from_shards = read(address, FILES)
        monkeypatch.setattr(upstream, "_MANY_SHARDS", 2)
        asked.clear()
        assert read(address, FILES) == from_shards == read(channel.as_uri(), FILES)
        assert set(asked) == {"repodata_shards.msgpack.zst", "repodata.json.zst"}
        (channel / SUBDIR / "repodata.json.zst").unlink()
        assert read(address, FILES) == from_shards
        (channel / SUBDIR / "repodata.json").unlink()
        assert read(address, FILES) == from_shards
    assert set(from_shards.conda) == FILES


def test_a_channel_without_any_index_is_named(channel: Path) -> None:
    for path in (channel / SUBDIR).glob("repodata*"):
        path.unlink()
    with served(channel) as (address, _asked), pytest.raises(ChannelError, match=r"linux-64/: no channel here"):
        read(address, FILES)
