# SPDX-License-Identifier: BSD-3-Clause
"""A certificate authority for tests, and what it certifies: a server on localhost, and a client."""

from __future__ import annotations

import datetime as dt
import ssl
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

_DAY = dt.timedelta(days=1)


@dataclass(frozen=True, kw_only=True)
class Authority:
    """Files below one folder: what trusts it, and the certificates with their keys."""

    certificates: Path
    server: Path
    client: Path

    def context(self, *, asks_client: bool = False) -> ssl.SSLContext:
        """For a server; with ``asks_client``, only for clients that this authority certified."""
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        made.load_cert_chain(self.server)
        if asks_client:
            made.load_verify_locations(self.certificates)
            made.verify_mode = ssl.CERT_REQUIRED
        return made


def make_authority(folder: Path) -> Authority:
    """A new one, with certificates that are valid for a day."""
    key, name = ec.generate_private_key(ec.SECP256R1()), _name("authority")
    own = _builder(name, name, key.public_key()).add_extension(
        x509.BasicConstraints(ca=True, path_length=None), critical=True
    )
    made = Authority(certificates=folder / "ca.pem", server=folder / "server.pem", client=folder / "client.pem")
    made.certificates.write_bytes(own.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM))
    for path, host in ((made.server, "localhost"), (made.client, "client")):
        its = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName([x509.DNSName(host)])
        signed = (
            _builder(_name(host), name, its.public_key())
            .add_extension(names, critical=False)
            .sign(key, hashes.SHA256())
        )
        private = its.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        path.write_bytes(signed.public_bytes(Encoding.PEM) + private)
    return made


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    made = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
    return made.serial_number(x509.random_serial_number()).not_valid_before(now - _DAY).not_valid_after(now + _DAY)
