# SPDX-License-Identifier: BSD-3-Clause
"""Signs attestations of how packages were built: as they are built, or afterwards for packages in a channel.

``verify`` and ``env create --require-attestation``: whose attestations count.
"""

from __future__ import annotations

import importlib.metadata
from dataclasses import asdict
from datetime import UTC, datetime
from functools import cache, cached_property
from typing import TYPE_CHECKING

from channel_tools.channel import channel_writer, open_channel, show_attestations
from channel_tools.channel.model import RECORD_FOLDER
from channel_tools.conda.addresses import parse_address, without_credentials
from channel_tools.conda.archive import read_package
from channel_tools.conda.package import (
    OLD_SUFFIX,
    PACKAGE_SUFFIX,
    PackageKey,
    read_sidecar,
    sidecar_of,
    subdir_beneath,
    subdirs_of,
    write_sidecar,
)
from channel_tools.system.beneath import Beneath
from channel_tools.system.errors import UsageError
from channel_tools.system.extras import needs_extra

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from securesystemslib.signer import CryptoSigner, Key

    from channel_tools.conda.archive import PackageInfo
    from channel_tools.conda.contents import JsonObject
    from channel_tools.provenance.statements import Built, Subject
    from channel_tools.provenance.trust import Trust, TrustedKey
    from channel_tools.requests.attest import AttestRequest, SignRequest, TrustRequest
    from channel_tools.system.settings import Settings

_ENGINE = "py-rattler-build"


class Attester:
    """Writes attestations beside packages. The key is read when the first one is signed, or when ``signer`` is used."""

    def __init__(self, settings: Settings | None, request: AttestRequest) -> None:
        self._settings = settings
        self._request = request

    @cached_property
    def signer(self) -> CryptoSigner:
        """The key. Raises UsageError if it cannot be read."""
        # slow to import, and most builds have nothing to do
        from channel_tools.provenance.trust import ensure_key, open_signer  # noqa: PLC0415
        from channel_tools.system.keys import read_passphrase  # noqa: PLC0415

        path = self._request.signing_key
        if path is None:
            if self._settings is None:
                raise UsageError("no signing key given", hint="name its file with --signing-key")
            path = self._settings.signing_keys
            if path == self._settings.output / "keys":
                path = ensure_key(path, now=datetime.now(UTC))
        return open_signer(path, passphrase=read_passphrase(self._request.passphrase_file))

    def sign(self, package: Path, built: Built, *, folder: Beneath | None = None) -> None:
        """Write the attestations of a package beside it; ``folder`` is as for write_sidecar.

        Raises UsageError as ``signer`` does.
        """
        from channel_tools.provenance.attestations import signed_sidecar  # noqa: PLC0415 - as in signer
        from channel_tools.provenance.statements import (  # noqa: PLC0415
            Run,
            provenance_statement,
            publish_statement,
        )

        run = Run(
            command=self._request.command,
            tools={_ENGINE: _engine_version()},
            finished=datetime.now(UTC),
        )
        channel = None if self._request.channel is None else without_credentials(self._request.channel)
        statements = [provenance_statement(built, run), publish_statement(built.subject, channel=channel)]
        write_sidecar(package, signed_sidecar(statements, self.signer), folder=folder)

    def sign_foundation(self, folder: Path) -> list[PackageKey]:
        """Sign those of the registry foundation's packages that have no attestation; returns them.

        Packages built by a recipe were signed when they were built, or are left unsigned.
        """
        from channel_tools.foundation.record import read_record  # noqa: PLC0415 - as in signer
        from channel_tools.provenance.statements import Built, Subject  # noqa: PLC0415

        signed = []
        for package in read_record(folder).packages:
            path = package.key.path_in(folder)
            if not package.is_given and not sidecar_of(path).exists():
                self.sign(
                    path,
                    Built(
                        subject=Subject(file_name=package.file_name, sha256=package.sha256),
                        name=package.name,
                        version=package.version,
                        subdir=package.subdir,
                        recorded={"digest": package.digest, "taken": [asdict(file) for file in package.taken]},
                        variant={},
                    ),
                )
                signed.append(package.key)
        return signed

    def attesting(self, admit: Callable[[Path], PackageInfo | None]) -> Callable[[Path], PackageInfo | None]:
        """``admit`` wrapped so that the packages it admits are signed."""
        from channel_tools.provenance.statements import Built  # noqa: PLC0415 - as in signer

        def admit_and_sign(package: Path) -> PackageInfo | None:
            info = admit(package)
            self.sign(package, Built.of(package.name, info or read_package(package, contents=False)))
            return info

        return admit_and_sign


@cache
def _engine_version() -> str:
    return importlib.metadata.version(_ENGINE)


