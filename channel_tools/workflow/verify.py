# SPDX-License-Identifier: BSD-3-Clause
"""Checking packages against their attestations: a package's file, or all of a channel's folder."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from channel_tools.conda.package import PACKAGE_SUFFIX, PackageKey
from channel_tools.conda.sidecar import read_sidecar, sidecar_of
from channel_tools.provenance.attestations import verify_sidecar
from channel_tools.provenance.statements import Subject
from channel_tools.provenance.trust import read_trusted_keys
from channel_tools.system.errors import ChannelToolsError, UsageError, VerificationError
from channel_tools.system.files import sha256_of_file

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from channel_tools.provenance.attestations import Verified
    from channel_tools.provenance.trust import TrustedKey
    from channel_tools.system.settings import Settings

UNATTESTED_HINT = "ask those who build it for an attestation (channel_tools attest sign)"


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """What is known of one package: who signed it, or what is wrong."""

    package: str
    verified: Verified | None = None
    error: ChannelToolsError | None = None


def trusted_keys(settings: Settings | None, files: Sequence[Path]) -> list[TrustedKey]:
    """The public keys in ``files``, else those beside the local channel's own signing key.

    Raises UsageError where there is none, and as read_trusted_keys.
    """
    if not files and settings is not None:
        own = settings.signing_keys if settings.signing_keys.is_dir() else settings.signing_keys.parent
        files = [own] if own.is_dir() else []
    if not files:
        hint = "--trusted-key FILE names the attestation-KEYID.json of those who build the channel"
        raise UsageError("no key is trusted here, so no attestation can be checked", hint=hint)
    return read_trusted_keys(files)


def verify_target(target: Path, keys: Sequence[TrustedKey]) -> list[Verdict]:
    """Check a package, or every package in a channel's folder, whether its indexes list it or not.

    Raises UsageError for a target that is neither.
    """
    target = target.absolute()
    if target.is_file() and target.name.endswith(PACKAGE_SUFFIX):
        files = [target]
    else:
        files = sorted(target.glob(f"*/*{PACKAGE_SUFFIX}")) if target.is_dir() else []
    if not files:
        message = f"{target}: neither a .conda file nor a channel's folder with packages"
        raise UsageError(message, hint="for example output/channel, or output/channel/linux-64/toy-1.0-0.conda")
    now = datetime.now(UTC)
    return [_verdict(path, keys, now) for path in files]


def _verdict(path: Path, keys: Sequence[TrustedKey], now: datetime) -> Verdict:
    name, sidecar = str(PackageKey.of(path)), sidecar_of(path)
    try:
        if not sidecar.is_file():
            raise VerificationError(f"{path}: has no attestation ({sidecar.name} beside it)", hint=UNATTESTED_HINT)
        subject = Subject(file_name=path.name, sha256=sha256_of_file(path))
        verified = verify_sidecar(read_sidecar(sidecar), subject, keys, now=now, where=str(sidecar))
    except ChannelToolsError as err:
        return Verdict(package=name, error=err)
    return Verdict(package=name, verified=verified)
