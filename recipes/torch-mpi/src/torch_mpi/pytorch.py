# SPDX-License-Identifier: BSD-3-Clause
"""Everything the plugin takes from PyTorch beyond its public interface, in one place.

Imported while PyTorch's own import ends, so torch.distributed is there and not to be imported again.
"""

import functools
import inspect
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar

import torch.distributed

from torch_mpi.errors import MPIError

if TYPE_CHECKING:
    from torch_mpi import _C

P = ParamSpec("P")
T = TypeVar("T")

DEFAULT_TIMEOUT = timedelta(minutes=30)
# Of a store's port and host, or of why there is none.
_LONGEST_ADDRESS = 512


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
    c10d._new_process_group_helper = _noting_request(c10d._new_process_group_helper, requests, create)

    class ProcessGroupMPI:
        """Stands where a PyTorch that was built with MPI has its class of this name."""

        @staticmethod
        def create(ranks: list[int]) -> "_C.MpiBackend":
            return create(replace(requests[-1], ranks=[int(rank) for rank in ranks]))

    c10d.ProcessGroupMPI = ProcessGroupMPI
    c10d._MPI_AVAILABLE = True
    return True


def _noting_request(make_group: Callable[P, T], requests: list[GroupRequest], create: MakesGroup) -> Callable[P, T]:
    signature = inspect.signature(make_group)
    if not {"timeout", "group_rank", "global_ranks_in_group", "backend", "store"} <= signature.parameters.keys():
        raise ValueError(
            "_new_process_group_helper has no parameters timeout, group_rank, global_ranks_in_group, backend and store"
        )

    @functools.wraps(make_group)
    def wrapper(*arguments: P.args, **named: P.kwargs) -> T:
        call = signature.bind(*arguments, **named)
        bound = call.arguments
        with _noted(bound.get("timeout"), bound["group_rank"], requests):
            if _needs_store(bound):
                ranks = [int(rank) for rank in bound["global_ranks_in_group"]]
                bound["store"] = share_store(create(replace(requests[-1], ranks=ranks)), requests[-1].timeout)
            return make_group(*call.args, **call.kwargs)

    return wrapper


def _needs_store(bound: Mapping[str, Any]) -> bool:
    """Whether PyTorch will use the store of this group, and there is none.

    That is, where this process is to be in a group of another backend beside a default group of MPI. And in that
    default group itself under TORCH_DIST_INIT_BARRIER=1: its ranks meet by its store when such a group has been made.
    """
    from torch.distributed import distributed_c10d as c10d

    store = bound["store"]
    while isinstance(store, torch.distributed.PrefixStore):
        store = store.underlying_store
    if type(store) is not torch.distributed.Store:  # what init_process_group gives MPI in place of one
        return False
    if not torch.distributed.is_initialized():
        return str(bound["backend"]).lower() == "mpi" and c10d._is_barrier_after_init() == 1
    return (
        str(bound["backend"]).lower() not in {"mpi", "undefined"}
        and torch.distributed.get_rank() in bound["global_ranks_in_group"]
    )


def share_store(backend: "_C.MpiBackend", timeout: timedelta) -> torch.distributed.Store:
    """A store that the first rank of this group serves and the others hear of; MPIError on all where it cannot."""
    message = torch.zeros(_LONGEST_ADDRESS, dtype=torch.uint8)
    store: torch.distributed.Store | None = None
    if backend.rank() == 0:
        try:
            host = _reachable_name()
            store = torch.distributed.TCPStore(host, 0, is_master=True, timeout=timeout, wait_for_workers=False)
            text = f"{store.port} {host}"
        except (OSError, RuntimeError) as err:
            text = f"0 {err}"
        encoded = text.encode()[:_LONGEST_ADDRESS]
        message[: len(encoded)] = torch.tensor(list(encoded), dtype=torch.uint8)
    backend.broadcast([message], torch.distributed.BroadcastOptions()).wait()
    port, _, rest = bytes(message.tolist()).rstrip(b"\0").decode(errors="replace").partition(" ")
    if port == "0":
        raise MPIError(f"the first rank of the group cannot serve the store that its backend needs: {rest}")
    return store or torch.distributed.TCPStore(rest, int(port), is_master=False, timeout=timeout)


def _reachable_name() -> str:
    """By which other hosts know this one, as gloo takes it; the loopback address where it has no name."""
    name = socket.gethostname()
    try:
        socket.getaddrinfo(name, None)
    except OSError:
        return "127.0.0.1"
    return name


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
