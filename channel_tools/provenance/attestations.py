# SPDX-License-Identifier: BSD-3-Clause
"""Signing and checking statements: DSSE envelopes in Sigstore bundles, in a file beside the package (CEP 27, 50).

A bundle that a key signed names the key and has no certificate. Bundles with a certificate were signed by Sigstore;
they may be in the same file, and count if an identity is trusted.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec
from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import VerificationError as BadSignatureError

from channel_tools.provenance.statements import (
    PROVENANCE,
    PUBLISH,
    Bundle,
    SignedEnvelope,
    Statement,
    Subject,
    read_statement,
    time_text,
)
from channel_tools.provenance.trust import TrustedIdentity
from channel_tools.system.document import decode_json
from channel_tools.system.errors import IntegrityError, VerificationError
from channel_tools.system.extras import needs_extra
from channel_tools.system.keys import SHORT

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from securesystemslib.signer import CryptoSigner, Key

    from channel_tools.conda.contents import JsonObject
    from channel_tools.provenance.trust import Trust, TrustedKey

PAYLOAD_TYPE = "application/vnd.in-toto+json"
_BUNDLE_TYPE = "application/vnd.dev.sigstore.bundle.v0.3+json"
_CLOCKS_APART = timedelta(minutes=5)
_AGAIN = "get the package and its .sigs file again from those who build the channel"


def signed_sidecar(statements: Sequence[JsonObject], signer: CryptoSigner) -> bytes:
    """The content of a package's attestation file: each statement in an envelope that the key signed."""
    bundles = [_bundle(statement, signer) for statement in statements]
    return msgspec.json.encode(bundles, order="sorted") + b"\n"


def _bundle(statement: JsonObject, signer: CryptoSigner) -> JsonObject:
    envelope = Envelope(msgspec.json.encode(statement, order="sorted"), PAYLOAD_TYPE, {})
    envelope.sign(signer)
    return {
        "mediaType": _BUNDLE_TYPE,
        "verificationMaterial": {"publicKey": {"hint": signer.public_key.keyid}},
        "dsseEnvelope": envelope.to_dict(),
    }


@dataclass(frozen=True, kw_only=True, slots=True)
class Verified:
    """What was verified: the key (its ID) or identity that signed, and when the build ended, if that is stated."""

    signer: str
    finished: datetime | None


def verify_sidecar(content: bytes, subject: Subject, trust: Trust, *, now: datetime, where: str) -> Verified:
    """Check that a trusted key or identity signed how this package was built; ``where`` names the attestation file.

    Every statement that they signed must be for exactly this package. With Sigstore, a statement that the package was
    published is enough (CEP 27). Raises IntegrityError for a file without attestations, VerificationError for
    attestations that are for another package or other bytes, are not by a trusted signer, have a wrong signature, or
    have a time outside of the key's or in the future.
    """
    if isinstance(trust, TrustedIdentity):
        return _verify_by_identity(content, subject, trust, now, where)
    verified: Verified | None = None
    unknown: list[str] = []
    for _raw, bundle in _read(content, where):
        if bundle.dsseEnvelope is None:
            continue
        checked = _checked(_envelope(bundle.dsseEnvelope, where), trust, where)
        if checked is None:
            unknown += [signature.keyid for signature in bundle.dsseEnvelope.signatures]
            continue
        key, payload = checked
        statement = _statement(payload, subject, where)
        if statement.kind == PROVENANCE:
            verified = Verified(signer=key.key.keyid, finished=_checked_time(statement, key, now, where))
    if verified is None:
        raise _none_trusted(unknown, trust, where)
    return verified


def _verify_by_identity(
    content: bytes, subject: Subject, trusted: TrustedIdentity, now: datetime, where: str
) -> Verified:
    with needs_extra("sigstore", "checking what Sigstore signed"):
        from channel_tools.provenance.sigstore import verified_payload  # noqa: PLC0415 - slow to import

    statements, wrong = [], []
    for raw in (raw for raw, bundle in _read(content, where) if bundle.is_certified):
        try:
            payload = verified_payload(raw, trusted)
        except VerificationError as err:
            wrong.append(err.message)
            continue
        statements.append(_statement(payload, subject, where))
    if not statements:
        first_fault = f"; the first bundle: {wrong[0]}" if wrong else ""
        message = f"{where}: not signed with Sigstore by {trusted.identity} (issuer {trusted.issuer}){first_fault}"
        raise VerificationError(
            message, hint="ask those who build the channel to run channel_tools attest sign --sigstore"
        )
    ended = [statement.finished for statement in statements if statement.finished is not None]
    for moment in ended:
        _check_past(moment, now, where)
    return Verified(signer=trusted.identity, finished=max(ended, default=None))


