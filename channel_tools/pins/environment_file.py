# SPDX-License-Identifier: BSD-3-Clause
"""environment.yml with every package pinned to version and build; written only, since it holds no hashes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import yaml

if TYPE_CHECKING:
    from channel_tools.pins.model import Lock, PlatformLock


def render_environment(lock: Lock, platform: PlatformLock) -> str:
    """The file for one platform. ``nodefaults`` keeps clients from adding channels of their own."""
    comments = [
        f"# Written by channel_tools pins for the stack {lock.stack}.",
        f"# platform: {platform.platform}",
        f"# virtual packages: {' '.join(platform.virtual_packages)}",
    ]
    content = {
        "name": lock.stack,
        "channels": [*lock.channels, "nodefaults"],
        "dependencies": [f"{package.name}={package.version}={package.build}" for package in platform.packages],
    }
    return "\n".join(comments) + "\n" + yaml.safe_dump(content, sort_keys=False, width=math.inf)
