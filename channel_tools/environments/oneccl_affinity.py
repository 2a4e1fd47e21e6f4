# SPDX-License-Identifier: BSD-3-Clause
"""Divides processor cores among oneCCL's worker threads and the ranks that compute.

oneCCL's guide (Execution of Communication Operations) recommends different cores for both: ``CCL_WORKER_AFFINITY=auto``
uses the last cores of each rank. That works only with Intel MPI's launcher; under any other, 2021.14 uses the last
cores of the whole host, even if the process may not use them or another rank computes there (env_2_worker_affinity in
its src/common/env/env.cpp), so the list is computed here. Ranks are bound as well: one that waits for its worker on
another rank's core would take time from it.
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
    """The cores of the ranks of one host, by their number on it."""

    ranks: tuple[RankCpus, ...]

    def variables(self) -> dict[str, str]:
        """The variables for all ranks of the host: oneCCL selects a rank's workers by its local number."""
        workers = [str(cpu) for rank in self.ranks for cpu in rank.workers]
        return {"CCL_WORKER_COUNT": str(len(self.ranks[0].workers)), "CCL_WORKER_AFFINITY": ",".join(workers)}

    def mpiexec_arguments(self) -> tuple[str, ...]:
        """The arguments for Hydra's mpiexec (MPICH, MVAPICH) that bind each rank of the host to its compute cores."""
        return ("-bind-to", "user:" + ",".join("+".join(map(str, rank.compute)) for rank in self.ranks))


def plan_oneccl_affinity(cores: Sequence[Core], ranks: int) -> OneCclAffinity:
    """Divide the usable cores of a host among its ``ranks``.

    A rank's cores are in one NUMA node if there are enough of them. Its last ones are for its workers: one for each
    four cores, at least one and at most four, the same number for every rank. The worker of a rank with one core shares
    it; if there are more ranks than cores, they share cores in turn.
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
    # two cores are what a rank needs most; of equal choices, the first is used
    return max(ways, key=lambda shares: min(2, *map(len, shares)))


def _divide_nodes(cores: Sequence[Core], ranks: int) -> list[Sequence[Core]]:
    """The cores of each rank: whole nodes if there are fewer ranks, else the nodes divided equally among them."""
    nodes = [list(node) for _, node in groupby(cores, key=lambda core: core.node)]
    if ranks < len(nodes):
        return [[core for node in part for core in node] for part in _parts(nodes, ranks)]
    counts = [len(part) for part in _parts(range(ranks), len(nodes))]
    return [share for node, count in zip(nodes, counts, strict=True) for share in _parts(node, count)]


def _parts(items: Sequence[_Item], count: int) -> list[Sequence[_Item]]:
    """Split ``items`` into ``count`` consecutive parts whose lengths differ by at most one."""
    return [items[len(items) * index // count : len(items) * (index + 1) // count] for index in range(count)]
