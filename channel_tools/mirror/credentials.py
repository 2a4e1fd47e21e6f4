# SPDX-License-Identifier: BSD-3-Clause
"""Credentials for channels that are read here and not by rattler: those in the address, else those kept for its host.

What works for installing works for mirroring: rattler's credentials file and .netrc. The system's keyring is rattler's
alone to read, and our own token variables are for publishing: a channel that is mirrored may be anybody's.
"""

from __future__ import annotations

import netrc
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from channel_tools.clients import split_credential
from channel_tools.errors import ConfigError
from channel_tools.publish.credentials import authorization_of, kept_for_host

if TYPE_CHECKING:
    from collections.abc import Mapping


class Credentials:
    """Finds what to send to an address; each host is looked up once."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._by_host: dict[str, object] = {}

    def request_of(self, url: str) -> tuple[str, dict[str, str]]:
        """The address to ask and the headers that carry credentials; ``/t/TOKEN`` stays in the address.

        Raises ConfigError for a credentials file that cannot be read.
        """
        plain, credential = split_credential(url)
        if credential is not None:
            return (
                (credential.address, {}) if credential.address else (plain, {"Authorization": credential.authorization})
            )
        host = urlsplit(plain).hostname or ""
        if host not in self._by_host:
            self._by_host[host] = kept_for_host(host, self._environ) or self._netrc(host)
        kept = self._by_host[host]
        match kept:
            case {"CondaToken": str(token)}:  # as conda and rattler send it
                parts = urlsplit(plain)
                return parts._replace(path=f"/t/{token}{parts.path}").geturl(), {}
        authorization = authorization_of(kept)
        return plain, {} if authorization is None else {"Authorization": authorization}

    def _netrc(self, host: str) -> object:
        """What .netrc has for a host, in the form of rattler's file."""
        path = Path(self._environ.get("NETRC") or Path(self._environ.get("HOME", "/")) / ".netrc")
        if not path.is_file():
            return None
        try:
            found = netrc.netrc(path).authenticators(host)
        except (OSError, netrc.NetrcParseError) as err:
            # not the parser's own words: they may quote the file
            raise ConfigError(f"cannot be read as credentials ({type(err).__name__})", path=path) from None
        return None if found is None else {"BasicHTTP": {"username": found[0], "password": found[2] or ""}}
