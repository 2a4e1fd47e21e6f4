# SPDX-License-Identifier: BSD-3-Clause
"""What ``build`` is asked for: which packages, on which machines, signed by whom.

What ``rebuild`` is asked for.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from typer import Argument, Option

from channel_tools.requests import options
from channel_tools.requests.attest import AttestRequest
from channel_tools.requests.foundation import BuildFoundationRequest, FoundationRequest
from channel_tools.requests.names import CacheName
from channel_tools.requests.plan import PlanRequest
from channel_tools.system.errors import UsageError
from channel_tools.system.files import absolute_path
from channel_tools.system.settings import available_cores

if TYPE_CHECKING:
    from channel_tools.system.settings import Settings

_WORKFLOW = "snakemake"


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterRequest:
    """Where builds run: here, on a cluster, or nowhere if the workflow is only written.

    Raises UsageError for fields that contradict each other.
    """

    on: Annotated[
        str | None,
        Option(
            "--on",
            metavar="slurm|pbs|PROFILE",
            help="Build on a cluster with Snakemake: slurm, pbs, or the folder of a Snakemake profile.",
            show_default="this machine",
        ),
    ] = None
    emit: Annotated[
        Literal["snakemake"] | None,
        Option("--emit", help="Build nothing: write the Snakemake workflow to --output-dir.", show_default=False),
    ] = None
    destination: Annotated[
        Path | None, Option("--output-dir", "-o", help="With --emit: the workflow's folder.", show_default=False)
    ] = None

    def __post_init__(self) -> None:
        if (self.emit is None) != (self.destination is None):
            raise UsageError("--emit snakemake and --output-dir FOLDER go together", hint="give both or neither")
        if self.emit is not None and self.on is not None:
            message = "--on and --emit together: --on runs the builds, --emit only writes the workflow"
            raise UsageError(message, hint="leave one out; the scheduler is chosen when the workflow is run")

    @property
    def is_here(self) -> bool:
        """Whether the builds run on this machine."""
        return self.on is None and self.emit is None

    def workflow_folder(self, settings: Settings) -> Path:
        """The folder of the workflow."""
        return settings.output / _WORKFLOW if self.destination is None else absolute_path(self.destination)

    def rendered(self, settings: Settings) -> Path:
        """The folder with the recipe folders that are built from."""
        return settings.rendered if self.destination is None else self.workflow_folder(settings) / "recipes"


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildRequest:
    """What to build, on which machines, signed by whom.

    Without ``compiler_cache``, that of the user's settings is used. ``foundation.jobs`` is how many packages are built
    at once; on a cluster, how many jobs may wait or run, None for the profile's number.
    """

    recipe: Annotated[
        Path | None,
        Argument(
            metavar="[RECIPE]",
            help="A recipe.yaml or its folder, in no tree: it is built into output/ here, with the variants.yaml or "
            "conda_build_config.yaml beside it.",
            show_default="a stack of the tree",
        ),
    ] = None
    plan: PlanRequest = field(default_factory=PlanRequest)
    cluster: ClusterRequest = field(default_factory=ClusterRequest)
    attest: AttestRequest = field(default_factory=AttestRequest)
    unattested: Annotated[bool, Option("--no-attest", help="Do not sign how each package was built.")] = False
    foundation: FoundationRequest = field(default_factory=BuildFoundationRequest)
    compiler_cache: Annotated[
        CacheName | None,
        Option(
            "--compiler-cache",
            help="Reuse earlier compilations from the cache of this program (in CCACHE_DIR, SCCACHE_DIR); "
            "default: CHANNEL_TOOLS_COMPILER_CACHE.",
            show_default="none",
        ),
    ] = None
    dry_run: options.DryRun = False

    @property
    def cores(self) -> int:
        """The cores that builds share."""
        return available_cores()

    @property
    def signing(self) -> AttestRequest | None:
        """How packages are signed, None for not at all; the path of a ``recipe`` is this machine's and not signed."""
        if self.unattested:
            return None
        command = () if self.recipe is not None else ("channel_tools", "build", *self.plan.options)
        return replace(self.attest, command=command)


@dataclass(frozen=True, kw_only=True, slots=True)
class RebuildRequest:
    """What to build again, and whether it is compared."""

    package: Annotated[
        str,
        Argument(
            help="The package's file in a channel's folder, or its name or file name in the local channel.",
            show_default=False,
        ),
    ]
    compare: Annotated[
        bool, Option("--compare", help="Show for each file what differs from the published package.")
    ] = False
    destination: Annotated[
        Path | None, Option("--output-dir", "-o", help="The folder for the new package.", show_default="OUTPUT/rebuilt")
    ] = None
    offline: Annotated[bool, Option("--offline", help="Download nothing: use the source store.")] = False

    def folder(self, settings: Settings) -> Path:
        """The folder for the new package."""
        return absolute_path(self.destination or settings.output / "rebuilt")
