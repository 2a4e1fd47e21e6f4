# SPDX-License-Identifier: BSD-3-Clause
"""What py-rattler's exceptions mean to a user.

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
    SolveError,
    UsageError,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_MAX_EXPLANATION_LINES = 15
_SOLVER_HEADER = "Cannot solve the request because of: "
_DISK_FULL = re.compile(r"os error (28|122)\b")
_DENIED = re.compile(r"os error (1|13|30)\b")
_UNREACHABLE = re.compile(
    r"error sending request|dns error|HTTP status|timed out|connection (closed|reset)", re.IGNORECASE
)
_DAMAGED = re.compile(
    r"checksum|hash mismatch|unexpected (eof|end of file)|failed to unpack|invalid (zip|gzip)|archive|"
    r"could not find (the )?(end of central directory|central directory)|zstd|paths\.json|index\.json",
    re.IGNORECASE,
)
_PACKAGE = re.compile(r"failed to (?:fetch|link|unlink) ([^\s:]+)")


def solve_error(err: Exception, *, specs: Sequence[str], channels: Sequence[str]) -> SolveError:
    """No solution: the solver's own explanation, cut to what a screen holds."""
    lines = str(err).removeprefix(_SOLVER_HEADER).strip().splitlines()
    if len(lines) > _MAX_EXPLANATION_LINES:
        left = len(lines) - _MAX_EXPLANATION_LINES
        lines = [*lines[:_MAX_EXPLANATION_LINES], f"({left} more lines)"]
    message = f"no set of packages in {_joined(channels)} meets {_joined(specs)}:\n" + "\n".join(lines)
    return SolveError(message, hint="build what is missing first (channel_tools build), or loosen the specs")


def gateway_error(err: Exception, *, channels: Sequence[str]) -> ChannelToolsError:
    """A channel's index could not be had: out of reach, absent, or not an index."""
    reason = _one_line(err)
    where = _joined(channels)
    if _UNREACHABLE.search(reason):
        message = f"{where}: the channel's index cannot be reached: {reason}"
        return NetworkError(message, hint="check the address and the route to it, then run the same command again")
    message = f"{where}: the channel's index cannot be read: {reason}"
    return ChannelError(message, hint="make the channel first (channel_tools build) or give another address")


def install_error(err: Exception, *, prefix: Path, package_cache: Path) -> ChannelToolsError:
    """A package could not be fetched, unpacked or linked."""
    reason = _one_line(err)
    found = _PACKAGE.search(reason)
    package = found.group(1) if found else "a package"
    again = "run the same command again: packages that are complete are kept"
    if _DISK_FULL.search(reason):
        message = f"{package}: no space left on the device that holds {package_cache} or {prefix}: {reason}"
        return DiskFullError(message, hint=f"free space there, then {again}")
    if _DENIED.search(reason):
        message = f"{prefix}: {package} cannot be installed there: {reason}"
        return UsageError(message, hint="choose a prefix and a cache that you may write to")
    if _UNREACHABLE.search(reason):
        message = f"{package}: cannot be fetched: {reason}"
        return NetworkError(message, hint=f"check the route to the channel, then {again}")
    if _DAMAGED.search(reason):
        return damaged_package_error(package, reason)
    return ChannelError(f"{package}: cannot be installed into {prefix}: {reason}", hint=again)


def damaged_package_error(package: str, reason: str) -> IntegrityError:
    """A package whose bytes are not what the channel's index says."""
    message = f"{package}: the package is damaged: {reason}"
    return IntegrityError(message, hint="delete the file from the channel and build or mirror it again")


def _joined(words: Sequence[str]) -> str:
    return ", ".join(words)


def _one_line(err: Exception) -> str:
    """The chain of causes on one line, without the repetitions that wrapped errors bring."""
    parts: list[str] = []
    for line in str(err).splitlines():
        part = line.strip().removeprefix("Caused by: ")
        if part and not any(part in earlier for earlier in parts):
            parts.append(part)
    return ": ".join(parts)
