# SPDX-License-Identifier: BSD-3-Clause
"""Addresses of channels and packages, and the credentials that must not leave with them.

Three places in an address can hold a secret: the user information before the host, a ``/t/TOKEN`` in the path (conda's
own form) and a query (signed addresses of object stores). What is written, logged or shown has none of them.
"""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit
from urllib.request import url2pathname

_UNREADABLE = "(an address that cannot be read)"
_TOKEN = re.compile(r"/t/[^/]+(?=/|$)")
_CHANNEL_ALIAS = "https://conda.anaconda.org"
_LOCAL_SCHEMES = frozenset({"", "file"})


def channel_address(channel: str) -> str:
    """The address of a channel, without a slash at its end.

    Text is an address (with ``://``), a folder (with a slash, or one that exists), or else a channel's name on
    anaconda.org, as conda and rattler read it.
    """
    if "://" in channel:
        folder = local_path(channel)
        return channel.rstrip("/") if folder is None else folder.as_uri()
    folder = Path(channel).expanduser()
    if "/" in channel or folder.is_dir():
        return folder.absolute().as_uri()
    return f"{_CHANNEL_ALIAS}/{channel}"


def without_credentials(address: str) -> str:
    """``address`` without user information, token, query and fragment; local addresses have none and stay.

    Of what cannot be taken apart nothing is shown: where its secrets are, cannot be known.
    """
    try:
        parts = urlsplit(address)
    except ValueError:
        return _UNREADABLE
    if parts.scheme in _LOCAL_SCHEMES:
        return address
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], _TOKEN.sub("", parts.path), "", ""))


def has_credentials(address: str) -> bool:
    """Whether ``address`` holds what without_credentials takes away."""
    return without_credentials(address) != address


def local_path(address: str) -> Path | None:
    """The file or folder that a ``file://`` address names, None for any other address."""
    parts = urlsplit(address)
    return Path(url2pathname(parts.path)) if parts.scheme == "file" else None


def file_name_of(address: str) -> str:
    """The last part of an address' path, as a file's name."""
    return unquote(urlsplit(address).path.rpartition("/")[2])
