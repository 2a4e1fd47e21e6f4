# SPDX-License-Identifier: BSD-3-Clause
"""Maps a request's path to a file of a channel. Pure; the only way from an address to a path on disk.

It is a grammar of what may be requested and not a list of what may not: a path with ``..``, ``%``, a backslash, a NUL,
an empty part or one that begins with a dot does not parse, however it was encoded, since the server decodes once.
"""

from __future__ import annotations

import re
import urllib.parse
from dataclasses import dataclass

from channel_tools.conda.package import HASHED_NAME
from channel_tools.page.model import BUILDS_FOLDER, INDEX_PAGE, NAMES_FOLDER, PAGE_FOLDER, STACKS_FOLDER
from channel_tools.publish.model import LABEL_NAME, MAIN_LABEL

RESERVED = frozenset({"api", "health", "t"})
"""First path parts that are reserved, so they cannot be a channel's name."""

_NAME = r"[A-Za-z0-9_][A-Za-z0-9_.!+=~-]{0,254}"
_CHANNEL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
CHANNEL_NAME_HINT = f"use letters, digits, '.', '_' and '-', and not a reserved name ({', '.join(sorted(RESERVED))})"
SUBDIR_NAME = re.compile(r"noarch|[a-z]{1,15}-[a-z0-9_]{1,15}")
FILE_NAME = re.compile(_NAME)
_PAGES = rf"{PAGE_FOLDER}|{NAMES_FOLDER}|{STACKS_FOLDER}|{BUILDS_FOLDER}/(?:{SUBDIR_NAME.pattern})"
_ADDRESS = re.compile(
    rf"/(?P<channel>{_CHANNEL_NAME.pattern})(?:/label/(?P<label>{LABEL_NAME.pattern}))?"
    rf"(?:/(?P<folder>(?:{SUBDIR_NAME.pattern})(?:/shards)?|{_PAGES}))?/(?P<name>{_NAME})?"
)
_PATH_TOKEN = re.compile(r"/t/([^/]*)(/.*)?", re.DOTALL)
_SECRETS = re.compile(
    r"(?<=/t/)[^/]*"  # where a token belongs
    r"|(?<![0-9a-z])ct[^0-9a-z/]{0,9}[0-9a-f]{6,}[^/]*"  # anything that starts like a token
    r"|(?<![0-9a-z])(?:[0-9a-f]{33,63}|[0-9a-f]{65,})(?![0-9a-f])",  # a cut secret; 32 are a job's id, 64 a shard's
    re.IGNORECASE,
)
_DECODED_LIMIT = 8
"""How often a path that was encoded repeatedly is decoded before it is masked completely."""
_PACKAGE_SUFFIXES = (".conda", ".tar.bz2")


@dataclass(frozen=True, kw_only=True, slots=True)
class ChannelFile:
    """A file of a channel: ``folder`` is empty for the channel's own folder, else a subdir, its shards or pages."""

    channel: str
    label: str
    folder: str
    name: str

    @property
    def parts(self) -> tuple[str, ...]:
        """Its path below the folder of all channels, in parts."""
        label = () if self.label == MAIN_LABEL else ("label", self.label)
        return (self.channel, *label, *(self.folder.split("/") if self.folder else ()), self.name)

    @property
    def never_changes(self) -> bool:
        """Whether its content is final, as for packages, attestations and shards: other bytes get another name."""
        if self.folder.partition("/")[0] == PAGE_FOLDER:
            return False
        package = self.name.endswith(_PACKAGE_SUFFIXES) or HASHED_NAME.fullmatch(self.name) is not None
        return self.folder.endswith("/shards") or (bool(self.folder) and package)


def is_channel_name(name: str) -> bool:
    """Whether this is a valid name for a channel on the server."""
    return _CHANNEL_NAME.fullmatch(name) is not None and name not in RESERVED


def split_token(path: str) -> tuple[str | None, str]:
    """The token of ``/t/TOKEN/...`` (None if the path has none), and the path without it."""
    if not path.startswith("/t/"):
        return None, path
    match = _PATH_TOKEN.fullmatch(path)
    return (match[1], match[2] or "/") if match else (None, path)


def parse_path(path: str) -> ChannelFile | None:
    """The file that a path (decoded, without token) names, None if it is not a file that could be served.

    The address of the channel itself names its page.
    """
    match = _ADDRESS.fullmatch(path)
    if match is None or match["channel"] in RESERVED:
        return None
    if match["label"] == MAIN_LABEL:  # it has its own address
        return None
    if match["name"] is None and match["folder"] is not None:
        return None
    return ChannelFile(
        channel=match["channel"],
        label=match["label"] or MAIN_LABEL,
        folder=match["folder"] or "",
        name=match["name"] or INDEX_PAGE,
    )


def masked(path: str) -> str:
    """A path that is safe to log: ``/t/***/`` instead of the token, and no token anywhere else.

    A token that was cut short, written in capitals or encoded several times is masked, too: its owner will retry with
    the right one. A path in which a secret shows only after decoding is returned decoded and masked.
    """
    plain = path
    for _time in range(_DECODED_LIMIT):
        decoded = urllib.parse.unquote(plain, errors="replace") if "%" in plain else plain
        if decoded == plain:
            break
        plain = decoded
    else:
        return "***"
    replaced = _SECRETS.sub("***", plain)
    return path if replaced == plain else replaced
