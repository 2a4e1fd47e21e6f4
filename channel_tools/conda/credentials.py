# SPDX-License-Identifier: BSD-3-Clause
"""Credentials for what is read or sent over HTTP here and not by rattler: those in an address, else those of its host.

What works for installing works for everything else: rattler's credentials file (``RATTLER_AUTH_FILE``, else
``~/.rattler/credentials.json``), then .netrc. The system's keyring is rattler's alone to read.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from channel_tools.conda.addresses import without_credentials
from channel_tools.conda.clients import split_credential
from channel_tools.system.document import decode_json
from channel_tools.system.errors import ConfigError
from channel_tools.system.http import HttpClient, Retry, Timeouts, basic_authorization, netrc_authorization

if TYPE_CHECKING:
    from collections.abc import Mapping

RATTLER_VARIABLE = "RATTLER_AUTH_FILE"
RATTLER_FILE = ".rattler/credentials.json"


class ChannelCredentials:
    """Finds what to send to an address; each host is looked up once."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._by_host: dict[str, tuple[object, str | None]] = {}

    def request_of(self, url: str) -> tuple[str, dict[str, str]]:
        """The address to ask and the headers that carry credentials; ``/t/TOKEN`` stays in the address.

        Raises ConfigError for a credentials file that cannot be read.
        """
        plain, credential = split_credential(url)
        if credential is not None and credential.address is not None:
            return credential.address, {}
        if credential is not None:
            return plain, {"Authorization": credential.authorization}
        host = urlsplit(plain).hostname or ""
        if host not in self._by_host:
            self._by_host[host] = _stored(host, self._environ)
        entry, authorization = self._by_host[host]
        match entry:
            case {"CondaToken": str(token)}:  # as conda and rattler send it
                parts = urlsplit(plain)
                return parts._replace(path=f"/t/{token}{parts.path}").geturl(), {}
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
    """A client with the proxies that the environment names and the credentials that the user keeps."""
    return HttpClient(environ=environ, credentials=ChannelCredentials(environ), timeouts=timeouts, retry=retry)


def stored_authorization(host: str, environ: Mapping[str, str]) -> str | None:
    """The Authorization header for a host: from rattler's file, else from .netrc. Raises ConfigError."""
    return _stored(host, environ)[1]


def _stored(host: str, environ: Mapping[str, str]) -> tuple[object, str | None]:
    """The host's entry in rattler's file, and the Authorization header from there or from .netrc."""
    entry = _rattler_entry(host, environ)
    return entry, _authorization_of(entry) or netrc_authorization(host, environ)


def _rattler_entry(host: str, environ: Mapping[str, str]) -> object:
    """What rattler keeps for a host: its own name first, then ``*.domain``, the longest first. Raises ConfigError."""
    named = environ.get(RATTLER_VARIABLE, "")
    path = Path(named) if named else Path(environ.get("HOME", "/")) / RATTLER_FILE
    try:
        entries = decode_json(path.read_bytes())
    except FileNotFoundError:
        if named:
            raise ConfigError(f"named by {RATTLER_VARIABLE}, does not exist", path=path) from None
        return None
    except (OSError, ValueError):  # the content may be a secret: it is not shown
        entries = None
    if not isinstance(entries, dict):
        hint = "expected a JSON object: rattler-build auth login HOST --token TOKEN writes one"
        raise ConfigError("not a file of rattler's credentials", path=path, hint=hint)
    domains = [f"*.{host.split('.', count)[-1]}" for count in range(1, host.count(".") + 1)]
    return next((entries[name] for name in (host, *domains) if name in entries), None)


def _authorization_of(entry: object) -> str | None:
    """The header for an entry of rattler's file, None for a form that is not known here."""
    match entry:
        case {"BearerToken": str(token)} | {"CondaToken": str(token)}:
            return f"Bearer {token}"
        case {"BasicHTTP": {"username": str(user), "password": str(password)}}:
            return basic_authorization(user, password)
    return None
