# SPDX-License-Identifier: BSD-3-Clause
"""The platforms that packages are built for, and this machine's."""

from __future__ import annotations

import platform

from rattler import Subdir

from channel_tools.system.errors import UsageError

SUPPORTED_PLATFORMS = ("linux-64", "linux-aarch64")


def machine_glibc() -> tuple[int, ...] | None:
    """This machine's glibc, ``(2, 36)``; None if it has another C library."""
    name, version = platform.libc_ver()
    return tuple(map(int, version.split(".")[:2])) if name == "glibc" else None


def current_platform() -> str:
    """This machine's subdir, as conda names it. Raises UsageError if no recipe of ours can be built."""
    subdir = str(Subdir.current())
    if subdir not in SUPPORTED_PLATFORMS:
        message = f"this machine is {subdir}; packages are built on {' and '.join(SUPPORTED_PLATFORMS)}"
        raise UsageError(message, hint="run the command on a Linux machine")
    return subdir
