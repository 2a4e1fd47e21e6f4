# SPDX-License-Identifier: BSD-3-Clause
"""The generated recipes of a plan, for people and for other build tools."""

from __future__ import annotations

from typing import TYPE_CHECKING

from channel_tools.plan import render_folder
from channel_tools.workflow.planning import plan_for

if TYPE_CHECKING:
    from pathlib import Path

    from channel_tools.plan import Plan
    from channel_tools.settings import Settings
    from channel_tools.workflow.planning import PlanRequest


def render_stacks(settings: Settings, request: PlanRequest, *, destination: Path) -> tuple[Plan, list[Path]]:
    """Write a folder for every package that the foundation can serve; what is in the channel already is written too.

    Raises what planning raises, UsageError when ``destination`` will not do.
    """
    plan = plan_for(settings, request)
    return plan, [render_folder(package, destination, tree=settings.tree) for package in plan.packages]
