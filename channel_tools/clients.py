# SPDX-License-Identifier: BSD-3-Clause
"""The client through which channels are read: with the credentials that an address carries, and those kept for it.

A token or password is taken out of an address before rattler sees it and sent as a header instead, so that no record
in an environment, no cache and no error can carry it. What users keep for a host (rattler's credentials file or
``RATTLER_AUTH_FILE``, the system's keyring, .netrc) is found by rattler itself.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit, urlunsplit

from rattler.networking import (
    AddHeadersMiddleware,
    AuthenticationMiddleware,
    Client,
    GCSMiddleware,
    OciMiddleware,
    RetryMiddleware,
    S3Middleware,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_TOKEN = re.compile(r"/t/([^/]+)(?=/|$)")
_WEB_SCHEMES = frozenset({"http", "https"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Credential:
    """What to send to addresses below ``https://host/path``."""

    host: str
    path: str
    authorization: str

    def __repr__(self) -> str:
        """Without the secret."""
        return f"Credential(host={self.host!r}, path={self.path!r})"


def split_credential(address: str) -> tuple[str, Credential | None]:
    """An address without ``user:password@`` and ``/t/TOKEN``, and what these become as a header.

    Other schemes than http and https stay as they are.
    """
    parts = urlsplit(address)
    if parts.scheme not in _WEB_SCHEMES:
        return address, None
    found = _TOKEN.search(parts.path)
    path = _TOKEN.sub("", parts.path, count=1)
    plain = urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], path, parts.query, ""))
    if found is not None:
        authorization = f"Bearer {unquote(found[1])}"
    elif parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        authorization = "Basic " + base64.b64encode(pair.encode()).decode("ascii")
    else:
        return plain, None
    return plain, Credential(host=parts.hostname or "", path=path.rstrip("/"), authorization=authorization)


def make_client(channels: Sequence[str]) -> tuple[tuple[str, ...], Client]:
    """The addresses of ``channels`` without credentials, and a client that sends them where they belong."""
    split = [split_credential(channel) for channel in channels]
    credentials = [credential for _address, credential in split if credential is not None]
    client = Client(
        [
            RetryMiddleware(),
            AuthenticationMiddleware(),
            OciMiddleware(),
            GCSMiddleware(),
            S3Middleware(),
            AddHeadersMiddleware(_header_finder(credentials)),
        ]
    )
    return tuple(address for address, _credential in split), client


def _header_finder(credentials: Sequence[Credential]) -> Callable[[str, str], dict[str, str] | None]:
    """Finds what to send for a host and path; the longest matching path wins."""
    longest_first = sorted(credentials, key=lambda one: -len(one.path))

    def find(host: str, path: str) -> dict[str, str] | None:
        for one in longest_first:
            if one.host == host and (path == one.path or path.startswith(one.path + "/")):
                return {"Authorization": one.authorization}
        return None

    return find
