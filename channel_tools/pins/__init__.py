# SPDX-License-Identifier: BSD-3-Clause
"""The pins stage: exact, repeatable environments of a stack, in the formats that conda clients read."""

from channel_tools.pins.model import Lock, LockedPackage, PlatformLock

__all__ = ["Lock", "LockedPackage", "PlatformLock"]
