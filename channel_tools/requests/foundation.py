# SPDX-License-Identifier: BSD-3-Clause
"""What the commands of ``foundation`` are asked for, and ``build`` for the foundation that it builds on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from channel_tools.requests import options
from channel_tools.requests.names import BaseName
from channel_tools.system.settings import available_cores


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundationRequest:
    """How the registry foundation is made.

    Versions that an earlier run recorded are used again, unless ``update`` or ``locked`` (a record) says otherwise.
    ``base`` None is that of the folder, for a new one the newest whose glibc this machine has.
    ``needed`` are the names whose rows are made, with what they lead to, beside those of earlier runs; None makes all
    rows that are not optional, also in later runs. ``asked`` are optional rows and combinations to make as well; those
    of earlier runs stay. ``pythons`` are packages made by recipes, by minor version, for combinations with another
    Python than the table's; if one is missing there, that of an earlier run is kept. ``debian_pytorch`` makes a new
    foundation with Debian's own PyTorch, without looking for a wheel. ``offline`` uses only what was
    recorded and downloaded before, and raises NetworkError for anything else, also with ``dry_run``, which writes
    nothing. ``cuda`` takes the wheels of PyTorch with CUDA, where none for the CPU were taken before.
    """

    jobs: options.Jobs = None
    update: Annotated[bool, Option("--update", help="Look for newer versions of the foundation's inputs.")] = False
    locked: Annotated[
        Path | None,
        Option("--locked", help="Use exactly the versions and hashes of this foundation.json.", show_default=False),
    ] = None
    cuda: Annotated[
        bool, Option("--cuda", help="Take the wheels of PyTorch with CUDA, some 2.7 GB with what they require.")
    ] = False
    base: BaseName | None = None
    needed: frozenset[str] | None = None
    asked: frozenset[str] = frozenset()
    pythons: Mapping[str, Path] = field(default_factory=dict)
    debian_pytorch: bool = False
    offline: bool = False
    dry_run: bool = False

    @property
    def packages_at_once(self) -> int:
        """How many packages are made at once."""
        return self.jobs or available_cores()


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundationBuildRequest(FoundationRequest):
    """What ``foundation build`` is asked for."""

    base: options.Base = None
    asked: Annotated[
        frozenset[str],
        Option(
            "--with",
            help="Make this optional package of the foundation's table as well; may be repeated.",
            show_default="those requested before",
        ),
    ] = frozenset()
    dry_run: options.DryRun = False


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildFoundationRequest(FoundationRequest):
    """What ``build`` is asked for of its foundation; ``offline`` and ``jobs`` apply to the builds as well."""

    offline: Annotated[
        bool,
        Option("--offline", help="Download nothing: use the source store, and earlier downloads for the foundation."),
    ] = False


@dataclass(frozen=True, kw_only=True, slots=True)
class LockRequest:
    """What to do with the foundation lock: fill it in, or with ``update`` move it (``names`` alone, if any).

    ``foundation``, ``address`` and ``further`` are those of PlanRequest, but need not be the local channel's.
    """

    update: bool = False
    names: tuple[str, ...] = ()
    foundation: options.Foundation = None
    address: options.FoundationAddress = None
    further: options.FurtherChannels = ()
    dry_run: options.DryRun = False


@dataclass(frozen=True, kw_only=True, slots=True)
class LockUpdateRequest(LockRequest):
    """What ``foundation update`` is asked for."""

    update: bool = True
    names: Annotated[
        tuple[str, ...],
        Argument(
            metavar="[NAME]...",
            help="Move only these packages and what they require.",
            show_default="all locked packages",
        ),
    ] = ()
