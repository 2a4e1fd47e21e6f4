# SPDX-License-Identifier: BSD-3-Clause
"""Reads channels with credentials: the client for rattler, and the one for our own HTTP requests.

A token or password is removed from an address before rattler gets it, so that no record in an environment, no cache and
no error can contain it, and added again when a request is sent: a password as a header, a token in the path, as given,
since some servers support no other form. Credentials stored for a host (rattler's credentials file or
``RATTLER_AUTH_FILE``, the system's keyring, .netrc) are found by rattler itself.

Our own requests use the same: rattler's credentials file (``RATTLER_AUTH_FILE``, else ``~/.rattler/credentials.json``),
then .netrc. Only rattler reads the system's keyring.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

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

from channel_tools.conda.addresses import (
    host_of,
    is_web,
    path_of,
    split_credentials,
    with_token,
    without_credentials,
    without_user,
)
from channel_tools.system.document import decode_json
from channel_tools.system.errors import ConfigError
from channel_tools.system.http.client import HttpClient, basic_authorization, netrc_authorization

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from channel_tools.system.http.pace import Retry, Timeouts


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
    given = None
    if token is not None:
        authorization = f"Bearer {token}"
        given = without_user(address)
    elif user is not None:
        authorization = basic_authorization(*user)
    else:
        return plain, None
    path = path_of(plain).rstrip("/")
    return plain, Credential(host=host_of(plain), path=path, authorization=authorization, address=given)


def make_client(channels: Sequence[str]) -> tuple[tuple[str, ...], Client]:
    """The addresses of ``channels`` without credentials, and a client that sends them where they belong.

    Raises ConfigError if the credentials stored for rattler cannot be read.
    """
    split = [split_credential(channel) for channel in channels]
    credentials = [credential for _address, credential in split if credential is not None]
    with_token = {_folder(plain): [_folder(one.address)] for plain, one in split if one and one.address}
    try:
        client = Client(
            [
                RetryMiddleware(),
                MirrorMiddleware(with_token),
                AuthenticationMiddleware(),
                OciMiddleware(),
                GCSMiddleware(),
                S3Middleware(),
                AddHeadersMiddleware(_header_finder([one for one in credentials if one.address is None])),
            ]
        )
    except AuthenticationStorageError as err:
        hint = "correct the file, or name another with RATTLER_AUTH_FILE"
        raise ConfigError(f"rattler's credentials file cannot be used: {err}", hint=hint) from None
    return tuple(address for address, _credential in split), client


def _folder(address: str) -> str:
    """The path with a final slash, which distinguishes ``/ours`` from ``/ours2``."""
    return address.rstrip("/") + "/"


def _header_finder(credentials: Sequence[Credential]) -> Callable[[str, str], dict[str, str] | None]:
    """Finds what to send for a host and path; the longest matching path wins."""
    longest_first = sorted(credentials, key=lambda one: -len(one.path))

    def find(host: str, path: str) -> dict[str, str] | None:
        for one in longest_first:
            if one.host == host and (path == one.path or path.startswith(one.path + "/")):
                return {"Authorization": one.authorization}
        return None

    return find


RATTLER_VARIABLE = "RATTLER_AUTH_FILE"
RATTLER_FILE = ".rattler/credentials.json"


class ChannelCredentials:
    """Finds what to send to an address; each host is looked up once."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._by_host: dict[str, tuple[object, str | None]] = {}

    def request_of(self, url: str) -> tuple[str, dict[str, str]]:
        """The address to request and the headers with credentials; ``/t/TOKEN`` stays in the address.

        Raises ConfigError for a credentials file that cannot be read.
        """
        plain, credential = split_credential(url)
        if credential is not None and credential.address is not None:
            return credential.address, {}
        if credential is not None:
            return plain, {"Authorization": credential.authorization}
        host = host_of(plain)
        if host not in self._by_host:
            self._by_host[host] = _stored(host, self._environ)
        entry, authorization = self._by_host[host]
        match entry:
            case {"CondaToken": str(token)}:  # as conda and rattler send it
                return with_token(plain, token), {}
        return plain, {} if authorization is None else {"Authorization": authorization}

    def redact(self, url: str) -> str:
        """The address without user information, token and query."""
        return without_credentials(url)

    def redact_text(self, text: str) -> str:
        """A library's message, with the credentials of any address in it taken out."""
        shown = re.sub(r"[a-z]+://\S+", lambda found: without_credentials(found[0]), text)
        return " ".join(re.sub(r"/t/[^/\s]+", "/t/***", shown).split())


def make_http_client(
    environ: Mapping[str, str], *, timeouts: Timeouts | None = None, retry: Retry | None = None
) -> HttpClient:
    """A client with the proxies from the environment and the user's stored credentials."""
    return HttpClient(environ=environ, credentials=ChannelCredentials(environ), timeouts=timeouts, retry=retry)


def stored_authorization(host: str, environ: Mapping[str, str]) -> str | None:
    """The Authorization header for a host: from rattler's file, else from .netrc. Raises ConfigError."""
    return _stored(host, environ)[1]


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
