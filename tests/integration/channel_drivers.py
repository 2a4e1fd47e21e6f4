# SPDX-License-Identifier: BSD-3-Clause
"""Programs that the channel tests run in processes of their own: one is killed, the others use rattler's runtime.

``python -m tests.integration.channel_drivers WHAT ARGUMENTS`` prints one JSON value and leaves through os._exit.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import rattler
import zstandard
from rattler.index import index_fs
from rattler.networking import Client
from rattler.repo_data import SourceConfig

from channel_tools.channel import (
    Channel,
    add_packages,
    channel_writer,
    published_packages,
)
from tests.unit.channel.toys import make_conda, new_channel, own

# Between two of these nothing that a reader or the next writer could see changes.
_CHANGES = frozenset({"os.rename", "os.link", "os.mkdir", "os.remove", "os.rmdir"})


def reader_faults(channel_path: Path) -> list[str]:
    """What a reader that comes now would trip over: indexes that name files with other bytes; unreadable ones raise."""
    faults = []
    for subdir in ("linux-64", "noarch"):
        folder = channel_path / subdir
        plain = msgspec.json.decode((folder / "repodata.json").read_bytes())["packages.conda"]
        packed = msgspec.json.decode(unpack(folder / "repodata.json.zst"))["packages.conda"]
        sharded: dict[str, dict[str, object]] = {}
        for sha256 in msgspec.msgpack.decode(unpack(folder / "repodata_shards.msgpack.zst"))["shards"].values():
            sharded |= msgspec.msgpack.decode(unpack(folder / "shards" / f"{sha256.hex()}.msgpack.zst"))[
                "packages.conda"
            ]
        for rows in (plain, packed, sharded):
            for name, row in rows.items():
                sha256 = hashlib.sha256((folder / name).read_bytes())
                if row["sha256"] not in {sha256.hexdigest(), sha256.digest()}:
                    faults.append(f"{subdir}/{name}: other bytes than the index says")
    return faults


def unpack(path: Path) -> bytes:
    return zstandard.ZstdDecompressor().decompressobj().decompress(path.read_bytes())


def run_killed(action: Callable[[], None], *, at: int) -> bool:
    """Run ``action`` in a fork that kills itself at its ``at``-th change of a folder; whether it came to that."""
    child = os.fork()
    if child == 0:
        count = 0

        def hook(event: str, _arguments: object) -> None:
            nonlocal count
            if event in _CHANGES:
                count += 1
                if count == at:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(hook)
        status = 1
        try:
            action()
            status = 0
        finally:
            os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status not in {0, -signal.SIGKILL}:
        raise RuntimeError(f"the writer ended with {status} instead of being killed")
    return status != 0


def install(address: str, prefix: Path, spec: str, *, sharded: bool) -> list[str]:
    """Solve ``spec`` from the channel at ``address`` and install it; the file names of what was installed."""
    cache = prefix.with_name(prefix.name + "-cache")
    config = SourceConfig(sharded_enabled=sharded, cache_action="no-cache")
    records = asyncio.run(_install(address, prefix, spec, cache, config))
    return sorted(record.file_name for record in records)


async def _install(
    address: str, prefix: Path, spec: str, cache: Path, config: SourceConfig
) -> list[rattler.RepoDataRecord]:
    client = Client.default_client()  # as pixi's
    gateway = rattler.Gateway(cache_dir=cache / "repodata", default_config=config, client=client)
    records = await rattler.solve(
        [rattler.Channel(address)],
        [spec],
        gateway,
        ["linux-64", "noarch"],
        virtual_packages=rattler.VirtualPackage.detect(),
    )
    await rattler.install(records, prefix, cache_dir=cache / "pkgs", show_progress=False, client=client)
    return records


def visible(address: str, names: list[str], *, sharded: bool) -> dict[str, list[str]]:
    """What rattler's gateway, and for a folder its sparse reader, let a solve see of these packages."""
    config = SourceConfig(sharded_enabled=sharded, cache_action="no-cache")
    records = asyncio.run(rattler.Gateway(default_config=config).query([rattler.Channel(address)], ["linux-64"], names))
    seen = {"gateway": sorted(record.file_name for source in records for record in source)}
    if address.startswith("file://"):
        path = Path(address.removeprefix("file://")) / "linux-64" / "repodata.json"
        sparse = rattler.SparseRepoData(rattler.Channel(address), "linux-64", path)
        seen["sparse"] = sorted(record.file_name for name in names for record in sparse.load_records(name))
    return seen


def read_while_written(root: Path, channel: Channel, rounds: int) -> dict[str, object]:
    """Read the channel without pause in one process while another publishes ``rounds`` packages, one by one."""
    packages = [make_conda(root / "made", f"p{number}", about=own(f"d{number}")) for number in range(rounds)]
    writer = os.fork()
    if writer == 0:
        status = 1
        try:
            for package in packages:
                with channel_writer(channel) as held:
                    add_packages(held, [package])
            status = 0
        finally:
            os._exit(status)
    reads, faults = 0, []
    while (ended := os.waitpid(writer, os.WNOHANG))[0] == 0:
        faults += reader_faults(channel.path)
        reads += 1
    return {"reads": reads, "faults": faults, "status": ended[1], "published": len(published_packages(channel))}


def main(arguments: list[str]) -> object:
    what, *rest = arguments
    if what == "read":
        return read_while_written(Path(rest[0]), new_channel(Path(rest[0])), rounds=40)
    if what == "index":
        return asyncio.run(index_fs(Path(rest[0]), repodata_patch=rest[1] if rest[1:] else None))
    if what == "visible":
        return visible(rest[0], rest[2:], sharded=rest[1] == "sharded")
    if what == "install":
        return install(rest[0], Path(rest[1]), rest[2], sharded=rest[3] == "sharded")
    raise ValueError(what)


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1:])), flush=True)  # noqa: T201 - its result, read by the test
    os._exit(0)
