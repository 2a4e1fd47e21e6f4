# SPDX-License-Identifier: BSD-3-Clause
"""What a package's attestations claim, for people to see before they check them; nothing here verifies a signature."""

from __future__ import annotations

import binascii
from base64 import b64decode
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from channel_tools.provenance.statements import CERTIFICATES, PROVENANCE, Subject, read_statement
from channel_tools.system.document import decode_json
from channel_tools.system.errors import IntegrityError

if TYPE_CHECKING:
    from channel_tools.page.model import Build
    from channel_tools.provenance.statements import Statement


@dataclass(frozen=True, kw_only=True, slots=True)
class Claims:
    """The ids of the keys that signed, whether Sigstore did, and when the build ended (ISO 8601, "": that is not said).

    ``fault`` says why the attestations prove nothing of the package ("": they are of its bytes).
    """

    keys: tuple[str, ...] = ()
    by_sigstore: bool = False
    finished: str = ""
    fault: str = ""


class _Signature(msgspec.Struct):
    keyid: str = ""


class _Envelope(msgspec.Struct):
    payload: str
    signatures: list[_Signature]


class _Bundle(msgspec.Struct):
    material: dict[str, object] = msgspec.field(name="verificationMaterial", default_factory=dict)
    envelope: _Envelope | None = msgspec.field(name="dsseEnvelope", default=None)


def read_claims(content: bytes | None, build: Build) -> Claims:
    """What the file of attestations beside a build says (None: it is gone)."""
    if content is None:
        return Claims(fault="its file is gone")
    try:
        bundles = decode_json(content, list[_Bundle])
        envelopes = [bundle.envelope for bundle in bundles if bundle.envelope is not None]
        statements = [read_statement(b64decode(one.payload, validate=True), where=build.file_name) for one in envelopes]
    except (msgspec.DecodeError, binascii.Error, IntegrityError):
        return Claims(fault="its file holds no attestations that can be read")
    return Claims(
        keys=tuple(sorted({one.keyid for envelope in envelopes for one in envelope.signatures if one.keyid})),
        by_sigstore=any(CERTIFICATES & one.material.keys() for one in bundles),
        finished=max((one.finished.isoformat() for one in statements if one.finished is not None), default=""),
        fault=_fault(statements, build),
    )


def _fault(statements: list[Statement], build: Build) -> str:
    wanted = Subject(file_name=build.file_name, sha256=build.row.sha256)
    for statement in statements:
        if statement.subject.file_name != wanted.file_name:
            return f"it is of another package, {statement.subject.file_name}"
        if statement.subject != wanted:
            return "it is of other bytes under this name"
    return "" if any(one.kind == PROVENANCE for one in statements) else "it does not say how the package was built"
