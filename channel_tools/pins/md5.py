# SPDX-License-Identifier: BSD-3-Clause
"""Entries of locks that have only an md5, as ``conda list --explicit`` and ``conda-lock render`` write them.

What is installed, mirrored and listed here is checked by sha256. The channel's index has one beside the md5 of each
package, so an entry stands for the package that the index lists under the same file name with the same md5, and for
none other.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from channel_tools.conda.contents import JsonObject
from channel_tools.pins.choice import SHA256, named_packages
from channel_tools.system.counting import counted
from channel_tools.system.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from channel_tools.pins.lock import Lock, LockedPackage
    from channel_tools.system.progress import Note

MD5 = re.compile(r"[0-9a-f]{32}")
LookUp = Callable[[Iterable["LockedPackage"]], Mapping[str, list[JsonObject]]]
"""The records that channels have of packages, by ``subdir/file name``. Raises NetworkError, IntegrityError."""


def complete_hashes(lock: Lock, path: Path, text: str, *, look_up: LookUp | None, note: Note) -> Lock:
    """The lock with a sha256 for every package; ``text`` is that of the file ``path``.

    ``note`` gets a line that says how many were looked up, and where. Without ``look_up``, and for a package of which
    no record has the same md5 and a sha256, raises ConfigError (file, line); otherwise as ``look_up`` does.
    """
    packages = (package for platform in lock.platforms for package in platform.packages)
    lacking = {(package.url, package.md5): package for package in packages if not package.sha256}
    if not lacking:
        return lock
    if look_up is None:
        first = next(iter(lacking.values()))
        message = f"{named_packages([package.name for package in lacking.values()])}: no sha256 (only an md5)"
        hint = "lock again with a tool that writes it"
        raise ConfigError(message, path=path, line=_line_of(first, text), hint=hint)
    records = look_up(lacking.values())
    sha256_by_url = {
        key: _sha256_of(package, records.get(str(package.ref.key), []), path, text) for key, package in lacking.items()
    }
    count = counted(len(lacking), "package has", "packages have")
    note(f"note: {path}: {count} only an md5; the sha256 is the one that the channel's index lists with this md5")
    platforms = (
        replace(
            platform,
            packages=tuple(
                package if package.sha256 else replace(package, sha256=sha256_by_url[package.url, package.md5])
                for package in platform.packages
            ),
        )
        for platform in lock.platforms
    )
    return replace(lock, platforms=tuple(platforms))


def _sha256_of(package: LockedPackage, records: Iterable[JsonObject], path: Path, text: str) -> str:
    listed = set()
    for record in records:
        md5, sha256 = record.get("md5"), record.get("sha256")
        if md5 == package.md5 and isinstance(sha256, str) and SHA256.fullmatch(sha256):
            return sha256
        listed.add(f"with the md5 {md5}" if md5 != package.md5 and md5 else "without a sha256 or an md5")
    why = f"lists this file {' and '.join(sorted(listed))}" if listed else "does not list this file"
    message = f"{package.name}: only the md5 {package.md5}, and the channel's index {why}: {package.url}"
    hint = "lock again with a tool that writes sha256, or name a channel that has this package with --channel"
    raise ConfigError(message, path=path, line=_line_of(package, text), hint=hint)


def _line_of(package: LockedPackage, text: str) -> int | None:
    """The first line that has the package's address or file name."""
    lines = text.splitlines()
    names = (package.url, package.file_name)
    return next((number for name in names for number, line in enumerate(lines, start=1) if name in line), None)
