# SPDX-License-Identifier: BSD-3-Clause
"""The words that some fields of requests may have; apart from the requests, since the stages read these alone."""

from enum import StrEnum
from typing import Literal

FoundationKind = Literal["registry", "conda-forge"]
EngineName = Literal["rattler-build", "conda-build"]
CacheName = Literal["ccache", "sccache"]
SchedulerName = Literal["slurm", "pbs"]
"""As in channel_tools.system.schedulers, which is too slow to import for --help."""
LauncherName = Literal["torchrun", "mpiexec", "srun"]
CiService = Literal["github", "gitlab"]


class FormatName(StrEnum):
    """The formats of channel_tools.pins.files.PinFormat, which is too slow to import for --help, and ``all``."""

    ENVIRONMENT = "environment"
    EXPLICIT = "explicit"
    CONDA_LOCK = "conda-lock"
    PIXI = "pixi"
    ALL = "all"
