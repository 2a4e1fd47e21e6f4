# SPDX-License-Identifier: BSD-3-Clause
"""Everything the plugin takes from PyTorch beyond its public interface, in one place.

Imported only once the plugin is installed: PyTorch loads its extensions while
its own import is still under way, so torch.distributed is reached for later.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Protocol

from torch._C import _distributed_c10d as c10d

from torch_switchml.agreement import Store


class Backend(Protocol):
    """The part of a c10d backend that is used here."""

    def rank(self) -> int:
        """This process's rank in the backend's group."""

    def size(self) -> int:
        """How many ranks the group has."""


def wrap_register_backend(adopt: Callable[[object, object], object]) -> None:
    """Have `adopt(group, backend)` say which backend is registered in place of `backend`.

    Raises AttributeError where PyTorch's groups register their backends in another way.
    """
    original: Callable[..., None] = c10d.ProcessGroup._register_backend

    def _register_backend(group: object, device: object, backend_type: object, backend: object = None) -> None:
        original(group, device, backend_type, adopt(group, backend))

    c10d.ProcessGroup._register_backend = _register_backend


def is_gloo(backend: object) -> bool:
    """Whether this is gloo, also inside the checking wrapper of TORCH_DISTRIBUTED_DEBUG=DETAIL."""
    if isinstance(backend, c10d._ProcessGroupWrapper):
        backend = backend.wrapped_pg
    return isinstance(backend, c10d.ProcessGroupGloo)


def has_default_group() -> bool:
    """Whether the default process group exists."""
    import torch.distributed

    return bool(torch.distributed.is_initialized())


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
