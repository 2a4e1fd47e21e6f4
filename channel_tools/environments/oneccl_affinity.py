# SPDX-License-Identifier: BSD-3-Clause
"""Which processor cores oneCCL's worker threads take, and which are left to the ranks that compute.

oneCCL's guide (Execution of Communication Operations) wants different cores for both: ``CCL_WORKER_AFFINITY=auto``
takes the last ones of a rank's. That works with Intel MPI's launcher alone; under any other, 2021.14 takes the last
cores of the whole host, whatever is allowed to the process and whichever rank computes there (env_2_worker_affinity in
its src/common/env/env.cpp), so the list is computed here.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from channel_tools.system.cpus import Core

_CORES_PER_WORKER = 4
_MAX_WORKERS = 4
_FEWEST_CORES = 2
_Item = TypeVar("_Item")


@dataclass(frozen=True, kw_only=True, slots=True)
class RankCpus:
    """The hardware threads of one rank: those that compute, and one for each of its oneCCL workers."""

    compute: tuple[int, ...]
    workers: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class OneCclAffinity:
    """Where the ranks of one host run; ``ranks`` is empty where they share cores and nothing is pinned."""

    ranks: tuple[RankCpus, ...]

    def variables(self) -> dict[str, str]:
        """What all ranks of the host run with: oneCCL takes a rank's workers from the one list by its number there."""
        if not self.ranks:
            # a rank without a core for a worker does the worker's part itself, while it waits for the result
            return {"CCL_WORKER_OFFLOAD": "0"}
        workers = [str(cpu) for rank in self.ranks for cpu in rank.workers]
        return {"CCL_WORKER_COUNT": str(len(self.ranks[0].workers)), "CCL_WORKER_AFFINITY": ",".join(workers)}

    def mpiexec_arguments(self) -> tuple[str, ...]:
        """What Hydra's mpiexec (MPICH, MVAPICH) takes to keep each rank of the host off the workers' cores."""
        if not self.ranks:
            return ()
        return ("-bind-to", "user:" + ",".join("+".join(map(str, rank.compute)) for rank in self.ranks))


def plan_oneccl_affinity(cores: Sequence[Core], ranks: int) -> OneCclAffinity:
    """Divide the usable cores of a host among its ``ranks``.

    A rank's cores lie in one NUMA node where there are enough of them. Its last ones are its workers': one for each
    four cores, at least one and at most four, as many for every rank. Where a rank has fewer than two,
    nothing is pinned.
    """
    shares = _divide_nodes(cores, ranks)
    if min(map(len, shares)) < _FEWEST_CORES:
        shares = _parts(cores, ranks)
    fewest = min(map(len, shares))
    if fewest < _FEWEST_CORES:
        return OneCclAffinity(ranks=())
    workers = max(1, min(_MAX_WORKERS, fewest // _CORES_PER_WORKER))
    return OneCclAffinity(
        ranks=tuple(
            RankCpus(
                compute=tuple(cpu for core in share[:-workers] for cpu in core.cpus),
                workers=tuple(core.cpus[0] for core in share[-workers:]),
            )
            for share in shares
        )
    )


def _divide_nodes(cores: Sequence[Core], ranks: int) -> list[Sequence[Core]]:
    """The cores of each rank: whole nodes where there are fewer ranks, else the nodes divided among equally many."""
    nodes = [list(node) for _, node in groupby(cores, key=lambda core: core.node)]
    if ranks < len(nodes):
        return [[core for node in part for core in node] for part in _parts(nodes, ranks)]
    counts = [len(part) for part in _parts(range(ranks), len(nodes))]
    return [share for node, count in zip(nodes, counts, strict=True) for share in _parts(node, count)]


def _parts(items: Sequence[_Item], count: int) -> list[Sequence[_Item]]:
    """``items`` in ``count`` neighbouring parts, whose lengths differ by one at most."""
    return [items[len(items) * index // count : len(items) * (index + 1) // count] for index in range(count)]
