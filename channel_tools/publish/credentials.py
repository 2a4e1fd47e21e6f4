# SPDX-License-Identifier: BSD-3-Clause
"""Which token a server is given: from the environment, a file, the address, or rattler's credentials. Never printed."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from channel_tools.clients import split_credential
from channel_tools.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

TOKEN_VARIABLE = "CHANNEL_TOOLS_TOKEN"  # noqa: S105 - a name
TOKEN_FILE_VARIABLE = "CHANNEL_TOOLS_TOKEN_FILE"  # noqa: S105
_RATTLER_VARIABLE = "RATTLER_AUTH_FILE"
_RATTLER_FILE = ".rattler/credentials.json"
WHERE = (
    f"set {TOKEN_VARIABLE} or {TOKEN_FILE_VARIABLE} (a file that holds it), "
    f"or keep it in rattler's credentials ({_RATTLER_VARIABLE}, else ~/{_RATTLER_FILE})"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerAddress:
    """A server's channel without credentials, and what to send with every request to it."""

    url: str
    authorization: str | None

    def __repr__(self) -> str:
        """Without the secret."""
        return f"ServerAddress(url={self.url!r})"


def server_address(address: str, environ: Mapping[str, str]) -> ServerAddress:
    """The address of a channel on a server with the credentials that there are for it, if any.

    Looked at in this order: CHANNEL_TOOLS_TOKEN, the file named by CHANNEL_TOOLS_TOKEN_FILE, the address itself,
    rattler's credentials. Raises ConfigError for a file that is named and cannot be read.
    """
    plain, credential = split_credential(address.rstrip("/"))
    if token := environ.get(TOKEN_VARIABLE, "").strip():
        return ServerAddress(url=plain, authorization=f"Bearer {token}")
    if file := environ.get(TOKEN_FILE_VARIABLE, ""):
        return ServerAddress(url=plain, authorization=f"Bearer {_read_token(Path(file))}")
    if credential is not None:
        return ServerAddress(url=plain, authorization=credential.authorization)
    return ServerAddress(url=plain, authorization=_from_rattler(urlsplit(plain).hostname or "", environ))


def _read_token(path: Path) -> str:
    try:
        token = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as err:
        reason = err.strerror if isinstance(err, OSError) else "is no token"
        message = f"named by {TOKEN_FILE_VARIABLE}, cannot be read: {reason}"
        raise ConfigError(message, path=path, hint="write the token into it, and nothing else") from None
    if not token or any(character.isspace() for character in token):
        message = f"named by {TOKEN_FILE_VARIABLE}, holds no token"
        raise ConfigError(message, path=path, hint="write the token into it, and nothing else")
    return token


def _from_rattler(host: str, environ: Mapping[str, str]) -> str | None:
    kept = kept_for_host(host, environ)
    return None if kept is None else authorization_of(kept)


def kept_for_host(host: str, environ: Mapping[str, str]) -> object:
    """What rattler keeps for a host: its own name first, then ``*.domain``, the longest first. Raises ConfigError."""
    named = environ.get(_RATTLER_VARIABLE, "")
    path = Path(named) if named else Path(environ.get("HOME", "/")) / _RATTLER_FILE
    try:
        kept = json.loads(path.read_bytes())
    except FileNotFoundError:
        if named:
            raise ConfigError(f"named by {_RATTLER_VARIABLE}, is not there", path=path) from None
        return None
    except (OSError, ValueError):  # the content may be a secret: it is not shown
        raise ConfigError("not a file of rattler's credentials", path=path, hint="expected a JSON object") from None
    if not isinstance(kept, dict):
        raise ConfigError("not a file of rattler's credentials", path=path, hint="expected a JSON object")
    domains = [f"*.{host.split('.', count)[-1]}" for count in range(1, host.count(".") + 1)]
    return next((kept[name] for name in (host, *domains) if name in kept), None)


def authorization_of(kept: object) -> str | None:
    """The header for what rattler keeps, None for a form that is not known here."""
    match kept:
        case {"BearerToken": str(token)} | {"CondaToken": str(token)}:
            return f"Bearer {token}"
        case {"BasicHTTP": {"username": str(user), "password": str(password)}}:
            return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode("ascii")
    return None
