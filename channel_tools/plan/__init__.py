# SPDX-License-Identifier: BSD-3-Clause
"""Which packages are built, in which order, under which names, and why; and the recipe folders they are built from."""

from channel_tools.plan.buildfiles import DiskFiles
from channel_tools.plan.foundation import Foundation, open_foundation
from channel_tools.plan.model import (
    BuildFile,
    OwnPin,
    Plan,
    PlannedPackage,
    PublishedPackage,
    UnservedPackage,
)
from channel_tools.plan.planner import detect_virtual_packages, make_plan
from channel_tools.plan.render import render_folder
from channel_tools.plan.serialise import plan_to_json

__all__ = [
    "BuildFile",
    "DiskFiles",
    "Foundation",
    "OwnPin",
    "Plan",
    "PlannedPackage",
    "PublishedPackage",
    "UnservedPackage",
    "detect_virtual_packages",
    "make_plan",
    "open_foundation",
    "plan_to_json",
    "render_folder",
]
