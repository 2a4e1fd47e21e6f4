# SPDX-License-Identifier: BSD-3-Clause
"""The outcomes of builds of a channel, kept beside its records: for pages, and for ``publish``.

Each is one small file that is replaced atomically, so no lock is needed.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, TypeVar

import msgspec

from channel_tools.channel.model import RECORD_FOLDER
from channel_tools.system.beneath import Beneath
from channel_tools.system.document import decode_json
from channel_tools.system.errors import ChannelError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from pathlib import Path

_FOLDER = f"{RECORD_FOLDER}/results"
_RECORD_BYTES = 1 << 20
_Record = TypeVar("_Record")


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildRecord:
    """The build of a package in the channel, which has passed its tests and the audit."""

    file_name: str
    finished: str
    """UTC, ISO 8601."""
    seconds: float | None
    """The duration; None in records of earlier versions that did not know it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StackRecord:
    """The packages (``subdir/file name``) that the last build of a request named; all were in the channel then.

    ``options`` are those of ``build`` that ask for them.
    """

    options: tuple[str, ...]
    keys: tuple[str, ...]
    finished: str
    """UTC, ISO 8601."""


def record_build(channel: Path, record: BuildRecord) -> None:
    """Record a build, replacing an earlier one of the same package."""
    _write(channel, f"build-{record.file_name.removesuffix('.conda')}", record)


def record_stack(channel: Path, record: StackRecord) -> None:
    """Record what the build of a request named, replacing that of an earlier one."""
    _write(channel, _stack_name(record.options), record)


def read_stack(channel: Path, options: tuple[str, ...]) -> StackRecord | None:
    """What the last build with these options named; None if none is recorded."""
    names = [f"{_stack_name(options)}.json"]
    return next((record for record in _read(channel, names, StackRecord) if record.options == options), None)


def _stack_name(options: tuple[str, ...]) -> str:
    return f"stack-{hashlib.sha256(json.dumps(options).encode()).hexdigest()}"


def read_builds(channel: Path) -> dict[str, BuildRecord]:
    """Every recorded build, by file name."""
    names = Beneath(root=channel).names(_FOLDER)
    builds = [name for name in names if name.startswith("build-") and name.endswith(".json")]
    return {record.file_name: record for record in _read(channel, builds, BuildRecord)}


def last_built(records: Collection[BuildRecord]) -> tuple[str, float | None]:
    """The day (UTC, ISO 8601) on which the last of some packages was built, and the total seconds, if known."""
    seconds = [record.seconds for record in records if record.seconds is not None]
    return max(record.finished for record in records)[:10], sum(seconds) if len(seconds) == len(records) else None


def _write(channel: Path, name: str, record: BuildRecord | StackRecord) -> None:
    content = json.dumps({"schema": 1, **asdict(record)}, indent=1) + "\n"
    Beneath(root=channel).write(f"{_FOLDER}/{name}.json", content.encode())


def _read(channel: Path, names: Iterable[str], model: type[_Record]) -> Iterator[_Record]:
    files = Beneath(root=channel).at(_FOLDER)
    for name in names:
        try:
            yield decode_json(files.read(name, limit_bytes=_RECORD_BYTES), model)
        except FileNotFoundError:  # it was never recorded, or has been deleted meanwhile
            continue
        except msgspec.DecodeError as err:
            message = f"{files.path / name}: not the record of a {name.partition('-')[0]} ({err})"
            raise ChannelError(message, hint="delete it; the next build records it again") from None
