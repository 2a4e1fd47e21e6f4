# SPDX-License-Identifier: BSD-3-Clause
"""Everything the plugin takes from PyTorch beyond its public interface, in one place.

Imported while PyTorch's own import ends, so torch.distributed is there and not to be imported again.
"""

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, ParamSpec, Protocol, TypeVar

import torch.distributed

if TYPE_CHECKING:
    from torch_mpi import _C

P = ParamSpec("P")
T = TypeVar("T")

DEFAULT_TIMEOUT = timedelta(minutes=30)


class MakesGroup(Protocol):
    """Makes the backend of a group of these ranks, of all where there are none."""

    def __call__(self, ranks: list[int], timeout: timedelta) -> "_C.MpiBackend":
        """Make it, with the group's time limit."""


def offer_backend(create: MakesGroup) -> bool:
    """Have ``init_process_group("mpi")`` call ``create``; False where PyTorch has MPI or no process groups itself.

    PyTorch asks a class ProcessGroupMPI, which a build without MPI lacks, for its backend and says no more than which
    ranks are in the group; the time limit is known to the function that calls it. Raises AttributeError or ValueError
    where PyTorch makes groups in another way.
    """
    if not torch.distributed.is_available() or torch.distributed.is_mpi_available():
        return False
    from torch.distributed import distributed_c10d as c10d

    timeouts = [DEFAULT_TIMEOUT]
    c10d._new_process_group_helper = _noting_timeout(c10d._new_process_group_helper, timeouts)

    class ProcessGroupMPI:
        """Stands where a PyTorch that was built with MPI has its class of this name."""

        @staticmethod
        def create(ranks: list[int]) -> "_C.MpiBackend":
            return create([int(rank) for rank in ranks], timeouts[-1])

    c10d.ProcessGroupMPI = ProcessGroupMPI
    c10d._MPI_AVAILABLE = True
    return True


def _noting_timeout(make_group: Callable[P, T], timeouts: list[timedelta]) -> Callable[P, T]:
    signature = inspect.signature(make_group)
    if "timeout" not in signature.parameters:
        raise ValueError("_new_process_group_helper has no parameter timeout")

    @functools.wraps(make_group)
    def wrapper(*arguments: P.args, **named: P.kwargs) -> T:
        with _noted(signature.bind(*arguments, **named).arguments.get("timeout"), timeouts):
            return make_group(*arguments, **named)

    return wrapper


@contextmanager
def _noted(timeout: object, timeouts: list[timedelta]) -> Iterator[None]:
    timeouts.append(timeout if isinstance(timeout, timedelta) else DEFAULT_TIMEOUT)
    try:
        yield
    finally:
        timeouts.pop()
