# SPDX-License-Identifier: BSD-3-Clause
"""What goes into a bundle: records read over HTTP from shards or a whole index, and pip for conda."""

from __future__ import annotations

import asyncio
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

from channel_tools.channel import add_set, channel_writer
from channel_tools.conda import index
from channel_tools.conda.index import SubdirRecords, read_index
from channel_tools.mirror.exporting.create import check_destination
from channel_tools.mirror.exporting.plan import pip_for_conda, stacks_package
from channel_tools.pins import solve_lock
from channel_tools.system.errors import ChannelError, NetworkError, UsageError
from tests.support.packages import make_conda, new_channel
from tests.support.server_thread import in_thread
from tests.unit.mirror.bundles import PLATFORM, http_client, lock_of, toy_channel

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


@pytest.fixture
def address(tmp_path: Path) -> str:
    """A channel with two Pythons, a pip for each, and what the pips need."""
    channel = new_channel(tmp_path)
    made = tmp_path / "made"
    packages = [
        *(make_conda(made, "python", version=version) for version in ("3.11", "3.12")),
        make_conda(made, "pip", version="24.0", index={"depends": ["python >=3.11,<3.12", "wheel"]}),
        make_conda(made, "pip", version="25.0", index={"depends": ["python >=3.12", "wheel"]}),
        make_conda(made, "wheel", index={"depends": ["python"]}),
        make_conda(made, "toy"),
    ]
    with channel_writer(channel) as writer:
        add_set(writer, packages)
    return channel.address


def brought(folder: Path, address: str, *specs: str) -> list[str]:
    """What comes beside a lock of these requirements."""
    cache = folder / "cache"
    lock = asyncio.run(
        solve_lock("toy", specs, [address], [PLATFORM], virtual_packages={PLATFORM: ()}, package_cache=cache)
    )
    return sorted(
        package.file_name for _, package in asyncio.run(pip_for_conda([lock], [address], package_cache=cache))
    )


def test_the_pip_that_fits_the_locks_python_comes_with_what_it_needs(tmp_path: Path, address: str) -> None:
    assert brought(tmp_path, address, "python 3.11", "toy") == ["pip-24.0-0.conda", "wheel-1.0-0.conda"]
    assert brought(tmp_path, address, "python 3.12", "wheel") == ["pip-25.0-0.conda"]


def test_nothing_comes_beside_a_lock_that_has_pip_or_no_python(tmp_path: Path, address: str) -> None:
    assert brought(tmp_path, address, "python 3.11", "pip") == []
    assert brought(tmp_path, address, "toy") == []


def test_a_channel_without_a_pip_that_fits_is_told_and_no_obstacle(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    channel = new_channel(tmp_path)
    with channel_writer(channel) as writer:
        add_set(writer, [make_conda(tmp_path / "made", "python", version="3.11")])
    assert brought(tmp_path, channel.address, "python 3.11") == []
    assert "add_pip_as_python_dependency false" in caplog.text


def test_a_channel_that_cannot_be_read_is_an_error(address: str, tmp_path: Path) -> None:
    lock = lock_of(address, names=["python"])
    with pytest.raises(NetworkError):
        asyncio.run(pip_for_conda([lock], ["http://127.0.0.1:9/none"], package_cache=tmp_path / "cache"))


def test_channels_without_the_package_of_the_stacks_bring_none(tmp_path: Path, address: str) -> None:
    """Nor those that have nothing but noarch packages."""
    noarch = new_channel(tmp_path / "noarch")
    with channel_writer(noarch) as writer:
        add_set(writer, [make_conda(tmp_path / "made", "tables", subdir="noarch", index={"noarch": "generic"})])
    for one, name in ((address, "toy"), (noarch.address, "tables")):
        lock = lock_of(one, names=[name])
        assert asyncio.run(stacks_package([lock], [one], package_cache=tmp_path / "cache")) == set()


@pytest.mark.parametrize("place", [".", "..", "/"])
def test_a_folder_without_a_name_of_its_own_is_no_place_for_a_bundle(place: str) -> None:
    with pytest.raises(UsageError, match="already exists"):
        check_destination(Path(place))
