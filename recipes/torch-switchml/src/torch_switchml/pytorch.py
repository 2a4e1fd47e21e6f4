# SPDX-License-Identifier: BSD-3-Clause
"""Everything the plugin takes from PyTorch beyond its public interface, in one place.

Imported only once the plugin is installed: PyTorch loads its extensions while
its own import is still under way, so torch.distributed is reached for later.
"""

import sys
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Protocol, cast

from torch._C import _distributed_c10d as c10d

from torch_switchml.agreement import Store

if TYPE_CHECKING:
    from torch_switchml import _C


class Backend(Protocol):
    """The part of a c10d backend that is used here."""

    def rank(self) -> int:
        """This process's rank in the backend's group."""

    def size(self) -> int:
        """How many ranks the group has."""


class Group(Protocol):
    """The part of a c10d process group that is used here."""

    def rank(self) -> int:
        """This process's rank in the group."""

    def size(self) -> int:
        """How many ranks the group has."""


def hook_into_groups(
    begin: Callable[[Group], None], adopt: Callable[[object, object], "_C.SwitchMLBackend | None"]
) -> None:
    """Have `adopt(group, backend)` say which delegating backend stands before a gloo that is registered, if one does.

    `begin(group)` is called before a group has backends, where this PyTorch says by then which is the default one.

    A group then has both: its collectives reach the delegating backend, and PyTorch finds the gloo wherever it asks
    for it by its type or name (the recipe's README lists the places). Raises AttributeError where PyTorch's groups
    register their backends in another way.
    """
    register: Callable[..., None] = c10d.ProcessGroup._register_backend
    sequence_number: Callable[..., int] = c10d.ProcessGroup._get_sequence_number_for_group

    def _register_backend(group: object, device: object, backend_type: object, backend: object = None) -> None:
        delegating = adopt(group, backend)
        if delegating is None:
            register(group, device, backend_type, backend)
            return
        from torch_switchml import _C

        _C.delegate(group=group, device=device, gloo=unwrapped(backend), delegating=delegating)

    def _get_sequence_number_for_group(group: object) -> int:
        """PyTorch asks gloo, which does not know of the delegated ones."""
        if "torch_switchml._C" not in sys.modules:  # nothing was delegated
            return sequence_number(group)
        from torch_switchml import _C

        return sequence_number(group) + _C.delegated_jobs(group)

    if hasattr(c10d.ProcessGroup, "_set_default_backend"):
        set_default: Callable[..., None] = c10d.ProcessGroup._set_default_backend

        def _set_default_backend(group: Group, backend_type: object) -> None:
            begin(group)
            set_default(group, backend_type)

        c10d.ProcessGroup._set_default_backend = _set_default_backend
    c10d.ProcessGroup._register_backend = _register_backend
    c10d.ProcessGroup._get_sequence_number_for_group = _get_sequence_number_for_group


def register_backend_name(name: str, create: Callable[[object, int, int, timedelta], object]) -> None:
    """Have init_process_group(name) call `create(store, rank, size, timeout)`."""
    from torch.distributed import Backend

    if name not in Backend.backend_list:
        Backend.register_backend(name, create, devices=["cpu", "cuda"])


def make_gloo(store: object, rank: int, size: int, timeout: timedelta) -> object:
    """A gloo of its own, as init_process_group makes one."""
    gloo = c10d.ProcessGroupGloo(store, rank, size, timeout=timeout)
    gloo._set_sequence_number_for_group()
    return gloo


def is_gloo(backend: object) -> bool:
    """Whether this is gloo, also inside the checking wrapper of TORCH_DISTRIBUTED_DEBUG=DETAIL."""
    return isinstance(unwrapped(backend), c10d.ProcessGroupGloo)


def unwrapped(backend: object) -> object:
    """The backend inside the checking wrapper of TORCH_DISTRIBUTED_DEBUG=DETAIL, or itself."""
    return backend.wrapped_pg if isinstance(backend, c10d._ProcessGroupWrapper) else backend


def has_default_group() -> bool:
    """Whether the default process group exists."""
    import torch.distributed

    return bool(torch.distributed.is_initialized())


def name_of(group: object) -> str:
    """The group's name, the same on all ranks."""
    return str(cast("c10d.ProcessGroup", group).group_name)


def store_of(group: object) -> Store:
    """The group's own store, under its own prefix."""
    if isinstance(group, c10d.ProcessGroup) and hasattr(group, "get_group_store"):
        store: Store = group.get_group_store()
        return store
    from torch_switchml import _C  # PyTorch before 2.9 has no Python name for it

    return _C.group_store(group)


def group_timeout(backend: object) -> timedelta | None:
    """The time limit the group was made with; None where this PyTorch does not tell."""
    timeout = getattr(getattr(backend, "options", None), "_timeout", None)
    return timeout if isinstance(timeout, timedelta) else None
