# SPDX-License-Identifier: BSD-3-Clause
"""The words that some fields of requests may have; apart from the requests, since the stages read these alone."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

FoundationKind = Literal["registry", "conda-forge"]
DEFAULT_FOUNDATION: FoundationKind = "registry"
BaseName = Literal["debian-11", "debian-12", "debian-13"]
"""The releases of Debian that a registry foundation can be made from."""
FIRST_BASE: BaseName = "debian-12"
"""The base of channels that record none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Base:
    """A release of Debian that a registry foundation can be made from."""

    glibc: str
    """What is built on it requires this of a machine."""
    is_supported: bool = True
    """Whether Debian gives it security updates."""


BASES: Mapping[BaseName, Base] = {
    "debian-11": Base(glibc="2.31", is_supported=False),
    "debian-12": Base(glibc="2.36"),
    "debian-13": Base(glibc="2.41"),
}
"""Oldest first. A new channel has the newest whose glibc the machine has."""
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
    PIP_CONSTRAINTS = "pip-constraints"
    ALL = "all"


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundationTraits:
    """What differs between the kinds of foundations; nothing else asks which kind one is."""

    label: str
    is_made_here: bool
    """Whether this program makes it, and links its packages into our channels; else others update it at an address."""
    absent_hint: str
    lock_words: str
    """What of it a foundation lock records."""


FOUNDATIONS: Mapping[FoundationKind, FoundationTraits] = {
    "registry": FoundationTraits(
        label="the registry foundation",
        is_made_here=True,
        absent_hint="channel_tools build makes it, or without a build: channel_tools plan --make-foundation",
        lock_words="further channels",
    ),
    "conda-forge": FoundationTraits(
        label="the conda-forge foundation",
        is_made_here=False,
        absent_hint="give a channel's folder or address, or use --foundation registry",
        lock_words="the foundation",
    ),
}
