# SPDX-License-Identifier: BSD-3-Clause
"""Addresses of channels and packages: taken apart and checked, and the credentials that must not leave with them.

Three places in an address can hold a secret: the user information before the host, a ``/t/TOKEN`` in the path (conda's
own form) and a query (signed addresses of object stores). What is written, logged or shown has none of them.
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
"""What rattler reads channels from."""
_CHANNEL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_MAY_BE_SECRET = re.compile(r"[@?]|/t/")
_UNPRINTABLE = re.compile(r"[\x00-\x20\x7f\ud800-\udfff]")
_FORMS = "https://HOST/CHANNEL, file:///FOLDER or a folder"


def parse_address(address: str, *, forms: str = _FORMS) -> SplitResult:
    """Take an address with ``://`` apart; ``forms`` says how it is to be written.

    Raises UsageError for one that cannot be used: without a host, or without a folder for ``file://``, with a port that
    is none, with blanks or control characters (which ``urlsplit`` would drop without a word).
    """
    try:
        parts = urlsplit(address)
        problem = _problem(address, parts)
    except ValueError as err:
        problem = str(err)  # it quotes a port, never what stands before the host
    if problem:
        shown = without_credentials(address) if _MAY_BE_SECRET.search(address) else address
        raise UsageError(f"{shown!r}: {problem}; expected {forms}")
    return parts


def _problem(address: str, parts: SplitResult) -> str | None:
    """What is wrong with an address. Raises ValueError for a host or port that cannot be one."""
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

    Text is an address (with ``://``), a folder (with a slash, or one that exists), or else a channel's name on
    anaconda.org, as conda and rattler read it. Raises UsageError for what is none of these.
    """
    if "://" in channel:
        scheme = parse_address(channel).scheme
        if scheme not in _CHANNEL_SCHEMES:
            message = (
                f"{without_credentials(channel)}: channels cannot be read from addresses that begin with {scheme}://"
            )
            raise UsageError(message, hint=f"write {_FORMS}")
        folder = local_path(channel)
        return channel.rstrip("/") if folder is None else folder.as_uri()
    folder = user_path(channel)
    if "/" in channel or (channel and folder.is_dir()):
        return folder.absolute().as_uri()
    if not _CHANNEL_NAME.fullmatch(channel):
        raise UsageError(f"{channel!r}: neither a channel's name nor a folder that is there", hint=f"write {_FORMS}")
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
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


def file_name_of(address: str) -> str:
    """The last part of an address' path, as a file's name."""
    return unquote(urlsplit(address).path.rpartition("/")[2])
