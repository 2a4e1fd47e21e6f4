# SPDX-License-Identifier: BSD-3-Clause
"""What py-rattler's errors of installation mean to a user.

Its errors are one class per stage with the cause in the text only, so the text is read: the phrases below were seen
with py-rattler 0.28 (tests provoke each with real channels). An unknown text keeps its words under a general error.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from channel_tools.errors import (
    ChannelError,
    ChannelToolsError,
    DiskFullError,
    IntegrityError,
    NetworkError,
    UsageError,
)
from channel_tools.solving import UNREACHABLE, one_line

if TYPE_CHECKING:
    from pathlib import Path

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
