# SPDX-License-Identifier: BSD-3-Clause
"""The protocol between a channel_tools server and its clients, as JSON.

A set is opened by naming its files; its id is derived from its content, so a client that opens the same set again
continues where an earlier attempt ended. Then the missing files are sent, one request each, and the set is committed:
checked, audited and published as a whole, in a separate job that the client polls until it is done.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import msgspec

from channel_tools.channel.listing import INSTRUCTIONS_VERSION
from channel_tools.channel.model import Foundation  # noqa: TC001 - msgspec reads the annotations
from channel_tools.conda.package import PackageRef, by_format, read_sidecar, sidecar_of
from channel_tools.publish.model import Comparison, LabelPackage
from channel_tools.system import errors
from channel_tools.system.errors import ChannelToolsError, IntegrityError

if TYPE_CHECKING:
    from pathlib import Path

    from channel_tools.channel.listing import Patch
    from channel_tools.publish.model import PackageSet

API = "/api/v1/channels"
PROTOCOL_SCHEMA = 1

JobKind = Literal["publish", "promote", "yank", "hotfix", "retain"]
JobState = Literal["open", "waiting", "running", "done", "failed"]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Versioned:
    schema: int = PROTOCOL_SCHEMA


@dataclass(frozen=True, kw_only=True, slots=True)
class _LabelRequest(_Versioned):
    label: str


@dataclass(frozen=True, kw_only=True, slots=True)
class SetRequest(_LabelRequest):
    """A set to be published under a label."""

    name: str
    foundation: Foundation
    files: tuple[PackageRef, ...]
    attestations: dict[str, str] = field(default_factory=dict)
    """The packages' attestations by ``subdir/file name``: a JSON list of bundles, as text."""
    patches: dict[str, dict[str, object]] = field(default_factory=dict)
    """What the packages' channel lists otherwise than they say themselves, as in a HotfixRequest."""
    upload: tuple[str, ...] | None = None
    """The files to be uploaded, as a plan of the set said (None: not known). The id of a set does not depend on it."""

    @property
    def expected(self) -> tuple[PackageRef, ...]:
        """The files to be uploaded; all if it is not known."""
        names = None if self.upload is None else frozenset(self.upload)
        return tuple(file for file in self.files if names is None or str(file.key) in names)


@dataclass(frozen=True, kw_only=True, slots=True)
class PromoteRequest(_LabelRequest):
    """Packages of one label to be added to another."""

    source: str
    keys: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class YankRequest(_LabelRequest):
    """Packages to be yanked for ``reason``; None undoes that."""

    keys: tuple[str, ...]
    reason: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class HotfixRequest(_LabelRequest):
    """Patches of records by subdir, each in the form of patch_instructions.json."""

    patches: dict[str, dict[str, object]]
    replace: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class RetainRequest(_LabelRequest):
    """A Retention, and whether to report only what it would do."""

    keep: int
    older_than_s: float
    locked_files: tuple[str, ...]
    locked_hashes: tuple[str, ...]
    grace_s: float
    dry_run: bool
    removed: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanResponse(Comparison):
    """A set as the server has compared it with a label."""

    schema: int = PROTOCOL_SCHEMA


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelsResponse(_Versioned):
    """The labels of a channel that the token may write to."""

    labels: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class PackagesResponse(_Versioned):
    """All packages of a label."""

    packages: tuple[LabelPackage, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class ErrorResponse:
    """A ChannelToolsError as the server reports it; ``kind`` is the name of its class."""

    kind: str
    message: str
    hint: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ReportResponse:
    """What a job did, by ``subdir/file name``; which fields are used depends on the kind of the job."""

    uploaded: tuple[str, ...] = ()
    linked: tuple[str, ...] = ()
    retired: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    kept: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class JobResponse(_Versioned):
    """The state of a set, or of another job of the server.

    ``missing`` are the files that still have to be sent, each with the number of bytes that the server already has.
    ``run`` is the number of the run that the state is of: all who ask for the same share a job, and each waits for the
    run that it started or joined.
    """

    id: str
    kind: JobKind
    state: JobState
    label: str
    missing: dict[str, int] = field(default_factory=dict)
    report: ReportResponse | None = None
    error: ErrorResponse | None = None
    run: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class ReceivedBytes(_Versioned):
    """How many bytes of a file the server has; all of them, checked, if ``complete``."""

    received: int
    complete: bool


def encode(message: object) -> bytes:
    """A message as JSON, always the same bytes for the same message."""
    return msgspec.json.encode(message, order="sorted")


def from_error_response(response: ErrorResponse) -> ChannelToolsError:
    """The reported error as its own class; one of an unknown kind is a ChannelToolsError."""
    known = getattr(errors, response.kind, None)
    if isinstance(known, type) and issubclass(known, ChannelToolsError):
        return known(response.message, hint=response.hint)
    return ChannelToolsError(response.message, hint=response.hint)


def set_request(packages: PackageSet, label: str, *, attested: bool = False) -> SetRequest:
    """The request that publishes a set under a label; with ``attested``, it includes its packages' attestations."""
    files = tuple(file.ref() for file in sorted(packages.files))
    sidecars = {str(file.key): sidecar_of(file.path) for file in packages.files} if attested else {}
    return SetRequest(
        label=label,
        name=packages.name,
        foundation=packages.foundation,
        files=files,
        attestations={key: _sidecar_text(path) for key, path in sidecars.items() if path.is_file()},
        patches={subdir: instructions_of(patch) for subdir, patch in sorted(packages.patches.items())},
    )


def _sidecar_text(path: Path) -> str:
    """The attestations in a file. Raises IntegrityError as read_sidecar does, and if it is not text."""
    try:
        return read_sidecar(path).decode()
    except UnicodeDecodeError as err:
        hint = "attest the package again, or delete the file"
        raise IntegrityError(f"{path}: not a file of attestations: {err}", hint=hint) from None


def instructions_of(patch: Patch) -> dict[str, object]:
    """A patch in the form of patch_instructions.json."""
    conda, old = by_format(patch.records)
    return {
        "patch_instructions_version": INSTRUCTIONS_VERSION,
        "packages": old,
        "packages.conda": conda,
        "remove": list(patch.remove),
        "revoke": list(patch.revoke),
    }
