# SPDX-License-Identifier: BSD-3-Clause
"""The pins stage: exact, repeatable environments of a stack, in the formats that conda clients read."""

from channel_tools.pins.lock import Lock, LockedPackage, PlatformLock
from channel_tools.pins.solve import solve_lock
from channel_tools.pins.virtual import assumed_virtual_packages

__all__ = ["Lock", "LockedPackage", "PlatformLock", "assumed_virtual_packages", "solve_lock"]
