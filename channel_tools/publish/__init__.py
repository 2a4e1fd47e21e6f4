# SPDX-License-Identifier: BSD-3-Clause
"""The publish stage: built packages to where people install them from, in whole sets, under labels."""

from channel_tools.publish.model import (
    MAIN_LABEL,
    CuratedTarget,
    LabelPackage,
    PackageFile,
    PackageSet,
    PublishPlan,
    PublishReport,
    Target,
)

__all__ = [
    "MAIN_LABEL",
    "CuratedTarget",
    "LabelPackage",
    "PackageFile",
    "PackageSet",
    "PublishPlan",
    "PublishReport",
    "Target",
]
