# SPDX-License-Identifier: BSD-3-Clause
"""What our server and its clients say to each other about sets, as JSON.

A set is opened by naming its files; its id follows from its content, so that whoever opens the same set again goes on
where an earlier attempt ended. Then the missing files are sent, one request each, and the set is committed: checked,
audited and shown to readers as a whole, in a step of its own that the client asks about until it is done.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeVar

import msgspec

from channel_tools import errors
from channel_tools.channel.model import Foundation  # noqa: TC001 - msgspec reads the annotations
from channel_tools.errors import ChannelToolsError

if TYPE_CHECKING:
    from channel_tools.publish.model import PackageSet

API = "/api/v1/channels"
WIRE_SCHEMA = 1

JobKind = Literal["publish", "promote", "yank"]
JobState = Literal["open", "waiting", "running", "done", "failed"]

_Message = TypeVar("_Message")


@dataclass(frozen=True, kw_only=True, slots=True)
class WireFile:
    """A PackageFile without its path."""

    subdir: str
    file_name: str
    sha256: str
    size_bytes: int
    foundation: bool

    @property
    def key(self) -> str:
        """``subdir/file name``."""
        return f"{self.subdir}/{self.file_name}"


@dataclass(frozen=True, kw_only=True, slots=True)
class SetRequest:
    """A set to be published under a label."""

    label: str
    name: str
    foundation: Foundation
    files: tuple[WireFile, ...]
    schema: int = WIRE_SCHEMA


@dataclass(frozen=True, kw_only=True, slots=True)
class PromoteRequest:
    """Packages of one label to be shown under another."""

    source: str
    label: str
    keys: tuple[str, ...]
    schema: int = WIRE_SCHEMA


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanAnswer:
    """What publishing a set would do, by ``subdir/file name``."""

    upload: tuple[str, ...]
    link: tuple[str, ...]
    present: tuple[str, ...]
    schema: int = WIRE_SCHEMA


@dataclass(frozen=True, kw_only=True, slots=True)
class ErrorAnswer:
    """An error of ours as the server tells it; ``kind`` is the name of its class."""

    kind: str
    message: str
    hint: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ReportAnswer:
    """What publishing or promoting did."""

    uploaded: tuple[str, ...]
    linked: tuple[str, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class JobAnswer:
    """A set, or another thing that the server was asked to do.

    ``missing`` are the files that still have to be sent, with the bytes of each that the server has already.
    """

    id: str
    kind: JobKind
    state: JobState
    label: str
    missing: dict[str, int] = field(default_factory=dict)
    report: ReportAnswer | None = None
    error: ErrorAnswer | None = None
    schema: int = WIRE_SCHEMA


@dataclass(frozen=True, kw_only=True, slots=True)
class Received:
    """How many bytes of a file the server has; all of them, checked, when ``complete``."""

    received: int
    complete: bool
    schema: int = WIRE_SCHEMA


def encode(message: object) -> bytes:
    """A message as JSON, always the same bytes for the same message."""
    return msgspec.json.encode(message, order="sorted")


def decode(content: bytes, kind: type[_Message]) -> _Message:
    """The message of this kind. Raises ValueError for anything else."""
    return msgspec.json.decode(content, type=kind)


def to_error_answer(error: ChannelToolsError) -> ErrorAnswer:
    """An error as it is told."""
    return ErrorAnswer(kind=type(error).__name__, message=str(error), hint=error.hint)


def from_error_answer(answer: ErrorAnswer) -> ChannelToolsError:
    """The error that was told, as the class it was; one of an unknown kind is a ChannelToolsError."""
    known = getattr(errors, answer.kind, None)
    if isinstance(known, type) and issubclass(known, ChannelToolsError):
        return known(answer.message, hint=answer.hint)
    return ChannelToolsError(answer.message, hint=answer.hint)


def set_request(packages: PackageSet, label: str) -> SetRequest:
    """The request that publishes a set under a label."""
    files = tuple(
        WireFile(
            subdir=file.subdir,
            file_name=file.file_name,
            sha256=file.sha256,
            size_bytes=file.size_bytes,
            foundation=file.foundation,
        )
        for file in sorted(packages.files)
    )
    return SetRequest(label=label, name=packages.name, foundation=packages.foundation, files=files)
