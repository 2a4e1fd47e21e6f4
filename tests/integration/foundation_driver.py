# SPDX-License-Identifier: BSD-3-Clause
"""Makes part of the registry foundation and an environment from it, in a process that rattler's runtime may crash.

``python -m tests.integration.foundation_driver FOLDER SPEC...`` makes the rows that SPEC need into FOLDER/channel,
verifies them, installs SPEC into FOLDER/env and prints one JSON value.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import sys
from pathlib import Path

from rattler.index import index_fs

from channel_tools.environments import create_environment
from channel_tools.foundation.build import build_foundation
from channel_tools.foundation.table import FoundationTable, load_table
from channel_tools.foundation.verify import verify_foundation
from channel_tools.progress import SilentProgress

_SUBDIR = "linux-64"
_JOBS = 2


def main(folder: Path, specs: list[str]) -> dict[str, object]:
    """Make, verify, index and install."""
    channel, progress = folder / "channel", SilentProgress()
    table = closure(load_table(), specs)
    build_foundation(
        table, destination=channel, downloads=folder / "downloads", subdir=_SUBDIR, jobs=_JOBS, progress=progress
    )
    findings = verify_foundation(channel, progress=progress, jobs=_JOBS, build_folders=[folder])
    (channel / "noarch").mkdir(exist_ok=True)
    asyncio.run(index_fs(channel, write_shards=False, write_zst=False))
    made = create_environment(
        folder / "env", specs, [str(channel)], package_cache=folder / "packages", subdir=_SUBDIR, progress=progress
    )
    return {"findings": [str(finding) for finding in findings], "installed": len(made.records)}


def closure(table: FoundationTable, names: list[str]) -> FoundationTable:
    """The table with only those rows that ``names`` need."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        entry = table.entry(waiting.pop())
        if entry is not None and entry.name not in found:
            found.add(entry.name)
            waiting += [spec.split()[0] for spec in entry.depends]
    return dataclasses.replace(table, entries=tuple(entry for entry in table.entries if entry.name in found))


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), sys.argv[2:])))  # noqa: T201
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
