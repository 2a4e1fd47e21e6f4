# SPDX-License-Identifier: BSD-3-Clause
"""The platforms that packages are built for, and this machine's."""

from __future__ import annotations

from rattler import Subdir

from channel_tools.system.errors import UsageError

SUPPORTED_PLATFORMS = ("linux-64", "linux-aarch64")


def current_platform() -> str:
    """This machine's subdir, as conda names it. Raises UsageError if no recipe of ours can be built."""
    platform = str(Subdir.current())
    if platform not in SUPPORTED_PLATFORMS:
        message = f"this machine is {platform}; packages are built on {' and '.join(SUPPORTED_PLATFORMS)}"
        raise UsageError(message, hint="run the command on a Linux machine")
    return platform
