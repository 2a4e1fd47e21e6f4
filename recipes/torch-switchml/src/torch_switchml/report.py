# SPDX-License-Identifier: BSD-3-Clause
"""The account of who carried what, as plain JSON values, and its file."""

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch_switchml.version import __version__

if TYPE_CHECKING:
    from torch_switchml import _C
    from torch_switchml.hosts import Hosts
    from torch_switchml.membership import GroupMembership
    from torch_switchml.settings import Settings

SCHEMA = 1

_DTYPES = ("float32", "int32")
_COLLECTIVES = ("all_gather", "reduce_scatter")
_REASONS = ("device", "dtype", "group", "reduce_op", "several_tensors", "sparse")


def build_report(
    *,
    settings: "Settings | None",
    membership: "GroupMembership | None",
    hosts: "Hosts | None",
    counters: "_C.Counters | None",
    library: "_C.Library | None",
    sessions: Sequence["_C.Session"] = (),
    refused_groups: int = 0,
) -> dict[str, Any]:
    """The report of a process; all arguments None where the plugin did nothing.

    `sessions` are the default group's and those of groups that were made beside it.
    """
    counts = counters.snapshot() if counters is not None else _nothing_counted()
    return {
        "schema": SCHEMA,
        "version": __version__,
        "active": bool(sessions),
        "controller": settings.controller if settings else None,
        "rank": membership.rank if membership else None,
        "world_size": membership.size if membership else None,
        "host": _describe_host(membership, hosts),
        "library": json.loads(library.describe()) if library else None,
        "sessions": len(sessions),
        "refused_groups": refused_groups,
        "failure": next((session.failure for session in sessions if session.failure), None),
        "transport": _add_up([session.library_stats() for session in sessions]),
        **counts,
    }


def write_report(path: Path, report: Mapping[str, Any]) -> None:
    """Write the report as JSON; a reader sees the old file or the whole new one. OSError."""
    text = json.dumps(report, indent=2, sort_keys=True) + "\n"
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
        Path(name).replace(path)
    except OSError:
        Path(name).unlink(missing_ok=True)
        raise


def _add_up(sessions: Sequence[str | None]) -> dict[str, int] | None:
    # a session without counters has another rank of this host on the wire
    counts = [json.loads(counters) for counters in sessions if counters]
    return {name: sum(counters[name] for counters in counts) for name in counts[0]} if counts else None


def _describe_host(membership: "GroupMembership | None", hosts: "Hosts | None") -> dict[str, Any] | None:
    if membership is None or hosts is None:
        return None
    return {"ranks": list(hosts.ranks_with(membership.rank)), "workers": hosts.num_on_wire}


def _nothing_counted() -> dict[str, Any]:
    return {
        "delegated": {dtype: {"jobs": 0, "elements": 0, "bytes": 0} for dtype in _DTYPES},
        "fallbacks": dict.fromkeys(_REASONS, 0),
        "gloo_collectives": dict.fromkeys(_COLLECTIVES, 0),
        "failed_jobs": 0,
        "copied_jobs": 0,
        "device_jobs": 0,
        "reduced_in_host": {"jobs": 0, "elements": 0},
    }
