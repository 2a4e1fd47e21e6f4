# SPDX-License-Identifier: BSD-3-Clause
"""What the kernel says of this process's control group (cgroups(7)), where schedulers put their jobs."""

from __future__ import annotations

import re
from pathlib import Path

_MEMBERSHIP = Path("/proc/self/cgroup")
_MOUNTED = Path("/sys/fs/cgroup")
_OOM_KILL = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)


def count_oom_kills(*, membership: Path = _MEMBERSHIP, mounted: Path = _MOUNTED) -> int:
    """How many processes of this process's group the kernel has killed for want of memory; 0 where it does not say.

    Version 2 counts in ``memory.events`` of the group, version 1 in ``memory.oom_control`` of the memory controller's.
    """
    for line in membership.read_text(encoding="utf-8").splitlines() if membership.is_file() else ():
        _number, controllers, place = line.split(":", 2)
        if not controllers:
            counted = mounted / place.lstrip("/") / "memory.events"
        elif "memory" in controllers.split(","):
            counted = mounted / "memory" / place.lstrip("/") / "memory.oom_control"
        else:
            continue
        if counted.is_file() and (found := _OOM_KILL.search(counted.read_text(encoding="ascii"))):
            return int(found[1])
    return 0
