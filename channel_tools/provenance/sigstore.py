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
from pydantic import ValidationError
from sigstore.dsse import Statement as SignedStatement
from sigstore.errors import Error as SigstoreError
from sigstore.models import Bundle, ClientTrustConfig
from sigstore.oidc import IdentityError, IdentityToken, Issuer, detect_credential
from sigstore.sign import SigningContext
from sigstore.verify import Verifier
from sigstore.verify.policy import Identity

from channel_tools.system.errors import ConfigError, NetworkError, UsageError, VerificationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from channel_tools.conda.contents import JsonObject
    from channel_tools.provenance.trust import SigstoreRequest, TrustedIdentity


@contextlib.contextmanager
def sigstore_signing(request: SigstoreRequest) -> Iterator[Callable[[bytes], JsonObject]]:
    """What signs statements (in-toto, JSON) and returns bundles, all with one certificate.

    Raises ConfigError for a configuration that is none, UsageError where nobody says as whom to sign or the token does
    not count, NetworkError where Sigstore or the identity provider cannot be reached or refuses.
    """
    with _reaching("Sigstore"):
        config = _client_config(request.config)
        token = _token(request, config)
        context = SigningContext.from_trust_config(config)
    with contextlib.ExitStack() as held:
        with _reaching("Sigstore"):
            signer = held.enter_context(context.signer(token))

        def sign(statement: bytes) -> JsonObject:
            with _reaching("Sigstore"):
                bundle: JsonObject = msgspec.json.decode(signer.sign_dsse(SignedStatement(statement)).to_json())
            return bundle

        yield sign


def verified_payload(bundle: bytes, trusted: TrustedIdentity) -> bytes:
    """The statement in a bundle that the identity signed.

    Certificate, log entry and signature are checked against the trusted root; the network is asked for no more than the
    public instance's root. Raises VerificationError for anything else, ConfigError and NetworkError for the root.
    """
    verifier, policy = _verifier(trusted.config), Identity(identity=trusted.identity, issuer=trusted.issuer)
    try:
        _kind, payload = verifier.verify_dsse(Bundle.from_json(bundle), policy)
    except (SigstoreError, ValueError) as err:
        raise VerificationError(_one_line(err)) from None
    return payload


@functools.cache
def _verifier(config: Path | None) -> Verifier:
    with _reaching("Sigstore's trusted root"):
        return Verifier(trusted_root=_client_config(config).trusted_root)


def _client_config(path: Path | None) -> ClientTrustConfig:
    if path is None:
        return ClientTrustConfig.production()
    try:
        return ClientTrustConfig.from_json(path.read_text(encoding="utf-8"))
    except (SigstoreError, ValidationError, ValueError) as err:
        hint = "give a ClientTrustConfig (trustedRoot and signingConfig) as JSON, as sigstore --trust-config does"
        raise ConfigError(f"not a client configuration of Sigstore: {_one_line(err)}", path=path, hint=hint) from None


def _token(request: SigstoreRequest, config: ClientTrustConfig) -> IdentityToken:
    hint = "name a file with an identity token (OpenID) with --identity-token-file"
    try:
        if request.token_file is not None:
            return IdentityToken(request.token_file.read_text(encoding="utf-8").strip())
        if (found := detect_credential()) is not None:
            return IdentityToken(found)
    except IdentityError as err:
        raise UsageError(f"no identity to sign as: {_one_line(err)}", hint=hint) from None
    if not sys.stdin.isatty():
        message = "no identity to sign as: no CI service gives one here, and there is no terminal to log in from"
        raise UsageError(message, hint=hint)
    return Issuer(config.signing_config.get_oidc_url()).identity_token()


@contextlib.contextmanager
def _reaching(what: str) -> Iterator[None]:
    """What the library raises as an error of ours; its errors have no base in common."""
    try:
        yield
    except (ConfigError, UsageError, FileNotFoundError, PermissionError):
        raise
    except Exception as err:
        message = f"{what}: {type(err).__name__}: {_one_line(err)}"
        raise NetworkError(message, hint="run the same command again; what was signed stays so") from err


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
