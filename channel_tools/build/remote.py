# SPDX-License-Identifier: BSD-3-Clause
"""Files in a shared folder by which a driver and build processes on other machines communicate.

``builds.json`` says what is built. ``results/`` has for each package: ``.built`` (the build ended, or failed),
``.admitted`` (the package is in the channel), ``.failed`` (why it is not there). Every file is written atomically.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path  # noqa: TC003 - msgspec looks for it here

import msgspec

from channel_tools.build.compiler_cache import CompilerCache  # noqa: TC001 - msgspec looks for it here
from channel_tools.build.model import BuildJob, BuildPlaces, BuildUsage, decode, encode
from channel_tools.system import errors
from channel_tools.system.errors import ChannelToolsError, UsageError
from channel_tools.system.files import write_bytes_atomically

BUILDS_FILE = "builds.json"
_ERRORS = {
    name: kind for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, ChannelToolsError)
}


@dataclass(frozen=True, kw_only=True, slots=True)
class RemoteBuilds:
    """Everything that is to be built, and all paths: absolute, and the same on every machine.

    ``python`` runs the processes. ``tree`` and ``output`` are those of the driver's settings.
    """

    python: str
    tree: Path
    output: Path
    places: BuildPlaces
    platform: str
    channels: tuple[str, ...]
    jobs: tuple[BuildJob, ...]
    compiler_cache: CompilerCache | None = None
    attest: dict[str, str] | None = None
    """Whether and with which key packages are signed when added to the channel; the workflow stage reads it."""

    def job(self, stem: str) -> BuildJob:
        """The job with this stem. Raises UsageError if there is none."""
        for job in self.jobs:
            if job.stem == stem:
                return job
        raise UsageError(f"{stem}: no such package in {BUILDS_FILE}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """An error as a value, with the name of its class."""

    error: str
    message: str
    hint: str | None

    @classmethod
    def of(cls, error: ChannelToolsError) -> Failure:
        """The value for an error."""
        return cls(error=type(error).__name__, message=error.message, hint=error.hint)

    def as_error(self) -> ChannelToolsError:
        """The error again, of the same class."""
        return _ERRORS[self.error](self.message, hint=self.hint)


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """How a build or an admission ended: the package file, or why there is none.

    ``notes`` are the messages of the build or the admission.
    """

    seconds: float
    package: Path | None = None
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
        """This file exists if the build has ended."""
        return self.folder / f"{self.stem}.built"

    @property
    def admitted(self) -> Path:
        """This file exists if the package is in the channel."""
        return self.folder / f"{self.stem}.admitted"

    @property
    def failed(self) -> Path:
        """This file exists if the build failed or the audit rejected the package."""
        return self.folder / f"{self.stem}.failed"


def results_of(builds_file: Path, stem: str) -> Results:
    """The paths of a package's results."""
    return Results(folder=builds_file.parent / "results", stem=stem)


def write_builds(path: Path, builds: RemoteBuilds) -> None:
    """Write ``builds.json``."""
    write_bytes_atomically(path, msgspec.json.format(encode(builds), indent=1))


def read_builds(path: Path) -> RemoteBuilds:
    """Read what write_builds wrote."""
    return decode(path.read_bytes(), RemoteBuilds)


def write_outcome(path: Path, outcome: Outcome) -> None:
    """Write an outcome atomically: if the file exists, it is complete."""
    path.parent.mkdir(exist_ok=True)
    write_bytes_atomically(path, encode(outcome))


def read_outcome(path: Path) -> Outcome:
    """Read what write_outcome wrote."""
    return decode(path.read_bytes(), Outcome)
