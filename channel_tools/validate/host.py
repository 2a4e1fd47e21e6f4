# SPDX-License-Identifier: BSD-3-Clause
"""Facts about this machine that figures depend on."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from channel_tools.validate.model import HostFacts

_CPUINFO = Path("/proc/cpuinfo")


def describe_host() -> HostFacts:
    """This machine; ``processor`` is "" where the system does not say."""
    return HostFacts(
        system=f"{platform.system()} {platform.release()}",
        machine=platform.machine(),
        processor=_processor(_CPUINFO.read_text(encoding="utf-8") if _CPUINFO.is_file() else ""),
        cores=len(os.sched_getaffinity(0)),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
    )


def _processor(cpuinfo: str) -> str:
    for line in cpuinfo.splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return ""
