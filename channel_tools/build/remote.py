# SPDX-License-Identifier: BSD-3-Clause
"""What a driver and the processes of a build on other machines tell each other, in files of a folder that all see.

``builds.json`` says what is built. ``results/`` has, by package: ``.built`` (a build ended, well or not), ``.entered``
(the package is in the channel, and Snakemake does not know yet), ``.admitted`` (it does), ``.failed`` (why the package
is not there). Every file is written whole.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from channel_tools.build.compiler_cache import CompilerCache  # noqa: TC001 - msgspec looks for it here
from channel_tools.build.model import BuildJob, BuildPlaces, BuildUsage
from channel_tools.system import errors
from channel_tools.system.errors import ChannelToolsError, UsageError
from channel_tools.system.files import write_bytes_atomically
from channel_tools.system.schedulers import BuildResources

BUILDS_FILE = "builds.json"
_ERRORS = {
    name: kind for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, ChannelToolsError)
}


@dataclass(frozen=True, kw_only=True, slots=True)
class RemoteJob:
    """A BuildJob as plain text; ``waits_for`` are stems of jobs of the same file."""

    stem: str
    subdir: str
    recipe_folder: str
    waits_for: tuple[str, ...]
    resources: BuildResources = field(default_factory=BuildResources)
    work_name: str = ""

    @property
    def job(self) -> BuildJob:
        """What the build stage builds."""
        return BuildJob(
            file_name=f"{self.stem}.conda",
            subdir=self.subdir,
            recipe_folder=Path(self.recipe_folder),
            work_name=self.work_name,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class RemoteBuilds:
    """All that is to be built, and where everything is: absolute paths, the same on every machine.

    ``python`` runs the processes. ``tree``, ``output`` and ``cache`` are the places of the driver's settings.
    """

    python: str
    tree: str
    output: str
    cache: str
    work: str
    logs: str
    platform: str
    channels: tuple[str, ...]
    conda_build: str | None
    jobs: tuple[RemoteJob, ...]
    compiler_cache: CompilerCache | None = None
    from_failed: bool = False
    attest: dict[str, str] | None = None
    """Whether and with what packages are signed as they enter the channel; the workflow stage reads it."""

    @property
    def places(self) -> BuildPlaces:
        """Where the builds run."""
        return BuildPlaces(work=Path(self.work), logs=Path(self.logs), cache=Path(self.cache))

    def job(self, stem: str) -> BuildJob:
        """The job with this stem. Raises UsageError when there is none."""
        for job in self.jobs:
            if job.stem == stem:
                return job.job
        raise UsageError(f"{stem}: no such package in {BUILDS_FILE}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """An error, by the name of its class."""

    error: str
    message: str
    hint: str | None

    @classmethod
    def of(cls, error: ChannelToolsError) -> Failure:
        """The error as a value."""
        return cls(error=type(error).__name__, message=error.message, hint=error.hint)

    def as_error(self) -> ChannelToolsError:
        """The error again, of the same class."""
        return _ERRORS[self.error](self.message, hint=self.hint)


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """How a build or an admission ended: the package file, or why there is none.

    ``notes`` are what the admission had to say.
    """

    seconds: float
    package: str | None = None
    failure: Failure | None = None
    usage: BuildUsage | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Results:
    """The files of one package in ``results/``."""

    folder: Path
    stem: str

    @property
    def built(self) -> Path:
        """The build ended."""
        return self.folder / f"{self.stem}.built"

    @property
    def entered(self) -> Path:
        """The package is in the channel, taken in with another's; becomes ``admitted`` in its own step."""
        return self.folder / f"{self.stem}.entered"

    @property
    def admitted(self) -> Path:
        """The package is in the channel."""
        return self.folder / f"{self.stem}.admitted"

    @property
    def failed(self) -> Path:
        """The build failed, or the audit refused the package."""
        return self.folder / f"{self.stem}.failed"


def results_of(builds_file: Path, stem: str) -> Results:
    """Where the results of a package are."""
    return Results(folder=builds_file.parent / "results", stem=stem)


def write_builds(path: Path, builds: RemoteBuilds) -> None:
    """Write ``builds.json``."""
    write_bytes_atomically(path, msgspec.json.format(msgspec.json.encode(builds), indent=1))


def read_builds(path: Path) -> RemoteBuilds:
    """Read what write_builds wrote."""
    return msgspec.json.decode(path.read_bytes(), type=RemoteBuilds)


def write_outcome(path: Path, outcome: Outcome) -> None:
    """Write it whole, so that the file's being there says that it is complete."""
    path.parent.mkdir(exist_ok=True)
    write_bytes_atomically(path, msgspec.json.encode(outcome))


def read_outcome(path: Path) -> Outcome:
    """Read what write_outcome wrote."""
    return msgspec.json.decode(path.read_bytes(), type=Outcome)
