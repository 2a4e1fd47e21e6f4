# SPDX-License-Identifier: BSD-3-Clause
"""Channels as other tools make them: their indexes, and folders of packages to make them of."""

from __future__ import annotations

import asyncio
import hashlib
import json
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
import zstandard
from rattler.index import index_fs

from channel_tools.conda.archive import read_package
from tests.support.packages import make_conda, old_format
from tests.support.processes import TEST_TIMEOUT_S
from tests.support.programs import program

Maker = Callable[[Path], None]


def by_rattler(channel: Path) -> None:
    asyncio.run(index_fs(channel))


def by_hand(channel: Path, *, changes: Mapping[str, Mapping[str, object]] | None = None, **more: object) -> None:
    """The index of each subdir in the form of conda-index: all fields of index.json, and hashes; no times.

    ``changes`` are the fields that its hotfixes replace, by file name (None removes one); ``more`` is added.
    """
    for folder in sorted(path for path in channel.iterdir() if path.is_dir()):
        rows: dict[str, dict[str, object]] = {}
        for path in sorted((*folder.glob("*.conda"), *folder.glob("*.tar.bz2"))):
            info = read_package(path, contents=False)
            row = {**info.index, "md5": info.md5, "sha256": info.sha256, "size": info.size_bytes, "subdir": folder.name}
            fixed = {**row, **(changes or {}).get(path.name, {})}
            rows[path.name] = {key: value for key, value in fixed.items() if value is not None}
        write_index(folder, rows, **more)


def write_index(folder: Path, rows: Mapping[str, Mapping[str, object]], **more: object) -> None:
    gone = more.get("removed", [])
    assert isinstance(gone, list)
    index = {
        "info": {"subdir": folder.name},
        "packages": {name: row for name, row in rows.items() if name.endswith(".tar.bz2") and name not in gone},
        "packages.conda": {name: row for name, row in rows.items() if name.endswith(".conda") and name not in gone},
        "removed": [],
        "repodata_version": 1,
    }
    (folder / "repodata.json").write_text(json.dumps(index | more))
    (folder / "current_repodata.json").write_text(json.dumps(index | more))
    (folder / "index.html").write_text("<html>")


def leave_only_shards(channel: Path) -> None:
    for index in (*channel.glob("*/repodata.json"), *channel.glob("*/repodata.json.zst")):
        index.unlink()


def by_shards(channel: Path) -> None:
    """As rattler's indexer, and only the shards are left; repodata.json is kept for comparison where none reads it."""
    by_rattler(channel)
    for index in channel.glob("*/repodata.json"):
        index.with_name("repodata.kept").write_bytes(index.read_bytes())
    leave_only_shards(channel)


def write_shards(channel: Path, shards: Mapping[str, Mapping[str, object]], *, shards_base_url: str = "") -> None:
    """Shards of linux-64 beside the packages, by package name, as conda-index writes them, and no other index."""
    folder, hashes = channel / "linux-64", {}
    for name, shard in shards.items():
        packed = zstandard.compress(msgspec.msgpack.encode(shard))
        hashes[name] = hashlib.sha256(packed).digest()
        (folder / f"{hashes[name].hex()}.msgpack.zst").write_bytes(packed)
    info = {"subdir": "linux-64", "base_url": "", "shards_base_url": shards_base_url}
    index = msgspec.msgpack.encode({"version": 1, "info": info, "shards": hashes})
    (folder / "repodata_shards.msgpack.zst").write_bytes(zstandard.compress(index))


def by_conda_index(channel: Path) -> None:
    """By conda-index, which is a command of the conda that it is installed with."""
    command = [program("conda"), "index", "--channeldata", "--current-repodata", str(channel)]
    subprocess.run(command, check=True, capture_output=True, timeout=TEST_TIMEOUT_S)


MAKERS = [by_rattler, by_hand, by_shards, by_conda_index]


def one_of_each(folder: Path) -> None:
    make_conda(folder, "toy", index={"depends": ["zlib 1.2", "old >=1"], "license": "MIT"}, about={"summary": "toys"})
    old_format(make_conda(folder, "old", run_exports={"weak": ["old >=1"]}))
    make_conda(folder, "pure", subdir="noarch", index={"noarch": "generic"})


def only_old(folder: Path) -> None:
    old_format(make_conda(folder, "toy"))
    old_format(make_conda(folder, "toy", version="2.0"), without=["paths.json"])


def only_noarch(folder: Path) -> None:
    make_conda(folder, "pure", subdir="noarch", index={"noarch": "generic"})


def without_noarch(folder: Path) -> None:
    make_conda(folder, "toy")


def many_subdirs(folder: Path) -> None:
    for subdir in ("linux-64", "linux-aarch64", "linux-ppc64le", "osx-64", "osx-arm64", "win-64"):
        make_conda(folder, "toy", subdir=subdir)


def twins(folder: Path) -> None:
    old_format(make_conda(folder, "toy"))
    make_conda(folder, "toy")


CHANNELS = [one_of_each, only_old, only_noarch, without_noarch, many_subdirs, twins]
