# SPDX-License-Identifier: BSD-3-Clause
"""Signing with Sigstore, and checking such signatures: as an identity of an OpenID provider, without a stored key.

sigstore-python (the extra ``sigstore``) gets a certificate that is valid for ten minutes and enters each signature in a
public log. Its bundles are in a package's attestation file with those of keys, where conda clients read them (CEP 27).
"""

from __future__ import annotations

import contextlib
import functools
import sys
from typing import TYPE_CHECKING

from sigstore.dsse import Statement as SignedStatement
from sigstore.errors import Error as SigstoreError
from sigstore.models import Bundle, ClientTrustConfig
from sigstore.oidc import IdentityError, IdentityToken, Issuer, detect_credential
from sigstore.sign import Signer, SigningContext
from sigstore.verify import Verifier
from sigstore.verify.policy import Identity

from channel_tools.conda.solving import one_line
from channel_tools.system.document import decode_json
from channel_tools.system.errors import ConfigError, NetworkError, UsageError, VerificationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from channel_tools.conda.contents import JsonObject
    from channel_tools.provenance.trust import TrustedIdentity

_LIBRARIES = frozenset({"sigstore", "id"})
"""Whose errors are a service's: sigstore-python, and the package that finds the identity of a CI service."""


def sigstore_signer(config: Path | None, token_file: Path | None) -> Callable[[bytes], JsonObject]:
    """A function that signs statements (in-toto, JSON) and returns bundles, all with one certificate requested here.

    ``config`` is a client configuration (None: the public instance), ``token_file`` has an identity token (None: that
    of the CI service that this runs in, else a browser is opened).

    Raises ConfigError for an invalid configuration, UsageError if there is no identity to sign as or the token is not
    valid, NetworkError if Sigstore or the identity provider cannot be reached or refuses.
    """
    file_token = None if token_file is None else _token_in(token_file)
    trust_config = _client_config(config)
    token = file_token or _own_token(trust_config)
    with failures_reported("Sigstore"):
        signer = Signer(token, SigningContext.from_trust_config(trust_config))

    def sign(statement: bytes) -> JsonObject:
        with failures_reported("Sigstore"):
            bundle = signer.sign_dsse(SignedStatement(statement))
        signed: JsonObject = decode_json(bundle.to_json())
        return signed

    return sign


def verified_payload(bundle: bytes, trusted: TrustedIdentity) -> bytes:
    """The statement in a bundle that the identity signed.

    Certificate, log entry and signature are checked against the trusted root; the network is used only to fetch the
    public instance's root. Raises VerificationError if a check fails, ConfigError and NetworkError for the root.
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
        with failures_reported("Sigstore's root of trust"):
            return ClientTrustConfig.production()
    try:
        return ClientTrustConfig.from_json(path.read_text(encoding="utf-8"))
    except (SigstoreError, ValueError) as err:
        hint = "give a ClientTrustConfig (trustedRoot and signingConfig) as JSON"
        raise ConfigError(f"not a valid Sigstore client configuration: {one_line(err)}", path=path, hint=hint) from None


def _token_in(path: Path) -> IdentityToken:
    try:
        return IdentityToken(path.read_text(encoding="utf-8").strip())
    except (IdentityError, ValueError) as err:
        message = f"{path}: not a valid identity token at this time: {one_line(err)}"
        raise UsageError(message, hint="give a file with an OpenID token that its provider has just issued") from None


def _own_token(config: ClientTrustConfig) -> IdentityToken:
    """The token of the CI service that this runs in, else that of a user who logs in with a browser."""
    with failures_reported("the identity provider"):
        if (credential := detect_credential()) is not None:
            return IdentityToken(credential)
    if not sys.stdin.isatty():
        message = "no identity to sign as: no CI service provides one, and there is no terminal to log in from"
        raise UsageError(message, hint="give a file with an OpenID identity token with --identity-token-file")
    with failures_reported("the identity provider"):
        return Issuer(config.signing_config.get_oidc_url()).identity_token()


@contextlib.contextmanager
def failures_reported(task: str) -> Iterator[None]:
    """Turn what goes wrong with a service into a NetworkError.

    The library's errors have no common base, and some have no public name; those of requests are OSErrors. A service
    that answers in another way gives a ValueError or a KeyError.
    """
    try:
        yield
    except Exception as err:
        of_library = type(err).__module__.partition(".")[0] in _LIBRARIES
        if not of_library and not isinstance(err, (OSError, ValueError, KeyError)):
            raise
        message = f"{task}: {type(err).__name__}: {one_line(err)}"
        raise NetworkError(message, hint="run the same command again; what was already signed is kept") from err
