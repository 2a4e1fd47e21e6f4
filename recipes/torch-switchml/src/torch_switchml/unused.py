# SPDX-License-Identifier: BSD-3-Clause
"""The line with which rank 0 of several says that SwitchML carries nothing, and why it does not.

A script runs as well over gloo, so that nobody would notice otherwise.
"""

from collections.abc import Mapping
from typing import Any

_FEWEST_RANKS = 2


def unused_line(report: Mapping[str, Any]) -> str | None:
    """The line for a report of torch_switchml.stats(); None for any but rank 0 of several, and if any was carried."""
    carried = sum(counts["jobs"] for counts in report["delegated"].values())
    if report["rank"] != 0 or report["world_size"] < _FEWEST_RANKS or carried:
        return None
    if report["failure"]:
        return left_to_gloo_line(report["world_size"], f"the session failed: {report['failure']}")
    left = {reason: count for reason, count in report["fallbacks"].items() if count}
    if not left:
        return left_to_gloo_line(report["world_size"], "no allreduce was called")
    reasons = ", ".join(f"{count} for their {reason.replace('_', ' ')}" for reason, count in sorted(left.items()))
    return left_to_gloo_line(report["world_size"], f"it left allreduces to gloo, {reasons}")


def left_to_gloo_line(size: int, reason: str) -> str:
    """The line for this many ranks, with why SwitchML carries nothing for them."""
    return f"SwitchML carried nothing for these {size} ranks: {reason} (SWITCHML_ENABLE=0 means that, and says nothing)"
