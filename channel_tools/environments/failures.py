# SPDX-License-Identifier: BSD-3-Clause
"""What py-rattler's errors of installation mean to a user, and what it does not check itself.

Its errors are one class per stage with the cause in the text only, so the text is read: the phrases below were seen
with py-rattler 0.28 (tests provoke each with real channels). An unknown text keeps its words under a general error.

py-rattler 0.28 compares an archive's sha256 only when it downloads it; from a folder it unpacks whatever file stands
under the name. A folder is how this project's channels are mostly read, so the comparison is made here.
"""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from channel_tools.conda.addresses import local_path
from channel_tools.conda.solving import UNREACHABLE, one_line
from channel_tools.system.errors import (
    ChannelError,
    ChannelToolsError,
    DiskFullError,
    IntegrityError,
    NetworkError,
    UsageError,
)
from channel_tools.system.files import sha256_of_file

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from rattler import RepoDataRecord

_DISK_FULL = re.compile(r"os error (28|122)\b")
_DENIED = re.compile(r"os error (1|13|30)\b")
_DAMAGED = re.compile(
    r"checksum|hash mismatch|unexpected (eof|end of file)|failed to unpack|invalid (zip|gzip)|archive|"
    r"could not find (the )?(end of central directory|central directory)|zstd|paths\.json|index\.json",
    re.IGNORECASE,
)
_PACKAGE = re.compile(r"failed to (?:fetch|link|unlink) ([^\s:]+)")


def install_error(err: Exception, *, prefix: Path, package_cache: Path) -> ChannelToolsError:
    """A package could not be fetched, unpacked or linked."""
    reason = one_line(err)
    found = _PACKAGE.search(reason)
    package = found.group(1) if found else "a package"
    again = "run the same command again: packages that are complete are kept"
    if _DISK_FULL.search(reason):
        message = f"{package}: no space left on the device that holds {package_cache} or {prefix}: {reason}"
        return DiskFullError(message, hint=f"free space there, then {again}")
    if _DENIED.search(reason):
        message = f"{prefix}: {package} cannot be installed there: {reason}"
        return UsageError(message, hint="choose a prefix and a cache that you may write to")
    if UNREACHABLE.search(reason):
        message = f"{package}: cannot be fetched: {reason}"
        return NetworkError(message, hint=f"check the route to the channel, then {again}")
    if _DAMAGED.search(reason):
        return damaged_package_error(package, reason)
    return ChannelError(f"{package}: cannot be installed into {prefix}: {reason}", hint=again)


def damaged_package_error(package: str, reason: str) -> IntegrityError:
    """A package whose bytes are not what the channel's index says."""
    message = f"{package}: the package is damaged: {reason}"
    return IntegrityError(message, hint="delete the file from the channel and build or mirror it again")


_THREADS = 4


def check_local_archives(records: Iterable[RepoDataRecord]) -> None:
    """Raise IntegrityError for the first record (by file name) whose local archive is absent or of other bytes."""
    local = sorted((record for record in records if local_path(record.url)), key=lambda record: record.file_name)
    with ThreadPoolExecutor(_THREADS) as threads:
        for record, fault in zip(local, threads.map(_fault, local), strict=True):
            if fault is not None:
                raise damaged_package_error(record.file_name, fault)


def _fault(record: RepoDataRecord) -> str | None:
    path = local_path(record.url)
    if path is None:
        return None
    if not path.is_file():
        return f"the channel's index names it, but {path} does not exist"
    size = path.stat().st_size
    if record.size is not None and size != record.size:
        return f"{path} has {size} bytes, the channel's index says {record.size}"
    if record.sha256 is None:
        return None
    found = sha256_of_file(path)
    if found != record.sha256.hex():
        return f"{path} has sha256 {found}, the channel's index says {record.sha256.hex()}"
    return None
