# SPDX-License-Identifier: BSD-3-Clause
"""Packages conda-forge-pinning as conda-forge makes them, in a channel's index, and trees that name one."""

from __future__ import annotations

import asyncio
import hashlib
import json
from functools import partial
from typing import TYPE_CHECKING

from channel_tools.channel.model import Foundation
from channel_tools.conda.package import by_format
from channel_tools.matrix.pinning_lock import PACKAGE_MIGRATIONS, PINNING_PACKAGE
from channel_tools.matrix.variants import CONDA_BUILD_CONFIG
from channel_tools.plan.pinning import change_pinning, write_pinning
from channel_tools.system.progress import SilentProgress
from channel_tools.workflow.plan import open_index
from tests.support.packages import make_conda

if TYPE_CHECKING:
    import tarfile
    from collections.abc import Mapping
    from pathlib import Path

    from channel_tools.plan.pinning import PinningChange
    from channel_tools.system.settings import Settings

_MEMBERS: Mapping[str, bytes | tarfile.TarInfo] = {
    f"{PACKAGE_MIGRATIONS}/example.exyaml": b"not read: [\n",
    "share/conda-forge/migration_support/list.txt": b"toy\n",
}
"""What the real packages have besides: nothing of it is kept."""


def make_pinning(
    channel: Path,
    version: str,
    config: str,
    *,
    build: str = "hd8ed1ab_0",
    migrations: Mapping[str, str] | None = None,
    more: Mapping[str, bytes | tarfile.TarInfo] | None = None,
) -> Path:
    """A package of this version, with ``migrations`` by name and ``more`` members, which the channel then lists."""
    files: dict[str, bytes | tarfile.TarInfo] = {CONDA_BUILD_CONFIG: config.encode()}
    files |= {f"{PACKAGE_MIGRATIONS}/{name}.yaml": text.encode() for name, text in (migrations or {}).items()}
    path = make_conda(
        channel,
        PINNING_PACKAGE,
        version=version,
        build=build,
        subdir="noarch",
        index={"noarch": "generic", "build_number": int(build.rpartition("_")[2])},
        files={**files, **_MEMBERS, **(more or {})},
    )
    list_package(channel, path, version=version, build=build)
    return path


def list_package(channel: Path, path: Path, **changes: object) -> None:
    """Add a package to the index of noarch; ``changes`` are fields of its record, None leaves one out."""
    index = channel / "noarch" / "repodata.json"
    content = json.loads(index.read_bytes())
    data = path.read_bytes()
    record = {"name": PINNING_PACKAGE, "depends": [], "subdir": "noarch", "noarch": "generic", "size": len(data)}
    record |= {"sha256": hashlib.sha256(data).hexdigest(), "build_number": 0} | changes
    record["build_number"] = int(str(record["build"]).rpartition("_")[2])
    plain = {key: value for key, value in record.items() if value is not None}
    content["packages.conda" if by_format({path.name: None})[0] else "packages"][path.name] = plain
    index.write_text(json.dumps(content), encoding="utf-8")


def unlist_version(channel: Path, version: str) -> None:
    """Take the packages of a version out of the index of noarch."""
    index = channel / "noarch" / "repodata.json"
    content = json.loads(index.read_bytes())
    for kind in ("packages", "packages.conda"):
        content[kind] = {name: one for name, one in content[kind].items() if one["version"] != version}
    index.write_text(json.dumps(content), encoding="utf-8")


def fetch_pinning(settings: Settings, address: str, *, asked: str | None = None) -> PinningChange:
    """Change the tree's pinning alone, from the conda-forge at ``address``, without a plan; the change is written."""
    foundation = Foundation(kind="conda-forge", address=address)
    change = asyncio.run(
        change_pinning(
            settings,
            foundation,
            asked=asked,
            open_index=partial(open_index, settings, foundation),
            progress=SilentProgress(),
        )
    )
    assert change is not None
    if change.is_new:
        write_pinning(settings, change)
    return change