def add_bundles(
    content: bytes, subject: Subject, sign: Callable[[bytes], JsonObject], key: Key, *, where: str
) -> bytes:
    """The attestations, followed by the same statements signed by ``sign``, which replace its earlier ones.

    ``key`` must have signed all of them: otherwise the owner of ``sign`` would vouch for statements by others. Raises
    IntegrityError for a file without attestations, VerificationError for those of another package or key.
    """
    keyed = [(raw, bundle) for raw, bundle in _read(content, where) if not bundle.is_certified]
    envelopes = [_envelope(bundle.dsseEnvelope, where) for _raw, bundle in keyed if bundle.dsseEnvelope is not None]
    hint = "attest it again (--again), or give the key that attested it (--signing-key)"
    if not envelopes:
        raise VerificationError(f"{where}: has no statement signed by the key {key.keyid[:SHORT]}", hint=hint)
    for envelope in envelopes:
        try:
            envelope.verify([key], 1)
        except BadSignatureError:
            message = f"{where}: has a statement that is not signed by the key {key.keyid[:SHORT]}"
            raise VerificationError(message, hint=hint) from None
        _statement(envelope.payload, subject, where)
    signed = [sign(envelope.payload) for envelope in envelopes]
    return msgspec.json.encode([*(msgspec.Raw(raw) for raw, _bundle in keyed), *signed], order="sorted") + b"\n"


def has_certificate(content: bytes, *, where: str) -> bool:
    """Whether Sigstore signed any of the attestations. Raises IntegrityError for a file without attestations."""
    return any(bundle.is_certified for _raw, bundle in _read(content, where))


def _statement(payload: bytes, subject: Subject, where: str) -> Statement:
    """The statement, checked to be about the package and of a known type. Raises IntegrityError, VerificationError."""
    statement = read_statement(payload, where=where)
    attested = statement.subject
    if attested.file_name != subject.file_name:
        message = f"{where}: attests another package, {attested.file_name!r}; expected {subject.file_name}"
        raise VerificationError(message, hint=_AGAIN)
    if attested.sha256 != subject.sha256:
        message = (
            f"{where}: attests {subject.file_name} with sha256 {attested.sha256!r}, but the package has "
            f"{subject.sha256}; it is for another build with this name"
        )
        raise VerificationError(message, hint=_AGAIN)
    if statement.kind not in {PROVENANCE, PUBLISH}:
        raise VerificationError(f"{where}: has a statement of unknown type {statement.kind!r}", hint=_AGAIN)
    return statement


def _read(content: bytes, where: str) -> list[tuple[bytes, Bundle]]:
    """Each bundle as bytes from the file, and parsed."""
    try:
        raws = [bytes(raw) for raw in decode_json(content, list[msgspec.Raw])]
        return [(raw, decode_json(raw, Bundle)) for raw in raws]
    except msgspec.DecodeError as err:
        raise IntegrityError(
            f"{where}: not a file of attestations (a JSON list of bundles): {err}", hint=_AGAIN
        ) from None


def _envelope(read: SignedEnvelope, where: str) -> Envelope:
    if read.payloadType != PAYLOAD_TYPE:
        raise IntegrityError(
            f"{where}: the signed payload has type {read.payloadType!r}; expected {PAYLOAD_TYPE!r}", hint=_AGAIN
        )
    try:
        value = {
            "payload": read.payload,
            "payloadType": read.payloadType,
            "signatures": [{"keyid": signature.keyid, "sig": signature.sig} for signature in read.signatures],
        }
        base64.b64decode(read.payload, validate=True)
        return Envelope.from_dict(value)
    except (ValueError, binascii.Error) as err:
        raise IntegrityError(f"{where}: not a valid signed envelope: {err}", hint=_AGAIN) from None


def _checked(envelope: Envelope, keys: Sequence[TrustedKey], where: str) -> tuple[TrustedKey, bytes] | None:
    """The trusted key that signed the envelope, and what it signed; None if the envelope names none of the keys."""
    named = [key for key in keys if key.key.keyid in envelope.signatures]
    for key in named:
        try:
            envelope.verify([key.key], 1)
        except BadSignatureError:
            continue
        return key, envelope.payload
    if named:
        message = f"{where}: the signature by the key {named[0].short} is invalid: the attestation was changed"
        raise VerificationError(message, hint=_AGAIN)
    return None


def _checked_time(statement: Statement, key: TrustedKey, now: datetime, where: str) -> datetime:
    finished = statement.finished
    if finished is None:
        raise VerificationError(f"{where}: does not say when the build ended", hint=_AGAIN)
    _check_past(finished, now, where)
    if not key.valid_from - _CLOCKS_APART <= finished <= key.expires:
        message = (
            f"{where}: says that the build ended at {time_text(finished)}, but the key {key.short} is valid from "
            f"{time_text(key.valid_from)} to {time_text(key.expires)}"
        )
        raise VerificationError(message, hint="attest the package again with a key that has not expired")
    return finished


def _check_past(finished: datetime, now: datetime, where: str) -> None:
    if finished > now + _CLOCKS_APART:
        message = f"{where}: says that the build ended at {time_text(finished)}, but the time here is {time_text(now)}"
        raise VerificationError(message, hint="check this machine's clock, and that of the machine that built it")


def _none_trusted(unknown: Sequence[str], keys: Sequence[TrustedKey], where: str) -> VerificationError:
    trusted = ", ".join(sorted({key.short for key in keys}))
    if not unknown:
        message = f"{where}: has no statement of how the package was built signed by a trusted key ({trusted})"
        return VerificationError(message, hint=_AGAIN)
    signed = ", ".join(sorted({repr(keyid[:16]) for keyid in unknown}))
    message = f"{where}: signed by the key {signed}, which is not trusted; trusted: {trusted}"
    return VerificationError(
        message, hint="ask those who build the channel for their public key and give it with --trusted-key FILE"
    )
