# SPDX-License-Identifier: BSD-3-Clause
"""What the environment says about HTTP: proxies and .netrc."""

from __future__ import annotations

import base64
import ipaddress
import netrc
from pathlib import Path
from typing import TYPE_CHECKING

from channel_tools.system.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from urllib.parse import SplitResult


def basic_authorization(username: str, password: str) -> str:
    """The value of an Authorization header."""
    return "Basic " + base64.b64encode(f"{username}:{password}".encode()).decode("ascii")


def netrc_authorization(host: str, environ: Mapping[str, str]) -> str | None:
    """What .netrc (``NETRC``, else the one in ``HOME``) has for a host, as the value of an Authorization header.

    Raises ConfigError for a file that cannot be read.
    """
    path = Path(environ.get("NETRC") or Path(environ.get("HOME", "/")) / ".netrc")
    if not path.is_file():
        return None
    try:
        found = netrc.netrc(path).authenticators(host)
    except (OSError, netrc.NetrcParseError) as err:
        # not the parser's own words: they may quote the file
        raise ConfigError(f"cannot be read as credentials ({type(err).__name__})", path=path) from None
    return None if found is None else basic_authorization(found[0], found[2] or "")


def proxy_of(parts: SplitResult, environ: Mapping[str, str]) -> str | None:
    """The address of the proxy for requests to an address, None for a direct connection."""

    def variable(name: str) -> str:
        return environ.get(name) or environ.get(name.upper(), "")

    proxy = variable(f"{parts.scheme}_proxy")
    host = (parts.hostname or "").lower()
    if not proxy or any(_is_exempt(host, parts.port, entry) for entry in variable("no_proxy").lower().split(",")):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _is_exempt(host: str, port: int | None, entry: str) -> bool:
    """Whether an entry of NO_PROXY names the host: ``*``, a name or domain, with a port or without, a network."""
    name = entry.strip().lstrip(".")
    if not name:
        return False
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(name.strip("[]"), strict=False)
    except ValueError:
        places = (host, f"{host}:{port}")
        return name == "*" or any(place == name or place.endswith(f".{name}") for place in places)
