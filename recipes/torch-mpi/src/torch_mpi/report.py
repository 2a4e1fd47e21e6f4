# SPDX-License-Identifier: BSD-3-Clause
"""The account of what MPI carried, as plain JSON values."""

from typing import TYPE_CHECKING, Any

from torch_mpi.version import __version__

if TYPE_CHECKING:
    from torch_mpi import _C

SCHEMA = 1


def build_report(library: "_C.Library | None") -> dict[str, Any]:
    """The report of a process; None where MPI was not started."""
    head = {"schema": SCHEMA, "version": __version__, "active": library is not None}
    if library is None:
        nothing = {"collectives": {}, "failed": 0, "staged_tensors": 0}
        return {**head, "rank": None, "world_size": None, "library": None, "gpu": None, **nothing}
    from torch_mpi import _C

    aware, reason = _C.cuda_awareness()
    described = {name: getattr(library, name) for name in ("version", "path", "standard", "thread_level")}
    return {
        **head,
        "rank": library.rank,
        "world_size": library.size,
        "library": described,
        "gpu": {"aware": aware, "reason": reason},
        **_C.counts(),
    }
