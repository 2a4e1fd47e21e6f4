# SPDX-License-Identifier: BSD-3-Clause
"""What ``build`` is asked for: which packages, by which programs, on which machines, signed by whom."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from channel_tools.requests.attest import AttestRequest
from channel_tools.requests.foundation import FoundationRequest
from channel_tools.requests.plan import PlanRequest
from channel_tools.system.errors import UsageError
from channel_tools.system.settings import available_cores

if TYPE_CHECKING:
    from pathlib import Path

    from channel_tools.system.settings import Settings

EngineName = Literal["rattler-build", "conda-build"]
CacheName = Literal["ccache", "sccache"]
_WORKFLOW = "snakemake"


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolsRequest:
    """The programs that builds run.

    ``compiler_cache`` None is the one of the user's settings, else none. ``from_failed`` continues failed builds.
    """

    engine: EngineName = "rattler-build"
    compiler_cache: CacheName | None = None
    from_failed: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterRequest:
    """Where builds run: ``on`` is ``slurm``, ``pbs`` or the folder of a Snakemake profile.

    With ``emit``, the workflow is only written, to the folder ``destination``. With none of them, builds run here.
    Raises UsageError for fields that contradict each other.
    """

    on: str | None = None
    emit: Literal["snakemake"] | None = None
    destination: Path | None = None

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
        return settings.output / _WORKFLOW if self.destination is None else self.destination.absolute()

    def rendered(self, settings: Settings) -> Path:
        """The folder with the recipe folders that are built from."""
        return settings.rendered if self.destination is None else self.workflow_folder(settings) / "recipes"


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildRequest:
    """What to build: the packages of ``plan``, or the one ``recipe`` (a file or its folder), which is in no tree.

    ``foundation`` says how the registry foundation is made first. Its ``jobs`` (packages at once; on a cluster, jobs
    that may wait or run at once, None for the profile's number) and ``offline`` (download nothing; everything missing
    is one error before anything is made) apply to the builds as well. ``unattested`` signs nothing.
    """

    recipe: Path | None = None
    plan: PlanRequest = field(default_factory=PlanRequest)
    foundation: FoundationRequest = field(default_factory=FoundationRequest)
    tools: ToolsRequest = field(default_factory=ToolsRequest)
    cluster: ClusterRequest = field(default_factory=ClusterRequest)
    attest: AttestRequest = field(default_factory=AttestRequest)
    unattested: bool = False
    dry_run: bool = False

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
