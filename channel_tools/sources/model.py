# SPDX-License-Identifier: BSD-3-Clause
"""The values of the sources stage."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Literal
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from pathlib import Path

NeedKind = Literal["url", "git"]
SUPPLY_HINT = (
    "fetch each address by any means and run `channel_tools sources add FILE`; or on a connected machine "
    "`channel_tools sources fetch`, then `channel_tools sources export FILE` there and "
    "`channel_tools sources import FILE` here"
)
"""How a source gets into the store that cannot be fetched here; what every error about one ends with."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NeededSource:
    """One source that recipes name, and where it may come from; the same bytes named twice are one of these."""

    kind: NeedKind
    identity: str
    """The sha256 of a file, the full commit of a git source."""
    urls: tuple[str, ...]
    names: tuple[str, ...]
    """File names that recipes use for the bytes; the first one is the store's own."""
    excludes: tuple[str, ...] = ()
    """Globs of paths that are never taken from a git source."""
    submodules: bool = True
    packages: tuple[str, ...] = ()
    """``name version`` of the packages that need it."""

    @property
    def word(self) -> str:
        """What the identity is called."""
        return "sha256" if self.kind == "url" else "commit"


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredSource:
    """What the store holds for a needed source: one file, for a git source an archive of its files."""

    path: Path
    sha256: str
    size_bytes: int


def file_name_of(url: str) -> str:
    """The file name at the end of an address, as the engine takes it to tell an archive by its suffix."""
    return PurePosixPath(unquote(urlsplit(url).path)).name or "source"
