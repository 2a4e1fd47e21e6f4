# SPDX-License-Identifier: BSD-3-Clause
"""The error for a failed build: the cause in one line, the first error in its log, the log's path, the next step."""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING

from channel_tools.conda.package import PackageKey
from channel_tools.system.errors import (
    BuildError,
    ChannelToolsError,
    ConfigError,
    DiskFullError,
    IntegrityError,
    NetworkError,
    SolveError,
)
from channel_tools.system.files import read_tail

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from channel_tools.build.model import BuildJob, BuildResult, FailureKind, WorkerResult

_TAIL_LINES = 20
_LINES_BEFORE, _LINES_AFTER, _LAST_LINES = 2, 7, 4
_FIRST_ERRORS = re.compile(
    r"""^[\s│]*(?:
        \S[^:]*:\d+(?::\d+)?:\ (?:fatal\ )?error:\     # compilers
        | .*:\ undefined\ reference\ to\ | .*\bld(?:\.\w+)?:\ cannot\ find\     # linkers
        | CMake\ Error | configure:\ error:\ | .*:\ ERROR:\     # configuring; meson
        | error(?:\[E\d+\])?:\ (?!Script\ failed)     # cargo; not the engine, which only says that something failed
        | ERROR:\ (?!pip's\ dependency)     # pip, which warns in this form, too
        | (?:\w+\.)*[A-Z]\w*(?:Error|Exception):\     # Python
        | .*:\ (?:line\ )?\d+:\ .*:\ (?:command\ not\ found|No\ such\ file\ or\ directory)$     # shells
    )""",
    re.VERBOSE,
)
"""Lines with which a tool says what is wrong; those that follow are often its callers' (``make: ***``, pip's)."""
_DISK_FULL_WORDS = ("No space left on device", "Disk quota exceeded")
_SPECS, _SOLVED = "\n  Specs:", "┆ Version ┆"
"""What the engine logs about an environment: before the requirements, and the head of the table of the solution."""
_ROOM_BYTES = 256 << 20
"""If less than this is free, lack of space is the reason why an environment could not be unpacked."""
_ENGINE_ADVICE = "Script execution failed."

_KINDS: tuple[tuple[str, FailureKind], ...] = (
    *((words, "disk") for words in _DISK_FULL_WORDS),
    ("Test failed", "test"),
    ("Package tests failed", "test"),
    ("Script failed", "script"),
    ("Failed to resolve dependencies", "solve"),
    ("checksum validation failed", "source"),
    ("Failed to download from URL", "network"),
)

_CAUSES: dict[FailureKind, tuple[type[ChannelToolsError], str, str]] = {
    "script": (
        BuildError,
        "the build script failed",
        "examine it with channel_tools debug PACKAGE, fix the recipe or its source, then run the same command again",
    ),
    "test": (BuildError, "it was built, but the recipe's test failed", "the package was not added to the channel"),
    "solve": (SolveError, "its environments cannot be solved", "channel_tools plan --why shows what the channel lacks"),
    "install": (BuildError, "its environments were solved, but cannot be installed", "the log says what was installed"),
    "recipe": (ConfigError, "the engine rejects the rendered recipe", "channel_tools render writes the same recipe"),
    "source": (
        IntegrityError,
        "a source does not have the sha256 that the recipe states",
        "compare it by hand: a new release needs a new sha256 in the recipe, a wrong mirror needs another url",
    ),
    "network": (
        NetworkError,
        "a source cannot be downloaded",
        "check whether the address in the recipe can be reached, then run the same command again",
    ),
    "disk": (
        DiskFullError,
        "no space is left on the device",
        "free space or choose another folder with --output, then run the same command again: finished work is kept",
    ),
    "file": (
        BuildError,
        "one of its files cannot be packed",
        "remove or rename the file at the end of the build script, then run the same command again",
    ),
    "killed": (
        BuildError,
        "it was killed",
        "if memory ran out: build one package at a time with --jobs 1; a --compiler-cache keeps what is compiled",
    ),
    "other": (BuildError, "the build engine failed", "the log says what it was doing"),
}


def kind_of(message: str) -> FailureKind:
    """The kind of failure that a message of the engine means; its exceptions have only their text."""
    return next((kind for words, kind in _KINDS if words in message), "other")


