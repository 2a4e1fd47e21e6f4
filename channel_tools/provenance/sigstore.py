# SPDX-License-Identifier: BSD-3-Clause
"""Signing by Sigstore, and checking such signatures: as an identity of an OpenID provider, without a key that is kept.

sigstore-python (the extra ``sigstore``) gets a certificate that counts for ten minutes and enters each signature into a
public log. Its bundles lie among a package's attestations beside those of keys, as conda's clients read them (CEP 27).
"""

from __future__ import annotations

import contextlib
import functools
import sys
from typing import TYPE_CHECKING

import msgspec
from sigstore.dsse import Statement as SignedStatement
from sigstore.errors import Error as SigstoreError
from sigstore.models import Bundle, ClientTrustConfig
from sigstore.oidc import IdentityError, IdentityToken, Issuer, detect_credential
from sigstore.sign import Signer, SigningContext
from sigstore.verify import Verifier
from sigstore.verify.policy import Identity

from channel_tools.conda.solving import one_line
from channel_tools.system.errors import ConfigError, NetworkError, UsageError, VerificationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from channel_tools.conda.contents import JsonObject
    from channel_tools.provenance.trust import SigstoreRequest, TrustedIdentity


def sigstore_signer(request: SigstoreRequest) -> Callable[[bytes], JsonObject]:
    """What signs statements (in-toto, JSON) and returns bundles, all with one certificate, which is asked for here.

    Raises ConfigError for a configuration that is none, UsageError where nobody says as whom to sign or the token does
    not count, NetworkError where Sigstore or the identity provider cannot be reached or refuses.
    """
    given = None if request.token_file is None else _token_in(request.token_file)
    config = _client_config(request.config)
    token = given or _own_token(config)
    with _reaching("Sigstore"):
        signer = Signer(token, SigningContext.from_trust_config(config))

    def sign(statement: bytes) -> JsonObject:
        with _reaching("Sigstore"):
            bundle = signer.sign_dsse(SignedStatement(statement))
        signed: JsonObject = msgspec.json.decode(bundle.to_json())
        return signed

    return sign


def verified_payload(bundle: bytes, trusted: TrustedIdentity) -> bytes:
    """The statement in a bundle that the identity signed.

    Certificate, log entry and signature are checked against the trusted root; the network is asked for no more than the
    public instance's root. Raises VerificationError for anything else, ConfigError and NetworkError for the root.
    """
    verifier, policy = _verifier(trusted.config), Identity(identity=trusted.identity, issuer=trusted.issuer)
    try:
        _kind, payload = verifier.verify_dsse(Bundle.from_json(bundle), policy)
    except (SigstoreError, ValueError) as err:
        raise VerificationError(one_line(err)) from None
    return payload


@functools.cache
def _verifier(config: Path | None) -> Verifier:
    return Verifier(trusted_root=_client_config(config).trusted_root)


def _client_config(path: Path | None) -> ClientTrustConfig:
    if path is None:
        with _reaching("Sigstore's root of trust"):
            return ClientTrustConfig.production()
    try:
        return ClientTrustConfig.from_json(path.read_text(encoding="utf-8"))
    except (SigstoreError, ValueError) as err:
        hint = "give a ClientTrustConfig (trustedRoot and signingConfig) as JSON, as sigstore --trust-config does"
        raise ConfigError(f"not a client configuration of Sigstore: {one_line(err)}", path=path, hint=hint) from None


def _token_in(path: Path) -> IdentityToken:
    try:
        return IdentityToken(path.read_text(encoding="utf-8").strip())
    except (IdentityError, ValueError) as err:
        message = f"{path}: no identity token that counts now: {one_line(err)}"
        raise UsageError(message, hint="give the file of a token (OpenID) that its provider has just issued") from None


def _own_token(config: ClientTrustConfig) -> IdentityToken:
    """The token of the CI service that this runs in, else of whoever logs in with a browser."""
    with _reaching("the identity provider"):
        if (found := detect_credential()) is not None:
            return IdentityToken(found)
    if not sys.stdin.isatty():
        message = "no identity to sign as: no CI service gives one here, and there is no terminal to log in from"
        raise UsageError(message, hint="name a file with an identity token (OpenID) with --identity-token-file")
    with _reaching("the identity provider"):
        return Issuer(config.signing_config.get_oidc_url()).identity_token()


@contextlib.contextmanager
def _reaching(what: str) -> Iterator[None]:
    """Around calls that only ask a service; what they raise, the library's own and requests', has no base in common."""
    try:
        yield
    except Exception as err:
        message = f"{what}: {type(err).__name__}: {one_line(err)}"
        raise NetworkError(message, hint="run the same command again; what was signed stays so") from err
