# SPDX-License-Identifier: BSD-3-Clause
"""The platform that commands work for."""

from __future__ import annotations

from rattler import Subdir

from channel_tools.errors import UsageError

SUPPORTED = ("linux-64", "linux-aarch64")


def current_platform() -> str:
    """This machine's subdir, as conda names it. Raises UsageError where no recipe of ours can be built."""
    platform = str(Subdir.current())
    if platform not in SUPPORTED:
        message = f"this machine is {platform}; packages are built on {' and '.join(SUPPORTED)}"
        raise UsageError(message, hint="run the command on a Linux machine")
    return platform
