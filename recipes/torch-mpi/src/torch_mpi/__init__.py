# SPDX-License-Identifier: BSD-3-Clause
"""MPI for a stock PyTorch: ``init_process_group("mpi")`` works in an unchanged script under mpiexec or srun.

Importing this module imports neither torch nor the compiled part, and starts no MPI: ``import torch`` runs
:func:`autoload` in every process of the environment.
"""

import logging
from typing import TYPE_CHECKING, Any

from torch_mpi.errors import LaunchError, MPIError, SettingsError
from torch_mpi.version import __version__

if TYPE_CHECKING:
    from torch_mpi.plugin import Plugin

__all__ = [
    "LaunchError",
    "MPIError",
    "SettingsError",
    "__version__",
    "autoload",
    "carried_allreduces",
    "collectives",
    "stats",
]

logger = logging.getLogger(__name__)

# MPI is one per process.
_plugin: "Plugin | None" = None


def autoload() -> None:
    """PyTorch's ``torch.backends`` entry point: have the backend ``mpi`` there when it is asked for.

    Never raises, since that would break ``import torch``: a PyTorch that cannot be hooked into is logged as an error.
    A PyTorch that has MPI itself is left as it is.
    """
    global _plugin  # noqa: PLW0603 - the one thing there is one of
    if _plugin is not None:
        return
    try:
        from torch_mpi.plugin import Plugin

        plugin = Plugin()
        if plugin.install():
            _plugin = plugin
    except (ImportError, AttributeError, ValueError):
        logger.exception("this PyTorch cannot be given the backend mpi")


def collectives() -> list[dict[str, Any]]:
    """What MPI is at now, for whoever looks why a job stands still; plain JSON values.

    For each process group that was used: ``group``, its name; ``entered``, how many collectives were asked for; and
    ``pending``, what has not ended: ``number`` among them from 1, ``kind`` (``all_reduce``, ``broadcast`` ...), the
    ``sizes`` of the tensors, their ``dtypes``, and ``is_message`` for what goes from one rank to another.
    """
    if _plugin is None or _plugin.library is None:
        return []
    from torch_mpi import _C

    return [{"by": "MPI", **group} for group in _C.collectives()]


def stats() -> dict[str, Any]:
    """What MPI carried for this process since it started; plain JSON values.

    ``active``: whether MPI was started; ``collectives``: ``calls``, ``elements`` and ``bytes`` that MPI completed, by
    name (``all_reduce``, ``broadcast`` ...); ``failed``: those that ended with an error; ``staged_tensors``: tensors of
    devices that went through the host's memory; ``library``: ``version``, ``path``, ``standard`` (400 for MPI 4.0) and
    ``thread_level`` of the MPI; ``gpu``: whether it takes CUDA memory (``aware``) and why (``reason``); ``rank`` and
    ``world_size`` in MPI_COMM_WORLD; ``version``, ``schema``.
    """
    from torch_mpi.report import build_report

    return build_report(_plugin.library if _plugin is not None else None)


def carried_allreduces() -> int:
    """How many allreduces MPI has completed for this process, coalesced ones counted once."""
    collectives = stats()["collectives"]
    return sum(collectives.get(name, {"calls": 0})["calls"] for name in ("all_reduce", "all_reduce_coalesced"))
