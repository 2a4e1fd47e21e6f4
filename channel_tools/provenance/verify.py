# SPDX-License-Identifier: BSD-3-Clause
"""Checks packages against their attestations: files, or packages about to be installed."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from channel_tools.conda.addresses import channel_address, local_path, scheme_of, without_credentials
from channel_tools.conda.clients import make_http_client
from channel_tools.conda.index import read_index
from channel_tools.conda.package import (
    LIMIT_BYTES,
    NOARCH,
    OLD_SUFFIX,
    PACKAGE_SUFFIX,
    SUFFIX,
    PackageKey,
    read_sidecar,
    sidecar_name,
    sidecar_of,
    split_package_address,
    subdir_beneath,
    subdirs_of,
)
from channel_tools.conda.platforms import current_platform
from channel_tools.provenance.statements import Subject
from channel_tools.system.beneath import Beneath, opened_in
from channel_tools.system.counting import counted
from channel_tools.system.errors import ChannelToolsError, IntegrityError, UsageError, VerificationError
from channel_tools.system.http.client import MissingError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from rattler import RepoDataRecord

    from channel_tools.provenance.attestations import Verified
    from channel_tools.provenance.trust import Trust
    from channel_tools.system.http.client import HttpClient

UNATTESTED_HINT = "ask those who build it for an attestation (channel_tools attest sign)"


@dataclass(frozen=True, kw_only=True, slots=True)
class PackageVerification:
    """The result for one package: who signed it, or what is wrong."""

    package: str
    verified: Verified | None = None
    error: ChannelToolsError | None = None


def verify_target(target: str, trust: Trust, environ: Mapping[str, str]) -> list[PackageVerification]:
    """Check the packages at an address or in a folder. Raises as verify_address and verify_folder do."""
    return verify_address(target, trust, environ) if scheme_of(target) else verify_folder(Path(target), trust)


def verify_address(address: str, trust: Trust, environ: Mapping[str, str]) -> list[PackageVerification]:
    """Check the packages that the channel at an address lists for this machine, or the one package at an address.

    No package is downloaded: attestations are compared with the hashes in the channel's index, which clients compare
    with what they download. Packages in the old format, which have no attestations, fail. ``environ`` is as for
    make_http_client. Raises UsageError if nothing is listed, and as read_index does.
    """
    client, now = make_http_client(environ), datetime.now(UTC)
    channel, names, subdirs = channel_address(address), None, [current_platform(), NOARCH]
    if channel.endswith((PACKAGE_SUFFIX, OLD_SUFFIX)):
        channel, key = split_package_address(channel)
        names, subdirs = {key.file_name}, [key.subdir]
    indexes = {subdir: read_index(channel, subdir, names, client) for subdir in subdirs}
    verdicts = [
        _listed_verdict(PackageKey(subdir, name), index.folder + name, record, trust, client, now)
        for subdir, index in indexes.items()
        for name, record in index.records.items()
    ]
    if not verdicts:
        raise UsageError(f"{without_credentials(address)}: no .conda file is listed there", hint="check the address")
    return verdicts


def _listed_verdict(
    key: PackageKey, address: str, record: Mapping[str, object], trust: Trust, client: HttpClient, now: datetime
) -> PackageVerification:
    subject = Subject(file_name=key.file_name, sha256=str(record.get("sha256")))
    listed = record.get("attestations_sha256")
    try:
        verified = _verify_at(address, None if listed is None else str(listed), subject, trust, client, now)
    except ChannelToolsError as err:
        return PackageVerification(package=str(key), error=err)
    return PackageVerification(package=str(key), verified=verified)


def verify_folder(target: Path, trust: Trust) -> list[PackageVerification]:
    """Check a package, or every package in a channel's folder, whether its indexes list it or not.

    Raises UsageError for a target that is neither.
    """
    target = target.absolute()
    if target.is_file() and target.name.endswith((PACKAGE_SUFFIX, OLD_SUFFIX)):
        files: list[tuple[Path, Beneath | None]] = [(target, None)]
    else:
        channel = Beneath(root=target)
        subdirs = subdirs_of(channel) if target.is_dir() else ()
        names = [(subdir, name) for subdir in subdirs for name in channel.names(subdir)]
        packages = [(subdir, name) for subdir, name in names if name.endswith((PACKAGE_SUFFIX, OLD_SUFFIX))]
        files = [(target / subdir / name, channel.at(subdir)) for subdir, name in packages]
    if not files:
        message = f"{target}: not a .conda file or a channel's folder with packages"
        raise UsageError(message, hint="for example output/channel, or output/channel/linux-64/toy-1.0-0.conda")
    now = datetime.now(UTC)
    return [_verdict(path, folder, trust, now) for path, folder in files]


def _verdict(path: Path, folder: Beneath | None, trust: Trust, now: datetime) -> PackageVerification:
    from channel_tools.provenance.attestations import verify_sidecar  # noqa: PLC0415 - slow to import

    name, sidecar = str(PackageKey.of(path)), sidecar_of(path)
    try:
        content = read_sidecar(sidecar, folder=folder)
        with opened_in(path, folder) as stream:
            subject = Subject(file_name=path.name, sha256=hashlib.file_digest(stream, "sha256").hexdigest())
        verified = verify_sidecar(content, subject, trust, now=now, where=str(sidecar))
    except FileNotFoundError:
        message = f"{path}: has no attestation ({sidecar.name} beside it)"
        return PackageVerification(package=name, error=VerificationError(message, hint=UNATTESTED_HINT))
    except ChannelToolsError as err:
        return PackageVerification(package=name, error=err)
    return PackageVerification(package=name, verified=verified)


def attestation_check(
    trust: Trust | None, channels: Sequence[str], environ: Mapping[str, str]
) -> Callable[[Sequence[RepoDataRecord]], None] | None:
    """A function that raises an error if one of the records to install is of a package that ``trust`` has not signed.

    ``channels`` are addresses with any credentials, ``environ`` is as for make_http_client. None without ``trust``.
    The function raises VerificationError and IntegrityError as verify_sidecar does, and NetworkError.
    """
    if trust is None:
        return None
    plain, client = _by_plain_address(channels), make_http_client(environ)

    def check(records: Sequence[RepoDataRecord]) -> None:
        now = datetime.now(UTC)
        wrong: list[VerificationError] = []
        for record in records:
            try:
                _check_record(record, trust, plain, client, now)
            except VerificationError as err:
                wrong.append(err)
        if len(wrong) > 1:
            message = f"{len(wrong)} of {counted(len(records), 'package')} are not verified, the first: {wrong[0]}"
            raise VerificationError(message, hint=wrong[0].hint)
        if wrong:
            raise wrong[0]

    return check


def fetch_attestations(
    records: Iterable[RepoDataRecord], channels: Sequence[str], environ: Mapping[str, str]
) -> dict[str, bytes]:
    """The attestations that channels list for packages, by the names of their files; nothing is verified but the hash.

    ``channels`` and ``environ`` are as for attestation_check. Raises VerificationError for attestations that are listed
    and not there, IntegrityError for others than those listed, and NetworkError.
    """
    plain, client, found = _by_plain_address(channels), make_http_client(environ), {}
    for record in records:
        listed = record.attestations_sha256
        if listed is None:
            continue
        url = f"{_address_of(record, plain)}{SUFFIX}.{listed.hex()}"
        content, plain_url = _read_at(url, client), without_credentials(url)
        if content is None:
            raise VerificationError(f"{record.file_name}: its attestations are no more at {plain_url}")
        if (sha256 := hashlib.sha256(content).hexdigest()) != listed.hex():
            raise IntegrityError(f"{plain_url}: has sha256 {sha256}", hint="index the channel again")
        found[sidecar_name(record.file_name)] = content
    return found


def _by_plain_address(channels: Sequence[str]) -> dict[str, str]:
    """The addresses of channels with any credentials, by those without."""
    addresses = [channel_address(channel) for channel in channels]
    return {without_credentials(address): address for address in addresses}


def _address_of(record: RepoDataRecord, plain: Mapping[str, str]) -> str:
    """The address of a record's package, with the credentials of its channel; ``plain`` is as _by_plain_address."""
    url = without_credentials(record.url)
    channel = next((address for address in plain if url.startswith(f"{address}/")), None)
    return url if channel is None else plain[channel] + url.removeprefix(channel)


