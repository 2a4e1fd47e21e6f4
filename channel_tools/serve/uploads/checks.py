# SPDX-License-Identifier: BSD-3-Clause
"""Checks: of a request before anything is written, and of a set's packages before they are published.

Each package is audited together with the others of its set and those of the channel. Unlike after a build, nothing in
it is changed: its bytes are those that the client announced. If the channel's foundation is at another address, its
packages cannot be read here, so the rules that need them are left to the audit after the build; the report says so.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from channel_tools.audit.dependencies import neighbours_of_records
from channel_tools.audit.model import Rule
from channel_tools.audit.reading import Reader
from channel_tools.audit.run import audit_packages, describe_findings
from channel_tools.channel.records import cached_package
from channel_tools.channel.state import read_listing, read_state
from channel_tools.conda.addresses import without_credentials
from channel_tools.conda.archive import read_info_files, read_info_json
from channel_tools.conda.package import (
    LIMIT_BYTES,
    PACKAGE_SUFFIX,
    PACKAGE_SUFFIXES,
    PackageKey,
    split_stem,
    stem_of,
    subdirs_of,
)
from channel_tools.publish.model import check_label
from channel_tools.publish.server.protocol import (
    PROTOCOL_SCHEMA,
    HotfixRequest,
    PromoteRequest,
    RetainRequest,
    SetRequest,
    YankRequest,
)
from channel_tools.serve.addresses import FILE_NAME, SUBDIR_NAME
from channel_tools.system.beneath import folder_of
from channel_tools.system.counting import counted
from channel_tools.system.document import decode_json
from channel_tools.system.errors import IntegrityError, UsageError, VerificationError
from channel_tools.system.progress import SilentProgress

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import Any

    from channel_tools.audit.dependencies import Neighbour
    from channel_tools.channel.model import Channel, Foundation
    from channel_tools.channel.records import CachedPackage
    from channel_tools.serve.uploads.store import JobRequest
    from channel_tools.system.beneath import Beneath

_SHA256 = re.compile(r"[0-9a-f]{64}")
_NAME_LIMIT = 200
_REASON_LIMIT = 1000
_ABOUT = "about.json"
_NEED_FOUNDATION = frozenset({Rule.NEEDED, Rule.LINK, Rule.LIBSTDCXX})
DIGEST_DIGITS = 7
"""How many digits of a plan's digest channel_tools.plan writes into a build string."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """The limits on uploads."""

    file_bytes: int = 16 << 30
    set_bytes: int = 64 << 30
    files: int = 20_000
    document_bytes: int = 8 << 20
    at_once: int = 32
    """How many files one process receives at the same time; others wait."""


def check_request(request: JobRequest, limits: Limits) -> None:
    """Raise UsageError for a request that is invalid or exceeds the limits.

    The patches of a hotfix are checked when they are read.
    """
    if request.schema != PROTOCOL_SCHEMA:
        message = f"the request has schema {request.schema}; this server supports schema {PROTOCOL_SCHEMA}"
        raise UsageError(message, hint="use the same version of channel_tools as the server")
    check_label(request.label)
    match request:
        case SetRequest():
            _check_set(request, limits)
        case PromoteRequest(source=source, keys=keys):
            check_label(source)
            _check_keys(keys, "packages were named for promotion", limits)
        case YankRequest(keys=keys, reason=reason):
            _check_keys(keys, "packages were named", limits)
            if reason is not None and len(reason) > _REASON_LIMIT:
                raise UsageError(
                    f"the reason has {counted(len(reason), 'character')}; expected at most {_REASON_LIMIT}"
                )
        case HotfixRequest(patches=patches):
            _check_keys([f"{subdir}/x{PACKAGE_SUFFIX}" for subdir in patches], "subdirs were named", limits)
        case RetainRequest(keep=keep, older_than_s=older_than_s, grace_s=grace_s):
            if keep < 1 or older_than_s < 0 or grace_s < 0:
                raise UsageError("the retention rule keeps less than one version of a package, or has a negative time")


def _check_set(request: SetRequest, limits: Limits) -> None:
    if len(request.name) > _NAME_LIMIT:
        raise UsageError(
            f"the set's name has {counted(len(request.name), 'character')}; expected at most {_NAME_LIMIT}"
        )
    if not request.files or len(request.files) > limits.files:
        raise UsageError(f"the set has {counted(len(request.files), 'file')}; expected 1 to {limits.files}")
    keys = set()
    for file in request.files:
        check_key(str(file.key))
        if not _SHA256.fullmatch(file.sha256):
            raise UsageError(
                f"{file.key}: {file.sha256!r} is not a valid sha256; expected 64 lower-case hexadecimal digits"
            )
        if not 0 < file.size_bytes <= limits.file_bytes:
            raise UsageError(
                f"{file.key}: {file.size_bytes} bytes; this server accepts 1 to {limits.file_bytes} bytes per file"
            )
        if file.key in keys:
            raise UsageError(f"{file.key} is in the set twice")
        keys.add(file.key)
    if unknown := set(request.upload or ()) - set(map(str, keys)):
        raise UsageError(f"{min(unknown)} is to be uploaded, and is not in the set")
    _check_attestations(request, keys)
    if others := set(request.patches) - {key.subdir for key in keys}:
        raise UsageError(f"the set has patches of {min(others)!r}, but no packages for it")
    if (total := sum(file.size_bytes for file in request.files)) > limits.set_bytes:
        raise UsageError(f"the set has {total} bytes; this server accepts at most {limits.set_bytes}")


