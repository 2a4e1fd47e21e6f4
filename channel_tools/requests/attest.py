# SPDX-License-Identifier: BSD-3-Clause
"""How packages are signed: by ``attest sign``, and by ``build`` as it admits them."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from channel_tools.provenance.trust import SigstoreRequest


@dataclass(frozen=True, kw_only=True, slots=True)
class AttestRequest:
    """The key to sign with: a file, a folder that has one, or None for the settings' own, created if missing.

    ``command`` is the build command for the statements, empty if not known. ``channel`` is the address at which
    packages are published, if known. ``sigstore`` has Sigstore sign as well, afterwards (sign_packages).
    """

    signing_key: Path | None = None
    passphrase_file: Path | None = None
    command: tuple[str, ...] = ()
    channel: str | None = None
    sigstore: SigstoreRequest | None = None

    def as_texts(self) -> dict[str, str]:
        """The request as plain values, for signing processes on other machines."""
        paths = {"signing_key": self.signing_key, "passphrase_file": self.passphrase_file}
        named = {name: str(path.absolute()) for name, path in paths.items() if path is not None}
        return {"command": shlex.join(self.command), **named}

    @classmethod
    def of_texts(cls, texts: Mapping[str, str]) -> AttestRequest:
        """The request from the values of as_texts."""
        key, passphrase = texts.get("signing_key"), texts.get("passphrase_file")
        return cls(
            signing_key=None if key is None else Path(key),
            passphrase_file=None if passphrase is None else Path(passphrase),
            command=tuple(shlex.split(texts["command"])),
        )