def _check_record(
    record: RepoDataRecord, trust: Trust, plain: Mapping[str, str], client: HttpClient, now: datetime
) -> None:
    """Check a record; ``plain`` is as _by_plain_address."""
    address = _address_of(record, plain)
    if record.sha256 is None:
        raise VerificationError(
            f"{record.file_name}: the channel lists it without a hash", hint="index the channel again"
        )
    subject = Subject(file_name=record.file_name, sha256=record.sha256.hex())
    listed = record.attestations_sha256
    _verify_at(address, listed.hex() if listed else None, subject, trust, client, now)


def _verify_at(
    address: str, listed: str | None, subject: Subject, trust: Trust, client: HttpClient, now: datetime
) -> Verified:
    """Check the attestations at a package's address, which must have the hash ``listed`` in its record (None: any)."""
    from channel_tools.provenance.attestations import verify_sidecar  # noqa: PLC0415 - slow to import

    url = address + SUFFIX + (f".{listed}" if listed else "")
    content, plain_url = _read_at(url, client), without_credentials(url)
    if content is None:
        raise VerificationError(f"{subject.file_name}: has no attestation at {plain_url}", hint=UNATTESTED_HINT)
    return verify_sidecar(content, subject, trust, now=now, where=plain_url)


def _read_at(url: str, client: HttpClient) -> bytes | None:
    """The attestations at an address; None if there are none."""
    path = local_path(url)
    try:
        return (
            client.read(url, limit_bytes=LIMIT_BYTES)
            if path is None
            else read_sidecar(path, folder=subdir_beneath(path))
        )
    except (FileNotFoundError, MissingError):
        return None