def sign_packages(settings: Settings | None, request: SignRequest) -> list[str]:
    """Sign attestations for packages that this program built: one file, or all in a channel's folder.

    Those that have an attestation (by Sigstore, if it is to sign) are skipped, unless they are to be signed again. The
    channel's indexes are updated. Returns the packages that were signed. Raises UsageError for a target that is
    neither, a package from elsewhere, or an invalid address at which they are published, and the errors of
    sigstore_signer.
    """
    if request.attest.channel is not None:
        parse_address(request.attest.channel)
    attester, target, again = Attester(settings, request.attest), request.target.absolute(), request.again
    by_sigstore = _sigstore_signer(request) if request.sigstore else None
    if target.is_file() and target.name.endswith(OLD_SUFFIX):
        raise UsageError(f"{target}: was not built by channel_tools: how it was built is not known")
    if target.is_file() and target.name.endswith(PACKAGE_SUFFIX):
        folder, files = target.parents[1], [target]
        if not (folder / RECORD_FOLDER).is_dir():
            unlisted = [(target, None)]
            return [key.file_name for key in _signed(attester, unlisted, by_sigstore, again=again)]
    elif (target / RECORD_FOLDER).is_dir():
        channel = Beneath(root=target)
        folder = target
        files = [
            target / subdir / name
            for subdir in subdirs_of(channel)
            for name in channel.names(subdir)
            if name.endswith(PACKAGE_SUFFIX)
        ]
    else:
        raise UsageError(f"{target}: not a .conda file, and not the folder of a channel made by channel_tools")
    with channel_writer(open_channel(folder)) as writer:
        keys: list[PackageKey] = []
        try:
            placed = [(path, subdir_beneath(path)) for path in files]
            keys.extend(_signed(attester, placed, by_sigstore, again=again))
        finally:  # keep those signed before a damaged package
            show_attestations(writer, keys)
    return [str(key) for key in keys]


def _sigstore_signer(request: SignRequest) -> Callable[[bytes], JsonObject]:
    with needs_extra("sigstore", "signing by Sigstore"):
        from channel_tools.provenance.sigstore import sigstore_signer  # noqa: PLC0415 - slow to import

    return sigstore_signer(request.sigstore_config, request.identity_token_file)


def _signed(
    attester: Attester,
    files: Sequence[tuple[Path, Beneath | None]],
    by_sigstore: Callable[[bytes], JsonObject] | None,
    *,
    again: bool,
) -> Iterator[PackageKey]:
    """Sign attestations; yields each package before signing it, so that a half-finished one is known, too.

    ``files`` are packages, each with its folder if that is in a channel, where others can write.
    """
    from channel_tools.provenance.statements import Built  # noqa: PLC0415 - slow to import

    for path, folder in files:
        content = None if again else _attestations_of(path, folder)
        if content is not None and (by_sigstore is None or _has_certificate(path, content)):
            continue
        built = Built.of(path.name, read_package(path, contents=False, folder=folder))
        if not built.recorded and len(files) == 1:
            raise UsageError(f"{path}: was not built by channel_tools: how it was built is not known")
        if not built.recorded:
            continue
        yield PackageKey.of(path)
        if content is None:
            attester.sign(path, built, folder=folder)
        if by_sigstore is not None:
            _add_bundles((path, folder), built.subject, by_sigstore, attester.signer.public_key)


def _attestations_of(package: Path, folder: Beneath | None) -> bytes | None:
    """The attestations beside a package; None if it has none."""
    try:
        return read_sidecar(sidecar_of(package), folder=folder)
    except FileNotFoundError:
        return None


def _has_certificate(package: Path, content: bytes) -> bool:
    from channel_tools.provenance.attestations import has_certificate  # noqa: PLC0415 - slow to import

    return has_certificate(content, where=str(sidecar_of(package)))


def _add_bundles(
    file: tuple[Path, Beneath | None], subject: Subject, sign: Callable[[bytes], JsonObject], key: Key
) -> None:
    from channel_tools.provenance.attestations import add_bundles  # noqa: PLC0415 - slow to import

    package, folder = file
    sidecar = sidecar_of(package)
    content = add_bundles(read_sidecar(sidecar, folder=folder), subject, sign, key, where=str(sidecar))
    write_sidecar(package, content, folder=folder)


def trusted_keys(settings: Settings | None, files: Sequence[Path]) -> list[TrustedKey]:
    """The public keys in ``files``, else those beside the local channel's own signing key.

    Raises UsageError if there is none, and as read_trusted_keys does.
    """
    if not files and settings is not None:
        own = settings.signing_keys if settings.signing_keys.is_dir() else settings.signing_keys.parent
        files = [own] if own.is_dir() else []
    if not files:
        hint = "give --trusted-key with the attestation-KEYID.json of those who build the channel"
        raise UsageError("no trusted key, so no attestation can be checked", hint=hint)
    from channel_tools.provenance.trust import read_trusted_keys  # noqa: PLC0415 - slow to import

    return read_trusted_keys(files)


def trust_of(settings: Settings | None, request: TrustRequest) -> Trust:
    """Whose attestations count by a request. Raises as trusted_keys does."""
    if request.certificate_identity is None or request.certificate_oidc_issuer is None:
        return tuple(trusted_keys(settings, request.trusted_keys))
    from channel_tools.provenance.trust import TrustedIdentity  # noqa: PLC0415 - slow to import

    return TrustedIdentity(
        identity=request.certificate_identity, issuer=request.certificate_oidc_issuer, config=request.sigstore_config
    )
