# SPDX-License-Identifier: BSD-3-Clause
"""A Sigstore of our own for tests: a certificate authority (Fulcio), a certificate log and a transparency log (Rekor).

It answers as the public instance does (fulcio/api/v2, rekor/api/v1), with real certificates, signed certificate
timestamps (RFC 6962), inclusion proofs and checkpoints, so that sigstore-python and rattler check all of it. It issues
a certificate for whatever identity a token claims.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import http.server
import json
import struct
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier

from tests.support.server_thread import in_thread

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_ISSUER = ObjectIdentifier("1.3.6.1.4.1.57264.1.8")
_ISSUER_V1 = ObjectIdentifier("1.3.6.1.4.1.57264.1.1")
_TIMESTAMPS = ObjectIdentifier("1.3.6.1.4.1.11129.2.4.2")
_LIFETIME = timedelta(minutes=10)
_SHORT_LENGTH = 0x80


def identity_token(*, identity: str, issuer: str) -> str:
    """A token of an identity provider; nobody checks its signature here."""
    now = int(time.time())
    claims = {"iss": issuer, "sub": identity, "aud": "sigstore", "iat": now, "exp": now + 600}
    return ".".join(_base64url(json.dumps(part).encode()) for part in ({"alg": "none"}, claims)) + "."


def _base64url(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


class Sigstore:
    """The authority, the logs and their keys."""

    def __init__(self) -> None:
        self._authority, self._certificates, self._log = (ec.generate_private_key(ec.SECP256R1()) for _ in range(3))
        self._root = _root_certificate(self._authority)
        self._leaves: list[bytes] = []
        self.url = ""

    def trusted_root(self) -> dict[str, Any]:
        """What verifiers trust, as trusted_root.json has it."""
        since = {"start": "2020-01-01T00:00:00Z"}

        def log(url: str, key: ec.EllipticCurvePrivateKey) -> dict[str, Any]:
            public = {"rawBytes": _b64(_public(key)), "keyDetails": "PKIX_ECDSA_P256_SHA_256", "validFor": since}
            return {
                "baseUrl": url,
                "hashAlgorithm": "SHA2_256",
                "publicKey": public,
                "logId": {"keyId": _b64(_key_id(key))},
            }

        authority = {
            "subject": {"organization": "tests", "commonName": "tests"},
            "uri": self.url,
            "certChain": {"certificates": [{"rawBytes": _b64(self._root.public_bytes(Encoding.DER))}]},
            "validFor": since,
        }
        return {
            "mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
            "tlogs": [log(self.url, self._log)],
            "certificateAuthorities": [authority],
            "ctlogs": [log(f"{self.url}/ct", self._certificates)],
            "timestampAuthorities": [],
        }

    def client_config(self) -> dict[str, Any]:
        """What signers are given: the trusted root, and where the services are."""
        service = {
            "url": self.url,
            "majorApiVersion": 1,
            "validFor": {"start": "2020-01-01T00:00:00Z"},
            "operator": "tests",
        }
        return {
            "mediaType": "application/vnd.dev.sigstore.clienttrustconfig.v0.1+json",
            "trustedRoot": self.trusted_root(),
            "signingConfig": {
                "mediaType": "application/vnd.dev.sigstore.signingconfig.v0.2+json",
                "caUrls": [service],
                "oidcUrls": [service],
                "rekorTlogUrls": [service],
                "rekorTlogConfig": {"selector": "ANY"},
                "tsaUrls": [],
                "tsaConfig": {"selector": "ANY"},
            },
        }

    def certify(self, request: dict[str, Any], token: str) -> dict[str, Any]:
        """The certificate for a request (PKCS 10) by whoever the token is of."""
        csr = x509.load_pem_x509_csr(base64.b64decode(request["certificateSigningRequest"]))
        payload = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        certificate = self._certificate(csr.public_key(), claims)
        chain = [one.public_bytes(Encoding.PEM).decode() for one in (certificate, self._root)]
        return {"signedCertificateEmbeddedSct": {"chain": {"certificates": chain}}}

    def _certificate(self, key: Any, claims: dict[str, Any]) -> x509.Certificate:  # noqa: ANN401 - any public key
        now = datetime.now(UTC)
        issuer = claims["iss"].encode()
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([]))
            .issuer_name(self._root.subject)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(seconds=5))
            .not_valid_after(now + _LIFETIME)
            .add_extension(_key_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING]), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._authority.public_key()), critical=False
            )
            .add_extension(x509.SubjectAlternativeName([x509.UniformResourceIdentifier(claims["sub"])]), critical=True)
            .add_extension(x509.UnrecognizedExtension(_ISSUER_V1, issuer), critical=False)
            .add_extension(x509.UnrecognizedExtension(_ISSUER, _der(0x0C, issuer)), critical=False)
        )
        unlogged = builder.sign(self._authority, hashes.SHA256())
        stamps = x509.UnrecognizedExtension(_TIMESTAMPS, _der(0x04, self._timestamps(unlogged)))
        return builder.add_extension(stamps, critical=False).sign(self._authority, hashes.SHA256())

    def _timestamps(self, certificate: x509.Certificate) -> bytes:
        """A SignedCertificateTimestampList of one (RFC 6962, 3.3)."""
        made_ms, content = int(time.time() * 1000), certificate.tbs_certificate_bytes
        entry = hashlib.sha256(_public(self._authority)).digest() + len(content).to_bytes(3, "big") + content
        signed = struct.pack("!BBQH", 0, 0, made_ms, 1) + entry + struct.pack("!H", 0)
        signature = self._certificates.sign(signed, ec.ECDSA(hashes.SHA256()))
        stamp = struct.pack("!B32sQHBBH", 0, _key_id(self._certificates), made_ms, 0, 4, 3, len(signature)) + signature
        return struct.pack("!HH", len(stamp) + 2, len(stamp)) + stamp

    def enter(self, proposed: dict[str, Any]) -> dict[str, Any]:
        """An entry (dsse 0.0.1) in the log, with its promise and its proof."""
        content = proposed["spec"]["proposedContent"]
        envelope = json.loads(content["envelope"])
        signature = {"signature": envelope["signatures"][0]["sig"], "verifier": content["verifiers"][0]}
        spec = {
            "envelopeHash": _hash_of(content["envelope"].encode()),
            "payloadHash": _hash_of(base64.b64decode(envelope["payload"])),
            "signatures": [signature],
        }
        body = _canonical({"apiVersion": "0.0.1", "kind": "dsse", "spec": spec})
        self._leaves.append(hashlib.sha256(b"\0" + body).digest())
        index, log_id = len(self._leaves) - 1, _key_id(self._log).hex()
        entry = {"body": _b64(body), "integratedTime": int(time.time()), "logID": log_id, "logIndex": index}
        promise = self._log.sign(_canonical(entry), ec.ECDSA(hashes.SHA256()))
        root = _root(self._leaves)
        proof = {
            "checkpoint": self._checkpoint(root),
            "hashes": [one.hex() for one in _path(index, self._leaves)],
            "logIndex": index,
            "rootHash": root.hex(),
            "treeSize": len(self._leaves),
        }
        return {self._leaves[-1].hex(): {**entry, "verification": _verification(proof, promise)}}

    def _checkpoint(self, root: bytes) -> str:
        note = f"tests - 1\n{len(self._leaves)}\n{_b64(root)}\n"
        signature = self._log.sign(note.encode(), ec.ECDSA(hashes.SHA256()))
        return f"{note}\n\u2014 tests {_b64(_key_id(self._log)[:4] + signature)}\n"


@contextlib.contextmanager
def running_sigstore() -> Iterator[Sigstore]:
    """A Sigstore at an address of this machine."""
    sigstore = Sigstore()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if self.path == "/api/v2/signingCert":
                answer = sigstore.certify(body, self.headers["Authorization"].removeprefix("Bearer "))
            else:
                answer = sigstore.enter(body)
            content = json.dumps(answer).encode()
            self.send_response(201)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    sigstore.url = f"http://127.0.0.1:{server.server_port}"
    with in_thread(server):
        yield sigstore


def _root_certificate(key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    now = datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, "tests")])
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _der(tag: int, content: bytes) -> bytes:
    """A value in DER."""
    length = len(content)
    if length < _SHORT_LENGTH:
        return bytes([tag, length]) + content
    size = length.to_bytes((length.bit_length() + 7) // 8, "big")
    return bytes([tag, _SHORT_LENGTH | len(size)]) + size + content


def _root(leaves: Sequence[bytes]) -> bytes:
    """The hash of a tree (RFC 6962, 2.1)."""
    if len(leaves) == 1:
        return leaves[0]
    split = 1 << (len(leaves) - 1).bit_length() - 1
    return hashlib.sha256(b"\1" + _root(leaves[:split]) + _root(leaves[split:])).digest()


def _path(index: int, leaves: Sequence[bytes]) -> list[bytes]:
    """The audit path of a leaf (RFC 6962, 2.1.1)."""
    if len(leaves) == 1:
        return []
    split = 1 << (len(leaves) - 1).bit_length() - 1
    if index < split:
        return [*_path(index, leaves[:split]), _root(leaves[split:])]
    return [*_path(index - split, leaves[split:]), _root(leaves[:split])]


def _verification(proof: dict[str, Any], promise: bytes) -> dict[str, Any]:
    return {"inclusionProof": proof, "signedEntryTimestamp": _b64(promise)}


def _hash_of(content: bytes) -> dict[str, str]:
    return {"algorithm": "sha256", "value": hashlib.sha256(content).hexdigest()}


def _canonical(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _public(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _key_id(key: ec.EllipticCurvePrivateKey) -> bytes:
    return hashlib.sha256(_public(key)).digest()


def _b64(content: bytes) -> str:
    return base64.b64encode(content).decode()
