# SPDX-License-Identifier: BSD-3-Clause
"""How cores are divided among ranks and oneCCL's workers."""

from __future__ import annotations

import pytest

from channel_tools.environments.oneccl_affinity import RankCpus, plan_oneccl_affinity
from channel_tools.system.kernel import Core


def cores(*nodes: int) -> tuple[Core, ...]:
    """Nodes of so many cores with one thread each, numbered through."""
    owners = [node for node, count in enumerate(nodes) for _ in range(count)]
    return tuple(Core(cpus=(number,), node=node) for number, node in enumerate(owners))


def test_the_last_cores_of_a_rank_are_its_workers() -> None:
    affinity = plan_oneccl_affinity(cores(16), 2)
    assert affinity.ranks == (
        RankCpus(compute=(0, 1, 2, 3, 4, 5), workers=(6, 7)),
        RankCpus(compute=(8, 9, 10, 11, 12, 13), workers=(14, 15)),
    )
    assert affinity.variables() == {"CCL_WORKER_COUNT": "2", "CCL_WORKER_AFFINITY": "6,7,14,15"}
    assert affinity.mpiexec_arguments() == ("-bind-to", "user:0+1+2+3+4+5,8+9+10+11+12+13")


@pytest.mark.parametrize(
    ("nodes", "ranks", "workers"),
    [
        pytest.param((4,), 2, "1,3", id="two-cores-each"),
        pytest.param((7,), 2, "2,6", id="odd"),
        pytest.param((64,), 1, "60,61,62,63", id="at-most-four"),
        pytest.param((4, 4), 3, "3,5,7", id="ranks-in-nodes"),
        pytest.param((4, 4), 1, "6,7", id="one-rank-over-nodes"),
        pytest.param((6, 2), 4, "1,3,5,7", id="nodes-of-unlike-size"),
    ],
)
def test_every_rank_has_as_many_workers(nodes: tuple[int, ...], ranks: int, workers: str) -> None:
    variables = plan_oneccl_affinity(cores(*nodes), ranks).variables()
    assert variables["CCL_WORKER_AFFINITY"] == workers
    assert int(variables["CCL_WORKER_COUNT"]) * ranks == len(workers.split(","))


def test_a_worker_has_a_core_to_itself() -> None:
    pairs = tuple(Core(cpus=(number, number + 4), node=0) for number in range(4))
    assert plan_oneccl_affinity(pairs, 2).ranks == (
        RankCpus(compute=(0, 4), workers=(1,)),
        RankCpus(compute=(2, 6), workers=(3,)),
    )


@pytest.mark.parametrize(
    ("nodes", "ranks", "bound", "workers"),
    [
        pytest.param((1,), 1, "0", "0", id="one-core"),
        pytest.param((1, 1), 2, "0,1", "0,1", id="a-core-each"),
        pytest.param((5,), 3, "0,1,3", "0,2,4", id="some-with-two"),
        pytest.param((2,), 5, "0,1,0,1,0", "0,1,0,1,0", id="more-ranks-than-cores"),
        pytest.param((1, 3), 4, "0,1,2,3", "0,1,2,3", id="node-of-one-core"),
    ],
)
def test_a_rank_with_one_core_has_its_worker_there(
    nodes: tuple[int, ...], ranks: int, bound: str, workers: str
) -> None:
    affinity = plan_oneccl_affinity(cores(*nodes), ranks)
    assert affinity.variables() == {"CCL_WORKER_COUNT": "1", "CCL_WORKER_AFFINITY": workers}
    assert affinity.mpiexec_arguments() == ("-bind-to", f"user:{bound}")
