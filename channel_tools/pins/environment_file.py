# SPDX-License-Identifier: BSD-3-Clause
"""environment.yml with every package pinned to version and build; written only, since it holds no hashes.

``nodefaults``, which should keep other channels out, is not written: conda 26.7 asks for a channel of that name.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import yaml

if TYPE_CHECKING:
    from channel_tools.pins.model import Lock, PlatformLock


def render_environment(lock: Lock, platform: PlatformLock) -> str:
    """The file for one platform."""
    comments = [
        f"# Written by channel_tools pins for the stack {lock.stack}.",
        f"# platform: {platform.platform}",
        f"# virtual packages: {' '.join(platform.virtual_packages)}",
    ]
    content = {
        "name": lock.stack,
        "channels": list(lock.channels),
        "dependencies": [f"{package.name}={package.version}={package.build}" for package in platform.packages],
    }
    return "\n".join(comments) + "\n" + yaml.safe_dump(content, sort_keys=False, width=math.inf)
