# SPDX-License-Identifier: BSD-3-Clause
"""Reads channels with credentials: the client for rattler, and the one for our own HTTP requests.

A token or password is removed from an address before rattler gets it, so that no record in an environment, no cache and
no error can contain it, and added again when a request is sent: a password as a header, a token in the path, as given,
since some servers support no other form. Credentials stored for a host (rattler's credentials file or
``RATTLER_AUTH_FILE``, the system's keyring, .netrc) are found by rattler itself, except where it would send them on to
others: such channels it reads through ours (relay.py).

What users have configured for conda, rattler and pixi holds for both (``user_settings``): proxies, certificates and
mirrors.

Our own requests use the same: rattler's credentials file (``RATTLER_AUTH_FILE``, else ``~/.rattler/credentials.json``),
then .netrc. Only rattler reads the system's keyring.
"""

from __future__ import annotations

import functools
import json
import logging
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rattler import Config
from rattler.exceptions import AuthenticationStorageError
from rattler.networking import (
    AddHeadersMiddleware,
    AuthenticationMiddleware,
    Client,
    GCSMiddleware,
    MirrorMiddleware,
    OciMiddleware,
    RetryMiddleware,
    S3Middleware,
)
from rattler.networking.middleware import S3Config

from channel_tools.conda.addresses import (
    NOT_SENT,
    host_of,
    is_confidential,
    is_web,
    path_of,
    split_credentials,
    text_without_credentials,
    with_token,
    without_credentials,
    without_quoted,
    without_user,
)
from channel_tools.conda.relay import RELAY_HOST, start_relay
from channel_tools.conda.user_settings import find_user_settings
from channel_tools.system.document import decode_json
from channel_tools.system.errors import ConfigError
from channel_tools.system.http.client import HttpClient, Tls, basic_authorization, netrc_authorization

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from channel_tools.conda.user_settings import UserSettings
    from channel_tools.system.http.client import Credentials
    from channel_tools.system.http.pace import Retry, Timeouts


_log = logging.getLogger(__name__)


_NO_PROXY = ("no_proxy", "NO_PROXY")


@dataclass(frozen=True, kw_only=True, slots=True)
class Credential:
    """What to send to addresses below ``https://host/path``.

    ``address`` is the given one, with ``/t/TOKEN`` in it; None if a password was given.
    """

    host: str
    path: str
    authorization: str
    address: str | None = None

    def __repr__(self) -> str:
        """A text without the secret."""
        return f"Credential(host={self.host!r}, path={self.path!r})"


def split_credential(address: str) -> tuple[str, Credential | None]:
    """An address without ``user:password@`` and ``/t/TOKEN``, and the credential made from these.

    Both are in the normal form, in which rattler asks for them. Addresses with schemes other than http and https are
    unchanged. Raises UsageError for one that cannot be used.
    """
    if not is_web(address):
        return address, None
    plain, token, user = split_credentials(address)
    token_address = None
    if token is not None:
        authorization = f"Bearer {token}"
        token_address = without_user(address)
    elif user is not None:
        authorization = basic_authorization(*user)
    else:
        return plain, None
    path = path_of(plain).rstrip("/")
    return plain, Credential(host=host_of(plain), path=path, authorization=authorization, address=token_address)


def make_client(channels: Sequence[str]) -> tuple[tuple[str, ...], Client]:
    """The addresses of ``channels`` without credentials, and a client that sends them where they belong.

    Rattler reads proxies, certificates and the name of its credentials file from the process's environment, so what
    the user's settings say of these is set there. Raises ConfigError if the settings or the credentials stored for
    rattler cannot be read.
    """
    settings = find_user_settings(os.environ)
    os.environ.update(settings.variables())
    split = [split_credential(channel) for channel in channels]
    relayed = {
        _folder(plain): _folder(channel)
        for channel, (plain, credential) in zip(channels, split, strict=True)
        if is_web(plain) and _needs_relay(plain, credential, settings)
    }
    mirrors = {_folder(address): places for address, places in settings.rattler.mirrors.items()}
    if relayed:
        mirrors |= relayed_by(make_http_client(dict(os.environ)), relayed)
    by_header = [credential for plain, credential in split if credential and _folder(plain) not in relayed]
    try:
        client = (
            _checking(settings, mirrors, by_header) if settings.verifies else _trusting(settings, mirrors, by_header)
        )
    except AuthenticationStorageError as err:
        hint = "correct the file, or name another with RATTLER_AUTH_FILE"
        raise ConfigError(f"rattler's credentials file cannot be used: {without_quoted(str(err))}", hint=hint) from None
    return tuple(address for address, _credential in split), client