def failure_of(
    job: BuildJob, result: WorkerResult, log: Path, *, seconds: float, written: Sequence[Path] = ()
) -> ChannelToolsError:
    """The error for a build without a package, by the kind of failure; ``written`` are folders that it wrote to.

    The engine has the same message for environments that cannot be solved and for those that cannot be installed, and
    removes what it had unpacked when a disk is full. If an environment was solved, the free space tells the cause.
    """
    tail = log_tail(log)
    kind: FailureKind = "disk" if any(words in tail for words in _DISK_FULL_WORDS) else result.failure or "other"
    if kind == "solve" and _SOLVED in read_tail(log).rpartition(_SPECS)[2]:
        free_bytes = min(shutil.disk_usage(folder).free for folder in (log.parent, *written))
        kind = "disk" if free_bytes < _ROOM_BYTES else "install"
    error, cause, hint = _CAUSES[kind]
    if kind == "script":
        tail = first_error(read_tail(log).rpartition(_SOLVED)[2]) or tail
    detail = "" if kind in {"script", "test", "disk"} else f" ({' '.join(result.message.split())})"
    return error(f"{job.stem}: {cause}{detail} after {seconds:.1f} s\n{tail}\nlog: {log}", hint=result.hint or hint)


def not_the_expected(job: BuildJob, packages: Sequence[Path], log: Path) -> BuildError:
    """The error for a build that made a different package from the one that the plan expects."""
    keys = ", ".join(str(PackageKey.of(package)) for package in packages) or "no package"
    message = f"{job.stem}: the build made {keys}; expected {job.subdir}/{job.file_name}\nlog: {log}"
    return BuildError(message, hint="render the recipe again: its build string or version differs from the plan's")


def lost_error(error: ChannelToolsError, written: Sequence[Path]) -> ChannelToolsError:
    """``error``, of a build that ended without a message, or DiskFullError if a disk that it wrote to is full."""
    free = {folder: shutil.disk_usage(folder).free for folder in written if folder.is_dir()}
    full = min(free, key=lambda folder: free[folder], default=None)
    if full is None or free[full] >= _ROOM_BYTES:
        return error
    _, cause, hint = _CAUSES["disk"]
    return DiskFullError(f"{error.message}\n{cause}: {full} ({free[full] >> 20} MiB free)", hint=hint)


def log_tail(log: Path) -> str:
    """The last lines of a log, indented, without the engine's advice on how to run the script by hand."""
    return indented_tail(read_tail(log))


def first_error(text: str) -> str:
    """The first error in a log with a few lines around it, and the log's last lines, indented; "" if none is known."""
    lines = _without_advice(text)
    number = next((number for number, line in enumerate(lines) if _FIRST_ERRORS.match(line)), None)
    if number is None:
        return ""
    end = number + 1 + _LINES_AFTER
    shown = lines[max(0, number - _LINES_BEFORE) : end]
    last = lines[max(end, len(lines) - _LAST_LINES) :]
    skipped = ["..."] if end + len(last) < len(lines) else []
    return "\n".join(f"    {line}" for line in (*shown, *skipped, *last))


def indented_tail(text: str) -> str:
    """The last lines of a text, indented, without the engine's advice."""
    return "\n".join(f"    {line}" for line in _without_advice(text)[-_TAIL_LINES:])


def _without_advice(text: str) -> list[str]:
    """The lines that are not blank, up to the engine's advice."""
    lines = text.splitlines()
    advice = next((number for number, line in enumerate(lines) if _ENGINE_ADVICE in line), None)
    return [line for line in lines[:advice] if line.strip()]


def raise_failures(results: Sequence[BuildResult]) -> None:
    """Raise one error for all builds that failed, of the class of the first; does nothing if none did."""
    failed = [result.error for result in results if result.error is not None]
    if not failed:
        return
    held_back = [result.job.stem for result in results if result.status == "not_started"]
    message = "\n".join(error.message for error in failed)
    if held_back:
        message += f"\nnot built because of that: {', '.join(held_back)}"
    raise type(failed[0])(message, hint=failed[0].hint) from failed[0]
