# SPDX-License-Identifier: BSD-3-Clause
"""The platforms that packages are built for, and this machine's."""

from __future__ import annotations

import platform
from typing import Literal, get_args

from rattler import Subdir
from rattler.exceptions import ParseSubdirError

from channel_tools.system.errors import UsageError

PlatformName = Literal["linux-64", "linux-aarch64"]
SUPPORTED_PLATFORMS: tuple[PlatformName, ...] = get_args(PlatformName)


def machine_glibc() -> tuple[int, ...] | None:
    """This machine's glibc, ``(2, 36)``; None if it has another C library."""
    name, version = platform.libc_ver()
    return tuple(map(int, version.split(".")[:2])) if name == "glibc" else None


def is_subdir(name: str) -> bool:
    """Whether conda has a subdir of this name.

    >>> is_subdir("osx-64"), is_subdir("noarch"), is_subdir("v1.0")
    (True, True, False)
    """
    try:
        Subdir(name)
    except ParseSubdirError:
        return False
    return True


def without_platform(name: str) -> str:
    """A package's name with ``{subdir}`` for the platform at its end, as in tables for all platforms.

    >>> without_platform("gcc_linux-aarch64"), without_platform("gcc")
    ('gcc_{subdir}', 'gcc')
    """
    ending = next((ending for platform in SUPPORTED_PLATFORMS if name.endswith(ending := f"_{platform}")), "")
    return f"{name.removesuffix(ending)}_{{subdir}}" if ending else name


def current_platform() -> PlatformName:
    """This machine's subdir, as conda names it. Raises UsageError if no recipe of ours can be built."""
    subdir = str(Subdir.current())
    for supported in SUPPORTED_PLATFORMS:
        if subdir == supported:
            return supported
    message = f"this machine is {subdir}; packages are built on {' and '.join(SUPPORTED_PLATFORMS)}"
    raise UsageError(message, hint="run the command on a Linux machine")
