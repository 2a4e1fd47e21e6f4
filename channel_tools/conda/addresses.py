# SPDX-License-Identifier: BSD-3-Clause
"""Parses and checks addresses of channels and packages, and removes credentials from them.

Three places in an address can contain a secret: the user information before the host, a ``/t/TOKEN`` in the path
(conda's own form) and a query (signed addresses of object stores). None of them is ever written, logged or shown.
"""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import SplitResult, quote, unquote, urljoin, urlsplit, urlunsplit

from channel_tools.system.errors import IntegrityError, UsageError
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


_AS_IS = "/%:@!$&'()*+,;=~"
"""Characters of a ``base_url`` that are not written as %XX; letters, digits and ``_.-~`` never are."""


def packages_address(channel: str, subdir: str, base_url: str | None) -> str:
    """The address of the folder with a subdir's packages, with a slash at its end, from the index's ``base_url``.

    ``base_url`` (CEP 15; also in the index of shards, CEP 16) is absolute, or relative to the subdir's address, and
    read as rattler reads it in repodata.json: a path that starts with a slash is one of the same host, and a query is
    dropped. Credentials in the address ``channel`` belong to it and what is below it, so an address elsewhere does not
    get them. Raises IntegrityError for one that cannot be used, among them a folder of this machine named by an index
    from elsewhere.
    """
    given = channel.rstrip("/")
    plain = without_credentials(given).rstrip("/")
    try:
        parts = urlsplit(_joined(f"{plain}/{subdir}/", base_url or ""))
        folder = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}/"
        parse_address(folder)
    except (ValueError, UsageError) as err:
        raise _unusable_base(plain, subdir, base_url, str(err).partition("; expected")[0]) from None
    if local_path(folder) is not None and local_path(plain) is None:
        raise _unusable_base(plain, subdir, base_url, "a channel elsewhere cannot have packages in folders here")
    return given + folder.removeprefix(plain) if folder.startswith(f"{plain}/") else folder


def _joined(subdir_address: str, base_url: str) -> str:
    if "://" in base_url:
        return base_url
    parts, path = urlsplit(subdir_address), quote(base_url.partition("?")[0], safe=_AS_IS)
    if not path.startswith("/"):
        # the host does not matter for a path, and urljoin knows only some schemes
        path = urlsplit(urljoin(f"http://host{parts.path}", f"./{path}")).path
    elif parts.scheme == "file":
        path = "/" + path.lstrip("/")
    return f"{parts.scheme}://{parts.netloc}{path}"


def _unusable_base(plain: str, subdir: str, base_url: str | None, reason: str) -> IntegrityError:
    shown = without_credentials(base_url or "")
    message = f"{plain}/{subdir}: its index gives {shown!r} as base_url: {reason}"
    return IntegrityError(
        message, hint="correct base_url in the channel's index; expected an address or a path (CEP 15)"
    )


def file_name_of(address: str) -> str:
    """The last part of an address's path, as a file name."""
    return unquote(urlsplit(address).path.rpartition("/")[2])
