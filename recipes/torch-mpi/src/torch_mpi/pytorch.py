# SPDX-License-Identifier: BSD-3-Clause
"""Everything the plugin takes from PyTorch beyond its public interface, in one place.

Imported while PyTorch's own import ends, so torch.distributed is there and not to be imported again.
"""

import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, ParamSpec, Protocol, TypeVar

import torch.distributed

if TYPE_CHECKING:
    from torch_mpi import _C

P = ParamSpec("P")
T = TypeVar("T")

DEFAULT_TIMEOUT = timedelta(minutes=30)


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupRequest:
    """What PyTorch wants of a group's backend."""

    ranks: Sequence[int]
    """The members by their ranks among all processes; none for all processes."""
    timeout: timedelta
    group_rank: int | None
    """Of this process in the group; None where PyTorch leaves that to the backend."""

    @property
    def rank(self) -> int | None:
        """Of this process among all, as PyTorch has it."""
        return self.ranks[self.group_rank] if self.group_rank is not None and self.ranks else self.group_rank


class MakesGroup(Protocol):
    """Makes the backend of a group."""

    def __call__(self, request: GroupRequest) -> "_C.MpiBackend":
        """Make it; every member calls this."""


def offer_backend(create: MakesGroup) -> bool:
    """Have ``init_process_group("mpi")`` call ``create``; False where PyTorch has MPI or no process groups itself.

    PyTorch asks a class ProcessGroupMPI, which a build without MPI lacks, for its backend and says no more than which
    ranks are in the group; the rest is known to the function that calls it. Raises AttributeError or ValueError
    where PyTorch makes groups in another way.
    """
    if not torch.distributed.is_available() or torch.distributed.is_mpi_available():
        return False
    from torch.distributed import distributed_c10d as c10d

    requests = [GroupRequest(ranks=(), timeout=DEFAULT_TIMEOUT, group_rank=None)]
    c10d._new_process_group_helper = _noting_request(c10d._new_process_group_helper, requests)

    class ProcessGroupMPI:
        """Stands where a PyTorch that was built with MPI has its class of this name."""

        @staticmethod
        def create(ranks: list[int]) -> "_C.MpiBackend":
            return create(replace(requests[-1], ranks=[int(rank) for rank in ranks]))

    c10d.ProcessGroupMPI = ProcessGroupMPI
    c10d._MPI_AVAILABLE = True
    return True


def _noting_request(make_group: Callable[P, T], requests: list[GroupRequest]) -> Callable[P, T]:
    signature = inspect.signature(make_group)
    if not {"timeout", "group_rank"} <= signature.parameters.keys():
        raise ValueError("_new_process_group_helper has no parameters timeout and group_rank")

    @functools.wraps(make_group)
    def wrapper(*arguments: P.args, **named: P.kwargs) -> T:
        bound = signature.bind(*arguments, **named).arguments
        with _noted(bound.get("timeout"), bound["group_rank"], requests):
            return make_group(*arguments, **named)

    return wrapper


@contextmanager
def _noted(timeout: object, group_rank: object, requests: list[GroupRequest]) -> Iterator[None]:
    requests.append(
        GroupRequest(
            ranks=(),
            timeout=timeout if isinstance(timeout, timedelta) else DEFAULT_TIMEOUT,
            group_rank=group_rank if isinstance(group_rank, int) and group_rank >= 0 else None,
        )
    )
    try:
        yield
    finally:
        requests.pop()
