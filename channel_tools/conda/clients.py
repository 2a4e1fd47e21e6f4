# SPDX-License-Identifier: BSD-3-Clause
"""The client through which channels are read: with the credentials that an address carries, and those kept for it.

A token or password is taken out of an address before rattler sees it, so that no record in an environment, no cache
and no error can carry it, and put back when a request is sent: a password as a header, a token into the path, as it was
given, since some servers know no other form. What users keep for a host (rattler's credentials file or
``RATTLER_AUTH_FILE``, the system's keyring, .netrc) is found by rattler itself.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlunsplit

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

from channel_tools.conda.addresses import parse_address
from channel_tools.system.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_TOKEN = re.compile(r"/t/([^/]+)(?=/|$)")
_WEB_SCHEMES = frozenset({"http", "https"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Credential:
    """What to send to addresses below ``https://host/path``.

    ``address`` is the one that was given, with ``/t/TOKEN`` in it; None where a password was given.
    """

    host: str
    path: str
    authorization: str
    address: str | None = None

    def __repr__(self) -> str:
        """Without the secret."""
        return f"Credential(host={self.host!r}, path={self.path!r})"


def split_credential(address: str) -> tuple[str, Credential | None]:
    """An address without ``user:password@`` and ``/t/TOKEN``, and what these become when they are sent.

    Other schemes than http and https stay as they are. Raises UsageError for an address that cannot be used.
    """
    if address.partition("://")[0].lower() not in _WEB_SCHEMES:
        return address, None
    parts = parse_address(address)
    found = _TOKEN.search(parts.path)
    path = _TOKEN.sub("", parts.path, count=1)
    place = parts.netloc.rpartition("@")[2]
    plain = urlunsplit((parts.scheme, place, path, parts.query, ""))
    given = None
    if found is not None:
        authorization = f"Bearer {unquote(found[1])}"
        given = urlunsplit((parts.scheme, place, parts.path, parts.query, ""))
    elif parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        authorization = "Basic " + base64.b64encode(pair.encode()).decode("ascii")
    else:
        return plain, None
    host = parts.hostname or ""
    return plain, Credential(host=host, path=path.rstrip("/"), authorization=authorization, address=given)


def make_client(channels: Sequence[str]) -> tuple[tuple[str, ...], Client]:
    """The addresses of ``channels`` without credentials, and a client that sends them where they belong.

    Raises ConfigError when the credentials that rattler keeps cannot be read.
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
        raise ConfigError(f"rattler's file of credentials cannot be used: {err}", hint=hint) from None
    return tuple(address for address, _credential in split), client


def _folder(address: str) -> str:
    """With the slash that keeps ``/ours`` apart from ``/ours2``."""
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
