# SPDX-License-Identifier: BSD-3-Clause
"""Signing how packages were built: as they are built, or afterwards for those that lie in a channel."""

from __future__ import annotations

import importlib.metadata
import shlex
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from channel_tools.channel import channel_writer, open_channel, show_attestations
from channel_tools.channel.model import RECORD_FOLDER
from channel_tools.conda.archive import read_package
from channel_tools.conda.package import PACKAGE_SUFFIX, PackageKey, read_sidecar, sidecar_of, write_sidecar
from channel_tools.foundation.record import read_record
from channel_tools.provenance.statements import Built, Run, Subject, provenance_statement, publish_statement
from channel_tools.system.errors import UsageError
from channel_tools.system.extras import needs_extra

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from securesystemslib.signer import CryptoSigner, Key

    from channel_tools.conda.archive import PackageInfo
    from channel_tools.conda.contents import JsonObject
    from channel_tools.provenance.trust import SigstoreRequest
    from channel_tools.system.settings import Settings

_ENGINE = "py-rattler-build"


@dataclass(frozen=True, kw_only=True, slots=True)
class AttestRequest:
    """With which key: a file, a folder that holds one, or None for the settings' own, which is made when missing.

    ``command`` is what built, as statements say it, empty if that is not known. ``channel`` is the address that
    packages are published at, where it is known. ``sigstore`` has Sigstore sign as well, afterwards (sign_packages).
    """

    signing_key: Path | None = None
    passphrase_file: Path | None = None
    command: tuple[str, ...] = ()
    channel: str | None = None
    sigstore: SigstoreRequest | None = None

    def as_texts(self) -> dict[str, str]:
        """The request as plain values, for processes elsewhere that sign."""
        paths = {"signing_key": self.signing_key, "passphrase_file": self.passphrase_file}
        named = {name: str(path.absolute()) for name, path in paths.items() if path is not None}
        return {"command": shlex.join(self.command), **named}

    @classmethod
    def of_texts(cls, texts: Mapping[str, str]) -> AttestRequest:
        """The request that as_texts wrote."""
        key, passphrase = texts.get("signing_key"), texts.get("passphrase_file")
        return cls(
            signing_key=None if key is None else Path(key),
            passphrase_file=None if passphrase is None else Path(passphrase),
            command=tuple(shlex.split(texts["command"])),
        )


class Attester:
    """Writes attestations beside packages. The key is read when the first one is signed, or by ``signer``."""

    def __init__(self, settings: Settings | None, request: AttestRequest) -> None:
        self._settings = settings
        self._request = request

    @cached_property
    def signer(self) -> CryptoSigner:
        """The key. Raises UsageError for one that cannot be read."""
        # slow to import, and most builds find nothing to do
        from channel_tools.provenance.trust import ensure_key, open_signer  # noqa: PLC0415
        from channel_tools.system.keys import read_passphrase  # noqa: PLC0415

        path = self._request.signing_key
        if path is None:
            if self._settings is None:
                raise UsageError("no signing key was named", hint="name its file with --signing-key")
            path = self._settings.signing_keys
            if path == self._settings.output / "keys":
                path = ensure_key(path, now=datetime.now(UTC))
        return open_signer(path, passphrase=read_passphrase(self._request.passphrase_file))

    def sign(self, package: Path, built: Built) -> None:
        """Write the attestations of a package beside it. Raises UsageError as ``signer``."""
        from channel_tools.provenance.attestations import signed_sidecar  # noqa: PLC0415

        run = Run(
            command=self._request.command,
            tools={_ENGINE: importlib.metadata.version(_ENGINE)},
            finished=datetime.now(UTC),
        )
        statements = [provenance_statement(built, run), publish_statement(built.subject, channel=self._request.channel)]
        write_sidecar(package, signed_sidecar(statements, self.signer))

    def sign_foundation(self, folder: Path) -> list[PackageKey]:
        """Sign how each of the registry foundation's packages was made that has no attestation; returns those.

        What a recipe built was signed when it was built, or is left as it is.
        """
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
        """``admit``, and what it admits is signed."""

        def admit_and_sign(package: Path) -> PackageInfo | None:
            info = admit(package)
            self.sign(package, Built.of(package.name, info or read_package(package, contents=False)))
            return info

        return admit_and_sign


def sign_packages(settings: Settings | None, request: AttestRequest, target: Path, *, again: bool) -> list[str]:
    """Sign how packages were built that this program built: one, or all of a channel's folder.

    Those that have an attestation are left alone unless ``again``; of those that Sigstore is to sign, what it signed. A
    channel's indexes name the new ones. Returns the packages that were signed. Raises UsageError for a target that is
    neither, or a package from elsewhere, and as sigstore_signer.
    """
    attester, target = Attester(settings, request), target.absolute()
    by_sigstore = None if request.sigstore is None else _sigstore_signer(request.sigstore)
    if target.is_file() and target.name.endswith(PACKAGE_SUFFIX):
        folder, files = target.parents[1], [target]
        if not (folder / RECORD_FOLDER).is_dir():
            return [key.file_name for key in _signed(attester, files, by_sigstore, again=again)]
    elif (target / RECORD_FOLDER).is_dir():
        folder, files = target, sorted(target.glob(f"*/*{PACKAGE_SUFFIX}"))
    else:
        raise UsageError(f"{target}: neither a .conda file nor the folder of a channel of this program")
    with channel_writer(open_channel(folder)) as writer:
        keys: list[PackageKey] = []
        try:
            keys.extend(_signed(attester, files, by_sigstore, again=again))
        finally:  # those before a damaged package are signed
            show_attestations(writer, keys)
    return [str(key) for key in keys]


def _sigstore_signer(request: SigstoreRequest) -> Callable[[bytes], JsonObject]:
    with needs_extra("sigstore", "signing by Sigstore"):
        from channel_tools.provenance.sigstore import sigstore_signer  # noqa: PLC0415 - slow to import

    return sigstore_signer(request)


def _signed(
    attester: Attester, files: Sequence[Path], by_sigstore: Callable[[bytes], JsonObject] | None, *, again: bool
) -> Iterator[PackageKey]:
    """Sign what is to be signed; each package comes before it is, so that one half done is known, too."""
    for path in files:
        by_key = again or not sidecar_of(path).exists()
        if not by_key and (by_sigstore is None or _has_certificate(path)):
            continue
        built = Built.of(path.name, read_package(path, contents=False))
        if not built.recorded and len(files) == 1:
            raise UsageError(f"{path}: was not built by channel_tools: nothing is known of how it was built")
        if not built.recorded:
            continue
        yield PackageKey.of(path)
        if by_key:
            attester.sign(path, built)
        if by_sigstore is not None:
            _add_bundles(path, built.subject, by_sigstore, attester.signer.public_key)


def _has_certificate(package: Path) -> bool:
    from channel_tools.provenance.attestations import has_certificate  # noqa: PLC0415 - slow to import

    sidecar = sidecar_of(package)
    return has_certificate(read_sidecar(sidecar), where=str(sidecar))


def _add_bundles(package: Path, subject: Subject, sign: Callable[[bytes], JsonObject], key: Key) -> None:
    from channel_tools.provenance.attestations import add_bundles  # noqa: PLC0415 - slow to import

    sidecar = sidecar_of(package)
    write_sidecar(package, add_bundles(read_sidecar(sidecar), subject, sign, key, where=str(sidecar)))
