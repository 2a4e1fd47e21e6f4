# SPDX-License-Identifier: BSD-3-Clause
"""Determines which packages are built, in which order, under which names and why; and writes their recipe folders."""

from channel_tools.plan.foundation import FoundationIndex, has_index, not_asked_for, open_foundation
from channel_tools.plan.model import (
    BuildFile,
    OwnPin,
    Plan,
    PlannedPackage,
    PublishedPackage,
    UnsatisfiablePackage,
    plan_to_json,
)
from channel_tools.plan.planner import judge_again, make_plan
from channel_tools.plan.render import render_folder

__all__ = [
    "BuildFile",
    "FoundationIndex",
    "OwnPin",
    "Plan",
    "PlannedPackage",
    "PublishedPackage",
    "UnsatisfiablePackage",
    "has_index",
    "judge_again",
    "make_plan",
    "not_asked_for",
    "open_foundation",
    "plan_to_json",
    "render_folder",
]
