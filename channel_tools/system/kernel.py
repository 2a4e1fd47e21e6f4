# SPDX-License-Identifier: BSD-3-Clause
"""What Linux reports: the cores that this process may use (/sys), its control group (cgroups(7)), and all processes.

Schedulers put jobs into control groups.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_SYS = Path("/sys")


@dataclass(frozen=True, kw_only=True, slots=True)
class Core:
    """A core: the numbers of its hardware threads that may be used, and the NUMA node that it belongs to."""

    cpus: tuple[int, ...]
    node: int


def usable_cores(*, allowed: Iterable[int] | None = None, sys_folder: Path = _SYS) -> tuple[Core, ...]:
    """The cores with at least one hardware thread in ``allowed``, sorted by node, then by number.

    ``allowed`` None means what the affinity mask and the cgroup's cpuset permit. A machine that does not report its
    topology is treated as one node of cores with one thread each.
    """
    numbers = sorted(os.sched_getaffinity(0) if allowed is None else allowed)
    nodes = _nodes(sys_folder)
    threads: dict[tuple[int, str], list[int]] = defaultdict(list)
    for number in numbers:
        siblings = sys_folder / f"devices/system/cpu/cpu{number}/topology/thread_siblings_list"
        core = siblings.read_text(encoding="ascii").strip() if siblings.is_file() else str(number)
        threads[nodes.get(number, 0), core].append(number)
    cores = (Core(cpus=tuple(cpus), node=node) for (node, _core), cpus in threads.items())
    return tuple(sorted(cores, key=lambda core: (core.node, core.cpus)))


def _nodes(sys_folder: Path) -> dict[int, int]:
    """The NUMA node of each hardware thread; empty if the kernel has no NUMA support."""
    nodes: dict[int, int] = {}
    for folder in (sys_folder / "devices/system/node").glob("node[0-9]*"):
        cpus = parse_cpu_list((folder / "cpulist").read_text(encoding="ascii"))
        nodes.update(dict.fromkeys(cpus, int(folder.name.removeprefix("node"))))
    return nodes


def parse_cpu_list(text: str) -> tuple[int, ...]:
    """The numbers of a list as the kernel writes it (cpuset(7)): ``0-3,8`` is 0, 1, 2, 3, 8."""
    parts = (part.partition("-") for part in text.strip().split(",") if part)
    return tuple(number for first, _, last in parts for number in range(int(first), int(last or first) + 1))


_MEMBERSHIP = Path("/proc/self/cgroup")
_MOUNTED = Path("/sys/fs/cgroup")
_OOM_KILL = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)


def count_oom_kills(*, membership: Path = _MEMBERSHIP, mounted: Path = _MOUNTED) -> int:
    """How many processes of this control group the kernel has killed for lack of memory; 0 if it does not say.

    Version 2 counts in ``memory.events`` of the group, version 1 in ``memory.oom_control`` of the memory controller.
    """
    for line in membership.read_text(encoding="utf-8").splitlines() if membership.is_file() else ():
        _number, controllers, group = line.split(":", 2)
        if not controllers:
            events = mounted / group.lstrip("/") / "memory.events"
        elif "memory" in controllers.split(","):
            events = mounted / "memory" / group.lstrip("/") / "memory.oom_control"
        else:
            continue
        if events.is_file() and (match := _OOM_KILL.search(events.read_text(encoding="ascii"))):
            return int(match[1])
    return 0


@dataclass(frozen=True, kw_only=True, slots=True)
class ProcessEntry:
    """A process of this machine and its ids."""

    number: int
    parent: int
    group: int
    is_zombie: bool
    """Whether it has ended and waits to be collected by its parent."""


def stat_fields(process: int | str) -> list[str]:
    """The fields of a process in /proc: its state, parent, group ... Raises OSError if it has ended."""
    text = Path("/proc", str(process), "stat").read_text(errors="replace")
    return text.rpartition(")")[2].split()  # "pid (command) state ...": the command may contain spaces and brackets


def all_processes() -> Iterator[ProcessEntry]:
    """Every process of this machine."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):  # it has ended in the meantime
                fields = stat_fields(folder.name)
                yield ProcessEntry(
                    number=int(folder.name), parent=int(fields[1]), group=int(fields[2]), is_zombie=fields[0] == "Z"
                )