def relayed_by(client: HttpClient, channels: Mapping[str, str]) -> dict[str, list[str]]:
    """The mirrors by which rattler asks ``client`` for channels; see start_relay.

    The process's environment is changed so that rattler reaches them without a proxy.
    """
    relay = start_relay(client, channels)
    direct = [host for name in _NO_PROXY for host in os.environ.get(name, "").split(",") if host]
    os.environ.update(dict.fromkeys(_NO_PROXY, ",".join(dict.fromkeys([*direct, RELAY_HOST]))))
    return {plain: [relay.address_of(plain)] for plain in channels}


class KeyCredentials:
    """A service's key, as the header by which it takes it, for addresses below one; nothing for others."""

    def __init__(self, below: str, header: tuple[str, str]) -> None:
        """``below`` ends with a slash."""
        self._below = below
        self._header = header

    def request_of(self, url: str) -> tuple[str, dict[str, str]]:
        """The address, and the header where it is below the service's."""
        return url, dict([self._header]) if url.startswith(self._below) else {}

    def hint_of(self, url: str) -> str:  # noqa: ARG002 - as for all credentials
        """What to do where a server refuses to give ``url``."""
        return "check the address and the key"

    def redact(self, url: str) -> str:
        """The address without user information, token and query."""
        return without_credentials(url)

    def redact_text(self, text: str) -> str:
        """A library's message without credentials and the key."""
        return text_without_credentials(text).replace(self._header[1], "***")


def _needs_relay(plain: str, credential: Credential | None, settings: UserSettings) -> bool:
    """Whether rattler would send a secret of this channel where it must not go; see relay.py."""
    if credential is not None and credential.address is not None:
        return True
    places = next(
        (list(to) for of, to in settings.rattler.mirrors.items() if _folder(plain).startswith(_folder(of))), []
    )
    if any(not is_confidential(address) for address in (plain, *places)):
        return True
    if any(split_credential(place)[1] is not None for place in places):
        return True
    match _rattler_entry(host_of(plain), os.environ):
        case {"CondaToken": str()}:
            return True
    return False


def _checking(settings: UserSettings, mirrors: dict[str, list[str]], by_header: Sequence[Credential]) -> Client:
    buckets = {
        bucket: S3Config(options["endpoint-url"], options["region"], options.get("addressing-style", "virtual-host"))
        for bucket, options in settings.rattler.s3_options.items()
    }
    return Client(
        [
            RetryMiddleware(),
            MirrorMiddleware(mirrors),
            AuthenticationMiddleware(),
            OciMiddleware(),
            GCSMiddleware(),
            S3Middleware(buckets),
            AddHeadersMiddleware(_header_finder(by_header)),
        ]
    )


def _trusting(settings: UserSettings, mirrors: dict[str, list[str]], by_header: Sequence[Credential]) -> Client:
    """A client that verifies no certificate, which rattler makes only from its own configuration."""
    _warn_of_trust(settings.unverified_by)
    if by_header:
        message = f"{by_header[0].host}: a password in the address, and settings by which no certificate is verified"
        raise ConfigError(message, hint="rattler does not do both: give a token (/t/TOKEN), or the password in .netrc")
    config = settings.rattler.merge(Config.from_toml("tls-no-verify = true"))
    config.set("mirrors", json.dumps(mirrors))
    return Client.from_config(config)


@functools.cache  # once for each run
def _warn_of_trust(origin: str) -> None:
    _log.warning("certificates of servers are not verified (%s)", origin)


def _folder(address: str) -> str:
    """The path with a final slash, which distinguishes ``/ours`` from ``/ours2``."""
    return address.rstrip("/") + "/"


def _header_finder(credentials: Sequence[Credential]) -> Callable[[str, str], dict[str, str] | None]:
    """Finds what to send for a host and path; the longest matching path wins."""
    longest_first = sorted(credentials, key=lambda credential: -len(credential.path))

    def find(host: str, path: str) -> dict[str, str] | None:
        for credential in longest_first:
            if credential.host == host and (path == credential.path or path.startswith(credential.path + "/")):
                return {"Authorization": credential.authorization}
        return None

    return find


RATTLER_VARIABLE = "RATTLER_AUTH_FILE"
RATTLER_FILE = ".rattler/credentials.json"


