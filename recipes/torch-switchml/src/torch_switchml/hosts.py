# SPDX-License-Identifier: BSD-3-Clause
"""Which ranks share a host and its memory: they are one worker on the wire, led by the lowest of them.

Where all ranks are on one host, none is on the wire: their sum is the group's.

Ranks of one boot, process namespace and network namespace are taken for one host's, and then it is tried: the leader
makes memory, the others map it. Where one of them cannot, as between containers, each rank of that host stays a worker
of its own. Every rank reads the same answers in the group's store, so all come to the same hosts.
"""

import json
import logging
import os
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch_switchml.agreement import Agreement, name_ranks

if TYPE_CHECKING:
    from torch_switchml import _C

logger = logging.getLogger(__name__)

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_NAMESPACES = Path("/proc/self/ns")


@dataclass(frozen=True, kw_only=True, slots=True)
class Hosts:
    """The workers on the wire in their order, each as the ranks behind it; and the memory this rank shares."""

    workers: tuple[tuple[int, ...], ...]
    board: "_C.HostBoard | None" = None
    refusals: tuple[str, ...] = ()
    """Which ranks of one host each are a worker of their own, and why they cannot share its memory."""

    @classmethod
    def of_single_ranks(cls, size: int) -> "Hosts":
        """Each rank a worker of its own."""
        return cls(workers=tuple((rank,) for rank in range(size)))

    def ranks_with(self, rank: int) -> tuple[int, ...]:
        """The ranks of one worker with this one, the leader first."""
        return next(ranks for ranks in self.workers if rank in ranks)

    @property
    def hold_all_in_memory(self) -> bool:
        """Whether several ranks, all of the group, share one memory: nothing is left for the wire to do."""
        return len(self.workers) == 1 and len(self.workers[0]) > 1

    @property
    def num_on_wire(self) -> int:
        """The workers that the switch knows."""
        return 0 if self.hold_all_in_memory else len(self.workers)

    def worker_led_by(self, rank: int) -> int | None:
        """The number of the worker that this rank leads; None where another rank does, or nobody is on the wire."""
        if self.hold_all_in_memory:
            return None
        return next((worker for worker, ranks in enumerate(self.workers) if ranks[0] == rank), None)

    def board_of(self, rank: int) -> "_C.HostBoard | None":
        """The memory that this rank's jobs go through, None where no host shares any.

        A rank that is alone beside hosts that share has some too: its jobs are cut as theirs are. RuntimeError where
        that is not to be had.
        """
        if self.board is not None or all(len(ranks) == 1 for ranks in self.workers):
            return self.board
        from torch_switchml import _C

        board = _C.HostBoard.create([rank])
        board.watch([os.getpid()])
        return board

    def wire_ranks(self) -> str:
        """What the ranks in the wire's own messages are, to put behind them; "" where they are the group's."""
        if len(self.workers) == 1 or all(len(ranks) == 1 for ranks in self.workers):
            return ""
        from torch_switchml import _C

        words = [f"rank {worker} is {name_ranks(list(ranks))}" for worker, ranks in enumerate(self.workers)]
        return (
            f" (there, {', '.join(words)} of this group; jobs of {_C.CHUNK_NUMEL} elements and more travel in parts of "
            f"so many, and {_C.CHUNK_NUMEL + 1} elements stand for ranks of one host that differ)"
        )


def settle_hosts(agreement: Agreement, *, name: str, timeout: timedelta) -> Hosts:
    """The same on every rank, but for the memory. Raises SwitchMLError where ranks do not answer in time.

    Ranks of one machine that give different names are taken for ranks of different hosts.
    """
    identity = _identify_host()
    answers = _exchange(agreement, "host", {"host": identity and f"{identity} {name}", "process": os.getpid()}, timeout)
    candidates = _group_by_host([answer["host"] for answer in answers])
    if len(candidates) == agreement.size:
        return Hosts.of_single_ranks(agreement.size)
    mine = next(ranks for ranks in candidates if agreement.rank in ranks)
    board, error = _try_share(agreement, mine, [answer["process"] for answer in answers], timeout)
    errors = agreement.exchange(stage="shared", value=error, timeout=timeout)
    if board is not None:
        board.seal()
    workers, refusals = _split_where_refused(candidates, errors)
    hosts = Hosts(workers=workers, board=board, refusals=refusals)
    return hosts if len(hosts.ranks_with(agreement.rank)) > 1 else Hosts(workers=workers, refusals=refusals)


def _exchange(agreement: Agreement, stage: str, value: dict[str, Any], timeout: timedelta) -> list[dict[str, Any]]:
    return [json.loads(text) for text in agreement.exchange(stage=stage, value=json.dumps(value), timeout=timeout)]


def _identify_host() -> str:
    """Equal for ranks that may share memory and have one network; "" where the system does not tell."""
    try:
        if Path("/proc/self").readlink() != Path(str(os.getpid())):  # another namespace's /proc
            return ""
        namespaces = [str((_NAMESPACES / kind).readlink()) for kind in ("pid", "net")]
        return " ".join([_BOOT_ID.read_text().strip(), *namespaces])
    except OSError as err:
        logger.debug("ranks of this host are not looked for: %s", err)
        return ""


def _group_by_host(hosts: list[str]) -> tuple[tuple[int, ...], ...]:
    groups: dict[str, list[int]] = {}
    for rank, host in enumerate(hosts):
        groups.setdefault(host or f"rank {rank}", []).append(rank)
    return tuple(tuple(ranks) for ranks in groups.values())


def _try_share(
    agreement: Agreement, ranks: tuple[int, ...], processes: list[int], timeout: timedelta
) -> tuple["_C.HostBoard | None", str]:
    """The memory of this rank's host, or why this rank cannot have it; "" and no memory for a rank alone there."""
    from torch_switchml import _C

    board, error = None, ""
    index = ranks.index(agreement.rank)
    try:
        if index == 0 and len(ranks) > 1:
            board = _C.HostBoard.create(list(ranks))
    except RuntimeError as err:
        error = str(err)
    addresses = agreement.exchange(stage="memory", value=board.address if board else "", timeout=timeout)
    try:
        if index > 0 and addresses[ranks[0]]:
            board = _C.HostBoard.attach(addresses[ranks[0]], list(ranks), index)
        if board is not None:
            board.watch([processes[rank] for rank in ranks])
    except RuntimeError as err:
        board, error = None, str(err)
    return board, error


def _split_where_refused(
    candidates: tuple[tuple[int, ...], ...], errors: list[str]
) -> tuple[tuple[tuple[int, ...], ...], tuple[str, ...]]:
    """The workers, and a text for each of the candidates that had to be split."""
    workers: list[tuple[int, ...]] = []
    texts: list[str] = []
    for ranks in candidates:
        refusals = [f"rank {rank}: {errors[rank]}" for rank in ranks if errors[rank]]
        if refusals:
            texts.append(f"each of {name_ranks(list(ranks))} is a worker of its own: {'; '.join(refusals)}")
            workers += [(rank,) for rank in ranks]
        else:
            workers.append(ranks)
    return tuple(sorted(workers)), tuple(texts)
