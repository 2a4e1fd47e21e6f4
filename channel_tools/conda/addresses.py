# SPDX-License-Identifier: BSD-3-Clause
"""Parses and checks addresses of channels and packages, and removes credentials from them.

Three places in an address can contain a secret: the user information before the host, a ``/t/TOKEN`` in the path
(conda's own form) and a query (signed addresses of object stores). None of them is ever written, logged or shown.
"""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

from channel_tools.system.errors import UsageError
from channel_tools.system.settings import user_path

_UNREADABLE = "(an address that cannot be read)"
_TOKEN = re.compile(r"/t/[^/]+(?=/|$)")
_CHANNEL_ALIAS = "https://conda.anaconda.org"
_LOCAL_SCHEMES = frozenset({"", "file"})
_CHANNEL_SCHEMES = frozenset({"file", "http", "https", "s3", "gcs", "oci"})
"""The schemes that rattler can read channels from."""
_CHANNEL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_MAY_BE_SECRET = re.compile(r"[@?]|/t/")
_UNPRINTABLE = re.compile(r"[\x00-\x20\x7f\ud800-\udfff]")
_FORMS = "https://HOST/CHANNEL, file:///FOLDER or a folder"


def parse_address(address: str, *, forms: str = _FORMS) -> SplitResult:
    """Parse an address with ``://``; ``forms`` describes the valid forms for the error message.

    Raises UsageError for one that cannot be used: without a host, or without a folder for ``file://``, with a port that
    is not valid, with blanks or control characters (which ``urlsplit`` would silently drop).
    """
    try:
        parts = urlsplit(address)
        problem = _problem(address, parts)
    except ValueError as err:
        problem = str(err)  # it quotes a port, never the part before the host
    if problem:
        shown = without_credentials(address) if _MAY_BE_SECRET.search(address) else address
        raise UsageError(f"{shown!r}: {problem}; expected {forms}")
    return parts


def _problem(address: str, parts: SplitResult) -> str | None:
    """What is wrong with an address, None if nothing. Raises ValueError for a host or port that is not valid."""
    if _UNPRINTABLE.search(address):
        return "it has blanks or characters that cannot be printed; write them as %20"
    if parts.scheme == "file":
        if parts.netloc not in {"", "localhost"}:
            return f"a folder of this machine has no host, found {parts.netloc.rpartition('@')[2]!r}"
        return "it names no folder" if not parts.path or "\0" in unquote(parts.path) else None
    if not parts.hostname:
        return "it names no host"
    parts.hostname.encode("idna")
    return "its port is 0" if parts.port == 0 else None


def channel_address(channel: str) -> str:
    """The address of a channel, without a slash at its end.

    The text is an address (with ``://``), a folder (with a slash, or one that exists), or else a channel's name on
    anaconda.org, as for conda and rattler. Raises UsageError for anything else.
    """
    if "://" in channel:
        scheme = parse_address(channel).scheme
        if scheme not in _CHANNEL_SCHEMES:
            message = (
                f"{without_credentials(channel)}: channels cannot be read from addresses that start with {scheme}://"
            )
            raise UsageError(message, hint=f"write {_FORMS}")
        folder = local_path(channel)
        return channel.rstrip("/") if folder is None else folder.as_uri()
    folder = user_path(channel)
    if "/" in channel or (channel and folder.is_dir()):
        return folder.absolute().as_uri()
    if not _CHANNEL_NAME.fullmatch(channel):
        raise UsageError(f"{channel!r}: not a channel's name or an existing folder", hint=f"write {_FORMS}")
    return f"{_CHANNEL_ALIAS}/{channel}"


def without_credentials(address: str) -> str:
    """``address`` without user information, token, query and fragment; local addresses have none and are unchanged.

    Nothing is shown of an address that cannot be parsed, since its secrets cannot be located.
    """
    try:
        parts = urlsplit(address)
    except ValueError:
        return _UNREADABLE
    if parts.scheme in _LOCAL_SCHEMES:
        return address
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], _TOKEN.sub("", parts.path), "", ""))


def has_credentials(address: str) -> bool:
    """Whether ``address`` has anything that without_credentials removes."""
    return without_credentials(address) != address


def local_path(address: str) -> Path | None:
    """The file or folder that a ``file://`` address names, None for any other address."""
    parts = urlsplit(address)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


def file_name_of(address: str) -> str:
    """The last part of an address's path, as a file name."""
    return unquote(urlsplit(address).path.rpartition("/")[2])
