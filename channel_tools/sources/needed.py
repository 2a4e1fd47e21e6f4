# SPDX-License-Identifier: BSD-3-Clause
"""What recipes need from the store, each source once. Pure: rendered packages in, values out."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from channel_tools.sources.model import NeededSource, file_name_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from channel_tools.matrix.model import RenderedPackage, Source
    from channel_tools.yamlfile import YamlValue

EXCLUDES_KEY = "source_excludes"


def needed_sources(packages: Iterable[RenderedPackage]) -> tuple[NeededSource, ...]:
    """The sources of all packages that a store can hold, in the order of the packages; local paths are none."""
    found: dict[tuple[str, ...], NeededSource] = {}
    for package in packages:
        for need in _needs_of(package):
            key = (need.kind, need.identity, str(need.submodules), *need.excludes)
            known = found.get(key)
            found[key] = need if known is None else _merged(known, need)
    return tuple(found.values())


def need_of(source: Source, excludes: tuple[str, ...] = ()) -> NeededSource | None:
    """What a recipe's source is to the store; None for a local path."""
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
    """The globs that ``extra.source_excludes`` of an evaluated recipe names: paths never taken from git sources."""
    extra = recipe.get("extra")
    globs = extra.get(EXCLUDES_KEY) if isinstance(extra, dict) else None
    return tuple(sorted({str(glob) for glob in globs})) if isinstance(globs, list) else ()


def _needs_of(package: RenderedPackage) -> Iterator[NeededSource]:
    excludes = source_excludes(package.recipe)
    for source in package.sources:
        need = need_of(source, excludes)
        if need is not None:
            yield replace(need, packages=(f"{package.name} {package.version}",))


def _merged(one: NeededSource, other: NeededSource) -> NeededSource:
    return replace(
        one,
        urls=tuple(dict.fromkeys(one.urls + other.urls)),
        names=tuple(dict.fromkeys(one.names + other.names)),
        packages=tuple(sorted({*one.packages, *other.packages})),
    )