def _check_attestations(request: SetRequest, keys: Collection[PackageKey]) -> None:
    """Raise UsageError for attestations that clients cannot read; whose signatures to trust is up to clients."""
    for name, content in request.attestations.items():
        if name not in {str(key) for key in keys}:
            raise UsageError(f"the set has attestations of {name!r}, but not the package")
        try:
            bundles = decode_json(content, list[dict[str, object]])
        except msgspec.DecodeError as err:
            raise UsageError(f"the attestations of {name} are not a JSON list of bundles: {err}") from None
        if not bundles or len(content.encode()) > LIMIT_BYTES:
            raise UsageError(f"the attestations of {name} are an empty list, or too large for clients to read")


def _check_keys(keys: Sequence[str], noun: str, limits: Limits) -> None:
    if not keys or len(keys) > limits.files:
        raise UsageError(f"{len(keys)} {noun}; expected 1 to {limits.files}")
    for key in keys:
        check_key(key)


def check_key(key: str) -> None:
    """Raise UsageError unless it is ``subdir/name.conda`` or ``subdir/name.tar.bz2``."""
    subdir, _slash, name = key.partition("/")
    if SUBDIR_NAME.fullmatch(subdir) and FILE_NAME.fullmatch(name) and name.endswith(PACKAGE_SUFFIXES):
        return
    raise UsageError(
        f"{key!r} is not a valid package file name", hint=f"expected SUBDIR/NAME-VERSION-BUILD{PACKAGE_SUFFIX}"
    )


def check_digests(files: Sequence[Path], *, within: Path | None = None) -> None:
    """Raise IntegrityError for a package whose metadata has a plan's digest that is not in its build string.

    The digest decides whether a plan builds a package again, so with a wrong one it would pass for another package.
    ``within`` is as for audit_uploaded.
    """
    for path in files:
        digest = _digest_in(path, folder_of(path, within))
        build = split_stem(stem_of(path.name))[2]
        if digest is not None and f"h{digest[:DIGEST_DIGITS]}" not in build:
            message = f"{path}: its metadata names the digest {digest[:64]}, which is not in its build string {build}"
            raise IntegrityError(message, hint="build it with channel_tools build, which writes both")


def _digest_in(path: Path, folder: Beneath | None) -> str | None:
    """The plan's digest in a package's metadata, None if it was not built from a plan."""
    if not read_info_files(path, frozenset({_ABOUT}), folder=folder):
        return None
    match read_info_json(path, _ABOUT, folder=folder):
        case {"extra": {"channel_tools": {"digest": str(digest)}}}:
            return digest
    return None


@dataclass(frozen=True, kw_only=True, slots=True)
class UploadAudit:
    """The result of a passed audit: notes for the report, and the index rows that were read from the packages."""

    notes: tuple[str, ...]
    rows: Mapping[str, CachedPackage]


def audit_uploaded(
    files: Sequence[Path],
    foundation: Foundation,
    channels: Sequence[Channel],
    *,
    within: Path | None = None,
    corrections: Mapping[Path, Mapping[str, object]] | None = None,
) -> UploadAudit:
    """Audit package files together with those of ``channels``; each file is read completely, once.

    Others can write in ``within``, where the files are then. ``corrections`` are as for audit_packages. Raises
    VerificationError with the findings; IntegrityError if one of the files is not a complete, safe package.
    """
    own = {str(PackageKey.of(path)) for path in files}
    neighbours: list[Neighbour] = []
    for channel in channels:
        beside = (row for row in _records(channel) if str(PackageKey.of(row[0])) not in own)
        neighbours += neighbours_of_records(beside, within=channel.within or channel.path)
    audits = audit_packages(
        files,
        neighbours,
        Reader(),
        jobs=None,
        progress=SilentProgress(),
        to_enter=True,
        within=within,
        corrections=corrections,
    )
    elsewhere = ", ".join(map(without_credentials, foundation.addresses))
    barring = [finding for audit in audits for finding in audit.barring]
    findings = [finding for finding in barring if not (elsewhere and finding.rule in _NEED_FOUNDATION)]
    if findings:
        message = f"audit findings: {len(findings)}; the set was not published\n"
        hint = "fix the recipe as described above, build again and publish the new build; channel_tools audit shows all"
        error = IntegrityError if any(audit.info is None for audit in audits) else VerificationError
        raise error(message + describe_findings(findings), hint=hint)
    infos = {str(PackageKey(audit.subdir, audit.package)): audit.info for audit in audits}
    rows = {
        str(key): cached_package(path, info, indexed_ms=0, folder=folder_of(path, within))
        for path in files
        if (info := infos[str(key := PackageKey.of(path))]) is not None
    }
    advice = tuple(str(finding) for audit in audits for finding in audit.findings if finding not in audit.barring)
    if not elsewhere or not files:
        return UploadAudit(notes=advice, rows=rows)
    rules = ", ".join(sorted(rule.value for rule in _NEED_FOUNDATION))
    note = f"they also need packages of {elsewhere}, at another address, so these rules were not applied: {rules}"
    return UploadAudit(notes=(*advice, note), rows=rows)


def _records(channel: Channel) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """The package files in the channel's latest index, with their records."""
    incoming = set(read_listing(channel).incoming)
    for subdir in subdirs_of(channel.files):
        for name, row in sorted(read_state(channel, subdir).records.packages.items()):
            if f"{subdir}/{name}" not in incoming:
                yield channel.path / subdir / name, row.record
