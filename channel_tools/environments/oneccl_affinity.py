# SPDX-License-Identifier: BSD-3-Clause
"""Which processor cores oneCCL's worker threads take, and which are left to the ranks that compute.

oneCCL's guide (Execution of Communication Operations) wants different cores for both: ``CCL_WORKER_AFFINITY=auto``
takes the last ones of a rank's. That works with Intel MPI's launcher alone; under any other, 2021.14 takes the last
cores of the whole host, whatever is allowed to the process and whichever rank computes there (env_2_worker_affinity in
its src/common/env/env.cpp), so the list is computed here. Ranks are bound as well: one that waits for its worker on
another rank's core takes that core from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from channel_tools.system.kernel import Core

_CORES_PER_WORKER = 4
_MAX_WORKERS = 4
_Item = TypeVar("_Item")


@dataclass(frozen=True, kw_only=True, slots=True)
class RankCpus:
    """The hardware threads of one rank: those that compute, and one for each of its oneCCL workers."""

    compute: tuple[int, ...]
    workers: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class OneCclAffinity:
    """Where the ranks of one host run, by their number on it."""

    ranks: tuple[RankCpus, ...]

    def variables(self) -> dict[str, str]:
        """What all ranks of the host run with: oneCCL takes a rank's workers from the one list by its number there."""
        workers = [str(cpu) for rank in self.ranks for cpu in rank.workers]
        return {"CCL_WORKER_COUNT": str(len(self.ranks[0].workers)), "CCL_WORKER_AFFINITY": ",".join(workers)}

    def mpiexec_arguments(self) -> tuple[str, ...]:
        """What Hydra's mpiexec (MPICH, MVAPICH) takes to bind each rank of the host to the cores it computes on."""
        return ("-bind-to", "user:" + ",".join("+".join(map(str, rank.compute)) for rank in self.ranks))


def plan_oneccl_affinity(cores: Sequence[Core], ranks: int) -> OneCclAffinity:
    """Divide the usable cores of a host among its ``ranks``.

    A rank's cores lie in one NUMA node if there are enough of them. Its last ones are its workers': one for each
    four cores, at least one and at most four, as many for every rank. A rank with one core has its worker on it; ranks
    beyond the number of cores take these in turn.
    """
    shares = _divide(cores, ranks)
    workers = max(1, min(_MAX_WORKERS, min(map(len, shares)) // _CORES_PER_WORKER))
    return OneCclAffinity(
        ranks=tuple(
            RankCpus(
                compute=tuple(cpu for core in share[:-workers] or share for cpu in core.cpus),
                workers=tuple(core.cpus[0] for core in share[-workers:]),
            )
            for share in shares
        )
    )


def _divide(cores: Sequence[Core], ranks: int) -> list[Sequence[Core]]:
    if ranks > len(cores):
        return [[cores[rank % len(cores)]] for rank in range(ranks)]
    ways = (_divide_nodes(cores, ranks), _parts(cores, ranks))
    # two cores are what a rank needs most; the first of equal ones is taken
    return max(ways, key=lambda shares: min(2, *map(len, shares)))


def _divide_nodes(cores: Sequence[Core], ranks: int) -> list[Sequence[Core]]:
    """The cores of each rank: whole nodes if there are fewer ranks, else the nodes divided among equally many."""
    nodes = [list(node) for _, node in groupby(cores, key=lambda core: core.node)]
    if ranks < len(nodes):
        return [[core for node in part for core in node] for part in _parts(nodes, ranks)]
    counts = [len(part) for part in _parts(range(ranks), len(nodes))]
    return [share for node, count in zip(nodes, counts, strict=True) for share in _parts(node, count)]


def _parts(items: Sequence[_Item], count: int) -> list[Sequence[_Item]]:
    """``items`` in ``count`` neighbouring parts, whose lengths differ by one at most."""
    return [items[len(items) * index // count : len(items) * (index + 1) // count] for index in range(count)]
