# SPDX-License-Identifier: BSD-3-Clause
"""The publish stage: built packages to where people install them from, in whole sets, under labels."""

from channel_tools.publish.model import (
    MAIN_LABEL,
    LabelPackage,
    PackageFile,
    PackageSet,
    PublishPlan,
    PublishReport,
    file_set,
)
from channel_tools.publish.target import MaintainedTarget, Target, maintained, open_target

__all__ = [
    "MAIN_LABEL",
    "LabelPackage",
    "MaintainedTarget",
    "PackageFile",
    "PackageSet",
    "PublishPlan",
    "PublishReport",
    "Target",
    "file_set",
    "maintained",
    "open_target",
]
