# SPDX-License-Identifier: BSD-3-Clause
"""The outcomes of builds and validations of a channel, kept beside its records, for the table of benchmarks/matrix.py.

Each is one small file that is replaced atomically, so no lock is needed; no decision depends on them.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, TypeVar

from channel_tools.channel.model import RECORD_FOLDER
from channel_tools.system.document import decode_json
from channel_tools.system.files import write_text_atomically

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

_FOLDER = "results"
_Record = TypeVar("_Record")


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildRecord:
    """The build of a package in the channel, which has passed its tests and the audit."""

    file_name: str
    finished: str
    """UTC, ISO 8601."""
    seconds: float | None
    """The duration; None if not known, since the build continued an earlier one that had failed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ValidationRecord:
    """The last validation of a stack from the channel, on one Python and PyTorch."""

    stack: str
    python: str
    pytorch: str
    """The installed versions; empty if the stack has none."""
    passed: bool
    ranks: int
    started: str
    """UTC, ISO 8601."""
    seconds: float


def record_build(channel: Path, record: BuildRecord) -> None:
    """Record a build, replacing an earlier one of the same package."""
    _write(channel, f"build-{record.file_name.removesuffix('.conda')}", record)


def record_validation(channel: Path, record: ValidationRecord) -> None:
    """Record the outcome of a validation, replacing an earlier one of the same stack, Python and PyTorch."""
    _write(channel, f"validation-{record.stack}-{record.python}-{record.pytorch}", record)


def read_builds(channel: Path) -> dict[str, BuildRecord]:
    """Every recorded build, by file name."""
    return {record.file_name: record for record in _read(channel, "build", BuildRecord)}


def last_built(records: Collection[BuildRecord]) -> tuple[str, float | None]:
    """The day (UTC, ISO 8601) on which the last of some packages was built, and the total seconds, if known."""
    seconds = [record.seconds for record in records if record.seconds is not None]
    return max(record.finished for record in records)[:10], sum(seconds) if len(seconds) == len(records) else None


def read_validations(channel: Path) -> list[ValidationRecord]:
    """The last validation of each stack, Python and PyTorch."""
    return list(_read(channel, "validation", ValidationRecord))


def _write(channel: Path, name: str, record: BuildRecord | ValidationRecord) -> None:
    folder = channel / RECORD_FOLDER / _FOLDER
    folder.mkdir(exist_ok=True)
    write_text_atomically(folder / f"{name}.json", json.dumps({"schema": 1, **asdict(record)}, indent=1) + "\n")


def _read(channel: Path, kind: str, model: type[_Record]) -> Iterator[_Record]:
    for path in sorted((channel / RECORD_FOLDER / _FOLDER).glob(f"{kind}-*.json")):
        yield decode_json(path.read_bytes(), model)
