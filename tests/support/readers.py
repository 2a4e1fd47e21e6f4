# SPDX-License-Identifier: BSD-3-Clause
"""What readers of a channel would trip over, and writers that are killed at one change of a folder."""

from __future__ import annotations

import hashlib
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import zstandard

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
