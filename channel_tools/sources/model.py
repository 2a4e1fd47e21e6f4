# SPDX-License-Identifier: BSD-3-Clause
"""The values of the sources stage, and the sources that rendered packages need, each once. No I/O.

Mirrors of sources: what stands in for the beginning of an address, as git's ``url.<base>.insteadOf`` has it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Literal

from channel_tools.conda.addresses import last_part

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from channel_tools.matrix.model import RecipeSource, RenderedPackage
    from channel_tools.system.yamlfile import YamlValue

NeedKind = Literal["url", "git"]
SUPPLY_HINT = (
    "download each address by any means and run `channel_tools sources add FILE`; or run, on a machine with a network, "
    "`channel_tools sources fetch` and `channel_tools sources export FILE`, then here "
    "`channel_tools sources import FILE`"
)
"""How to get a source into the store that cannot be fetched here; every error about one ends with this."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NeededSource:
    """One source that recipes name, and its addresses; the same bytes named twice are one NeededSource."""

    kind: NeedKind
    identity: str
    """The sha256 of a file, the full commit of a git source."""
    urls: tuple[str, ...]
    names: tuple[str, ...]
    """File names that recipes use for the bytes; the store uses the first one."""
    excludes: tuple[str, ...] = ()
    """Globs of paths to exclude from a git source."""
    submodules: bool = True
    packages: tuple[str, ...] = ()
    """``name version`` of the packages that need it."""

    @property
    def word(self) -> str:
        """The kind of its identity: ``sha256`` or ``commit``."""
        return "sha256" if self.kind == "url" else "commit"


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredSource:
    """The stored file of a needed source; for a git source, an archive of its files."""

    path: Path
    sha256: str
    size_bytes: int


def file_name_of(url: str) -> str:
    """The file name at the end of an address; the engine recognises an archive by its suffix."""
    return PurePosixPath(last_part(url)).name or "source"


EXCLUDES_KEY = "source_excludes"


def needed_sources(packages: Iterable[RenderedPackage]) -> tuple[NeededSource, ...]:
    """The sources of all packages that belong in a store, in the order of the packages; local paths do not."""
    by_identity: dict[tuple[str, ...], NeededSource] = {}
    for package in packages:
        for need in _needs_of(package):
            key = (need.kind, need.identity, str(need.submodules), *need.excludes)
            known = by_identity.get(key)
            by_identity[key] = need if known is None else _merged(known, need)
    return tuple(by_identity.values())


def need_of(source: RecipeSource, excludes: tuple[str, ...] = ()) -> NeededSource | None:
    """The NeededSource for a recipe's source; None for a local path."""
    urls = (source.location, *source.mirrors)
    if source.kind == "url" and source.sha256 is not None:
        return NeededSource(kind="url", identity=source.sha256, urls=urls, names=(file_name_of(urls[0]),))
    if source.kind == "git" and source.revision is not None:
        name = file_name_of(urls[0]).removesuffix(".git")
        submodules = source.entry.get("submodules") is not False
        return NeededSource(
            kind="git", identity=source.revision, urls=urls, names=(name,), excludes=excludes, submodules=submodules
        )
    return None


def source_excludes(recipe: Mapping[str, YamlValue]) -> tuple[str, ...]:
    """The globs in ``extra.source_excludes`` of an evaluated recipe: paths to exclude from git sources."""
    extra = recipe.get("extra")
    globs = extra.get(EXCLUDES_KEY) if isinstance(extra, dict) else None
    return tuple(sorted({str(glob) for glob in globs})) if isinstance(globs, list) else ()


def _needs_of(package: RenderedPackage) -> Iterator[NeededSource]:
    excludes = source_excludes(package.recipe)
    for source in package.sources:
        need = need_of(source, excludes)
        if need is not None:
            yield replace(need, packages=(f"{package.name} {package.version}",))


def _merged(first: NeededSource, second: NeededSource) -> NeededSource:
    return replace(
        first,
        urls=tuple(dict.fromkeys(first.urls + second.urls)),
        names=tuple(dict.fromkeys(first.names + second.names)),
        packages=tuple(sorted({*first.packages, *second.packages})),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceMirrors:
    """A site's mirrors, tried before the addresses that recipes name.

    What comes from one is the same source: files are known by their sha256 and commits by their names, so mirrors are
    in no digest and no package names them.
    """

    places: tuple[tuple[str, str], ...] = ()
    """Beginnings of addresses and of their mirrors, in the order in which they are tried; all end with a slash."""

    def addresses(self, urls: Iterable[str]) -> tuple[str, ...]:
        """The addresses of one source: on the mirrors, then as given."""
        original = tuple(urls)
        mirrored = (
            mirror + url.removeprefix(of) for of, mirror in self.places for url in original if url.startswith(of)
        )
        return tuple(dict.fromkeys([*mirrored, *original]))
