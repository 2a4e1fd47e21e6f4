# SPDX-License-Identifier: BSD-3-Clause
"""The values of the build stage, and the JSON in which processes pass them on, also to other machines."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from pathlib import Path  # noqa: TC003 - msgspec looks for it here
from typing import TYPE_CHECKING, Literal, TypeVar

import msgspec

from channel_tools.build.compiler_cache import CompilerCache  # noqa: TC001 - msgspec looks for it here
from channel_tools.system.document import decode_json
from channel_tools.system.schedulers import BuildResources

if TYPE_CHECKING:
    from collections.abc import Mapping

    from channel_tools.system.errors import ChannelToolsError

FailureKind = Literal[
    "script", "test", "solve", "install", "recipe", "source", "network", "disk", "file", "killed", "other"
]
Status = Literal["built", "failed", "not_started"]

RECIPE_FILE = "recipe.yaml"
VARIANTS_FILE = "variants.yaml"
SPEC_FILE = "spec.json"
"""In a build's folder: its WorkerSpec, which also marks the folder as a build's."""
FINISHED = "finished.json"
"""In the folder of a successful build on a cluster, until its package is in the channel: its Outcome."""
_MAX_FOLDER_NAME = 64
_FOLDER_DIGITS = 12
_Value = TypeVar("_Value")


def encode(value: object) -> bytes:
    """Encode values of this module as JSON, with paths as strings."""
    return msgspec.json.encode(value, enc_hook=os.fspath)


def decode(content: bytes, kind: type[_Value]) -> _Value:
    """Decode what ``encode`` wrote. Raises msgspec.DecodeError for anything else."""
    return decode_json(content, kind, _as_path)


def _as_path(kind: type[Path], text: str) -> Path:
    return kind(text)


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildJob:
    """One package to build.

    ``recipe_folder`` is self-contained: recipe.yaml, its files and variants.yaml with the one variant. ``file_name``
    and ``subdir`` are those of the package that the build must make. ``waits_for`` are file names of packages that must
    be in the channel first; those that are not among the jobs count as being there. ``resources`` are requested from a
    scheduler, ``expected_s`` is how long the build took before, None if not known. ``work_name`` is the same for all
    builds of a package, version and variant, so that files that a changed recipe does not affect keep their paths.
    """

    file_name: str
    subdir: str
    recipe_folder: Path
    waits_for: tuple[str, ...] = ()
    error_prefix_in_binary: bool = True
    resources: BuildResources = field(default_factory=BuildResources)
    expected_s: float | None = None
    work_name: str = ""
    views: tuple[Path, ...] = ()
    """Channels with the locked packages of its environments, one in place of each but the first that it solves from."""

    @property
    def stem(self) -> str:
        """``name-version-build``, which names the log."""
        return self.file_name.removesuffix(".conda")

    @property
    def folder_name(self) -> str:
        """The name of the folder it is built in: ``work_name`` or else ``stem``, cut short where paths get too long."""
        name = self.work_name or self.stem
        if len(name) <= _MAX_FOLDER_NAME:
            return name
        digits = hashlib.sha256(name.encode()).hexdigest()[:_FOLDER_DIGITS]
        return f"{name[: _MAX_FOLDER_NAME - _FOLDER_DIGITS - 1]}-{digits}"


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildUsage:
    """What a build used: wall and processor seconds, peak memory, and the cores that it was given."""

    seconds: float
    cpu_s: float
    memory_bytes: int
    cores: int


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildPlaces:
    """The folders of builds, of their logs, and of the engine's cache of unpacked packages."""

    work: Path
    logs: Path
    cache: Path


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildOptions:
    """How packages are built: for which platform, and at most ``max_jobs`` at once, which share ``cores``.

    Without a ``compiler_cache``, everything is compiled. Workers get the part of ``environ`` that child_environment
    selects.
    """

    platform: str
    max_jobs: int
    cores: int
    environ: Mapping[str, str]
    compiler_cache: CompilerCache | None = None
    tests: bool = True
    """Whether the engine runs the recipe's tests on the package."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerSpec:
    """What one worker process builds."""

    recipe_folder: Path
    output: Path
    result_file: Path
    channels: tuple[str, ...]
    """The channels that the engine solves from."""
    platform: str
    error_prefix_in_binary: bool
    compression_threads: int
    compiler_cache: CompilerCache | None = None
    tests: bool = True
    recorded_channels: tuple[str, ...] = ()
    """The channels that the package names in place of ``channels``, if these are not the same."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerResult:
    """The result of a worker: the package files made, or the kind of failure and the engine's message.

    ``hint`` says what to do about the message, "" if the kind of failure decides that; ``notes`` are what a user should
    know about a package that was made.
    """

    packages: tuple[Path, ...] = ()
    failure: FailureKind | None = None
    message: str = ""
    hint: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildResult:
    """The outcome of one job. ``package`` is the file in the channel; ``error`` says what went wrong.

    ``notes`` are messages from the build and the admission of a package that was built elsewhere.
    """

    job: BuildJob
    status: Status
    log: Path | None = None
    package: Path | None = None
    seconds: float = 0.0
    error: ChannelToolsError | None = None
    usage: BuildUsage | None = None
    notes: tuple[str, ...] = ()
