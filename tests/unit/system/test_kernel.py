# SPDX-License-Identifier: BSD-3-Clause
"""Which cores a process may use, from folders as /sys has them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from channel_tools.system.kernel import Core, parse_cpu_list, usable_cores


def write_sys(folder: Path, *, siblings: dict[int, str], nodes: dict[int, str]) -> Path:
    """What the kernel tells of hardware threads and NUMA nodes."""
    for cpu, text in siblings.items():
        topology = folder / f"devices/system/cpu/cpu{cpu}/topology"
        topology.mkdir(parents=True)
        (topology / "thread_siblings_list").write_text(f"{text}\n", encoding="ascii")
    for node, text in nodes.items():
        place = folder / f"devices/system/node/node{node}"
        place.mkdir(parents=True)
        (place / "cpulist").write_text(f"{text}\n", encoding="ascii")
    return folder


def test_threads_of_a_core_are_one_core_in_its_node(tmp_path: Path) -> None:
    siblings = {0: "0,4", 1: "1,5", 2: "2,6", 3: "3,7", 4: "0,4", 5: "1,5", 6: "2,6", 7: "3,7"}
    folder = write_sys(tmp_path, siblings=siblings, nodes={0: "2-3,6-7", 1: "0-1,4-5"})
    assert usable_cores(allowed=range(8), sys_folder=folder) == (
        Core(cpus=(2, 6), node=0),
        Core(cpus=(3, 7), node=0),
        Core(cpus=(0, 4), node=1),
        Core(cpus=(1, 5), node=1),
    )


def test_what_a_cgroup_takes_away_is_not_used(tmp_path: Path) -> None:
    folder = write_sys(tmp_path, siblings={0: "0-1", 1: "0-1", 2: "2-3", 3: "2-3"}, nodes={0: "0-3"})
    assert usable_cores(allowed=[1, 3, 2], sys_folder=folder) == (Core(cpus=(1,), node=0), Core(cpus=(2, 3), node=0))


def test_a_kernel_that_says_nothing_has_cores_of_one_thread(tmp_path: Path) -> None:
    assert usable_cores(allowed=[3, 1], sys_folder=tmp_path) == (Core(cpus=(1,), node=0), Core(cpus=(3,), node=0))


def test_this_machine_is_described() -> None:
    assert {cpu for core in usable_cores() for cpu in core.cpus} == os.sched_getaffinity(0)


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("0\n", (0,)), ("0-2,8,10-11\n", (0, 1, 2, 8, 10, 11)), ("\n", ())],
    ids=["one", "all", "none"],
)
def test_lists_of_the_kernel_are_read(text: str, numbers: tuple[int, ...]) -> None:
    assert parse_cpu_list(text) == numbers
