# SPDX-License-Identifier: BSD-3-Clause
"""Credentials for channels that are read here and not by rattler: those in the address, else those kept for its host.

The places are rattler's own (``RATTLER_AUTH_FILE``, ``~/.rattler/credentials.json``) and .netrc, so that what works for
installing works for mirroring. The system's keyring is rattler's alone to read.
"""

from __future__ import annotations

import base64
import json
import netrc
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from channel_tools.clients import split_credential
from channel_tools.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

AUTH_FILE_VARIABLE = "RATTLER_AUTH_FILE"
_USUAL_FILE = ".rattler/credentials.json"


class Credentials:
    """Finds what to send to an address; files are read once, when they are first needed."""

    def __init__(self, environ: Mapping[str, str], home: Path) -> None:
        self._environ = environ
        self._home = home
        self._kept: dict[str, object] | None = None
        self._by_host: dict[str, object] = {}

    def request_of(self, url: str) -> tuple[str, dict[str, str]]:
        """The address to ask, without credentials, and the headers that carry them.

        Raises ConfigError for a credentials file that cannot be read.
        """
        plain, credential = split_credential(url)
        if credential is not None:
            return plain, {"Authorization": credential.authorization}
        host = urlsplit(plain).hostname or ""
        if host not in self._by_host:
            self._by_host[host] = self._find(host)
        kept = self._by_host[host]
        if isinstance(kept, dict) and isinstance(token := kept.get("CondaToken"), str):
            parts = urlsplit(plain)
            return parts._replace(path=f"/t/{token}{parts.path}").geturl(), {}
        authorization = _authorization(kept)
        return plain, {} if authorization is None else {"Authorization": authorization}

    def _find(self, host: str) -> object:
        """What is kept for a host, in the form of rattler's file."""
        if self._kept is None:
            self._kept = self._read()
        names = [host, *(f"*.{host.split('.', number)[-1]}" for number in range(1, host.count(".") + 1))]
        return next((self._kept[name] for name in names if name in self._kept), None) or self._netrc(host)

    def _read(self) -> dict[str, object]:
        named = self._environ.get(AUTH_FILE_VARIABLE)
        path = Path(named) if named else self._home / _USUAL_FILE
        if not path.is_file():
            return {}
        try:
            kept = json.loads(path.read_bytes())
        except (OSError, ValueError) as err:
            # not the parser's own words: they may quote the file
            message = f"cannot be read as credentials ({type(err).__name__})"
            raise ConfigError(message, path=path, hint='expected {"HOST": {"BearerToken": "..."}}') from None
        return kept if isinstance(kept, dict) else {}

    def _netrc(self, host: str) -> object:
        path = Path(self._environ.get("NETRC") or self._home / ".netrc")
        if not path.is_file():
            return None
        try:
            found = netrc.netrc(path).authenticators(host)
        except (OSError, netrc.NetrcParseError) as err:
            message = f"cannot be read as credentials ({type(err).__name__})"
            raise ConfigError(message, path=path) from None
        return None if found is None else {"BasicHTTP": {"username": found[0], "password": found[2] or ""}}


def _authorization(kept: object) -> str | None:
    match kept:
        case {"BearerToken": str(token)}:
            return f"Bearer {token}"
        case {"BasicHTTP": {"username": str(user), "password": str(password)}}:
            return basic(user, password)
    return None


def basic(user: str, password: str) -> str:
    """The header's value for a user and a password."""
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode("ascii")