class ChannelCredentials:
    """Finds what to send to an address; each host is looked up once."""

    def __init__(self, environ: Mapping[str, str], mirrors: Mapping[str, Sequence[str]] | None = None) -> None:
        """With ``mirrors``, what is below an address of it is asked for below the first of its mirrors."""
        self._environ = environ
        self._mirrors = sorted((mirrors or {}).items(), key=lambda item: -len(item[0]))
        self._by_host: dict[str, tuple[object, str | None]] = {}

    def request_of(self, url: str) -> tuple[str, dict[str, str]]:
        """The address to request and the headers with credentials; ``/t/TOKEN`` stays in the address.

        Raises ConfigError for a credentials file that cannot be read.
        """
        plain, credential = split_credential(self._mirrored(url))
        if credential is not None and credential.address is not None:
            return credential.address, {}
        if credential is not None:
            return plain, {"Authorization": credential.authorization}
        if not is_confidential(plain):
            return plain, {}
        host = host_of(plain)
        if host not in self._by_host:
            self._by_host[host] = _stored(host, self._environ)
        entry, authorization = self._by_host[host]
        match entry:
            case {"CondaToken": str(token)}:  # as conda and rattler send it
                return with_token(plain, token), {}
        return plain, {} if authorization is None else {"Authorization": authorization}

    def _mirrored(self, url: str) -> str:
        for address, places in self._mirrors:
            below = _folder(address)
            if url.startswith(below) and places:
                return _folder(places[0]) + url.removeprefix(below)
        return url

    def hint_of(self, url: str) -> str:
        """What to do where a server refuses to give ``url``."""
        return "check the address" if is_confidential(self._mirrored(url)) else f"check the address; {NOT_SENT}"

    def redact(self, url: str) -> str:
        """The address without user information, token and query."""
        return without_credentials(url)

    def redact_text(self, text: str) -> str:
        """A library's message, with the credentials of any address in it taken out."""
        return " ".join(re.sub(r"/t/[^/\s]+", "/t/***", text_without_credentials(text)).split())


def make_http_client(
    environ: Mapping[str, str],
    *,
    timeouts: Timeouts | None = None,
    retry: Retry | None = None,
    writes: bool = False,
    credentials: Credentials | None = None,
) -> HttpClient:
    """A client with the user's stored credentials, and proxies and certificates from the environment or the settings.

    Mirrors of the settings are only read from, so a client that ``writes`` has none. ``credentials`` are used instead
    of the stored ones.

    Raises ConfigError for settings that cannot be read.
    """
    settings = find_user_settings(environ)
    if not settings.verifies:
        _warn_of_trust(settings.unverified_by)
    known = {**environ, **settings.variables()}
    tls = Tls(
        verifies=settings.verifies,
        certificates=settings.certificates if {"SSL_CERT_FILE", "SSL_CERT_DIR"}.isdisjoint(environ) else None,
        client=settings.client_certificate,
    )
    chosen = credentials or ChannelCredentials(known, {} if writes else settings.rattler.mirrors)
    return HttpClient(environ=known, credentials=chosen, timeouts=timeouts, retry=retry, tls=tls)


def stored_authorization(address: str, environ: Mapping[str, str]) -> str | None:
    """The Authorization header for an address: that of its host in rattler's file, else in .netrc.

    None for an address that others could read on the way. Raises ConfigError.
    """
    return _stored(host_of(address), environ)[1] if is_confidential(address) else None


def _stored(host: str, environ: Mapping[str, str]) -> tuple[object, str | None]:
    """The host's entry in rattler's file, and the Authorization header from there or from .netrc."""
    entry = _rattler_entry(host, environ)
    return entry, _authorization_of(entry) or netrc_authorization(host.strip("[]"), environ)


def _rattler_entry(host: str, environ: Mapping[str, str]) -> object:
    """The entry of rattler's file for a host: its own name first, then ``*.domain``, longest first."""
    named = environ.get(RATTLER_VARIABLE, "")
    path = Path(named) if named else Path(environ.get("HOME", "/")) / RATTLER_FILE
    try:
        entries = decode_json(path.read_bytes())
    except FileNotFoundError:
        if named:
            raise ConfigError(f"named by {RATTLER_VARIABLE}, does not exist", path=path) from None
        return None
    except (OSError, ValueError):  # the content may be a secret, so it is not shown
        entries = None
    if not isinstance(entries, dict):
        hint = 'expected a JSON object such as {"HOST": {"BearerToken": "TOKEN"}}'
        raise ConfigError("not a credentials file of rattler", path=path, hint=hint)
    domains = [f"*.{host.split('.', count)[-1]}" for count in range(1, host.count(".") + 1)]
    return next((entries[name] for name in (host, *domains) if name in entries), None)


def _authorization_of(entry: object) -> str | None:
    """The header for an entry of rattler's file; None for an unknown form."""
    match entry:
        case {"BearerToken": str(token)} | {"CondaToken": str(token)}:
            return f"Bearer {token}"
        case {"BasicHTTP": {"username": str(user), "password": str(password)}}:
            return basic_authorization(user, password)
    return None
