# SPDX-License-Identifier: BSD-3-Clause
"""Sets of toy packages to publish."""

from __future__ import annotations

from pathlib import Path

from channel_tools.channel import Foundation
from channel_tools.publish.model import PackageFile, PackageSet
from channel_tools.system.files import sha256_of_file
from tests.support.packages import REGISTRY


def package_file(path: Path, *, foundation: bool = False) -> PackageFile:
    return PackageFile(
        subdir=path.parent.name,
        file_name=path.name,
        path=path,
        sha256=sha256_of_file(path),
        size_bytes=path.stat().st_size,
        foundation=foundation,
    )


def make_set(own: list[Path], foundation: list[Path] | None = None, *, on: Foundation = REGISTRY) -> PackageSet:
    files = [*map(package_file, own), *(package_file(path, foundation=True) for path in foundation or [])]
    return PackageSet(name="a set", files=tuple(sorted(files)), foundation=on)
