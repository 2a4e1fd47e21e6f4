# SPDX-License-Identifier: BSD-3-Clause
"""The files that a package can use in an environment: those of its run dependencies, as far as they are known.

If several packages satisfy a requirement, the files of each count as present: the solver may choose any of them.
"""

from __future__ import annotations

import functools
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from channel_tools.audit.model import Dependencies, PackageFacts
from channel_tools.conda.archive import read_index_json, read_info_json
from channel_tools.conda.closure import Closures, place_installed, python_minor
from channel_tools.conda.compiled_in import what_can_be_compiled_in
from channel_tools.conda.specs import texts_of
from channel_tools.system.beneath import folder_of
from channel_tools.system.document import decode_json
from channel_tools.system.errors import IntegrityError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
    from pathlib import Path

_log = logging.getLogger(__name__)
Listing = tuple[frozenset[str], "Mapping[str, str]"]
"""Paths of files, and links with their targets."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Neighbour:
    """A package that others may depend on; ``listing`` reads its list of files when it is first needed."""

    file_name: str
    subdir: str
    name: str
    index: Mapping[str, Any]
    entry_points: tuple[str, ...] = ()
    listing: Callable[[], Listing]


def neighbours_in_files(
    packages: Iterable[Path],
    *,
    within: Path | None = None,
    corrections: Mapping[Path, Mapping[str, object]] | None = None,
) -> Iterator[Neighbour]:
    """Neighbours from package files; damaged ones are left out, with a warning each.

    Others can write in ``within``, where they are then. ``corrections`` are what their channel lists in place of fields
    of theirs that no index can contain.
    """
    for path in packages:
        correction = functools.partial((corrections or {}).get, path)
        try:
            index = read_index_json(path, folder=folder_of(path, within), correction=correction)
        except IntegrityError as err:
            _log.warning("%s; it is left out of what packages can depend on", err.message)
            continue
        listing = functools.cache(functools.partial(_listed_in_file, path, within))
        yield _neighbour(path.name, path.parent.name, index, listing)


def neighbours_of_records(
    records: Iterable[tuple[Path, Mapping[str, Any]]], *, within: Path | None = None
) -> Iterator[Neighbour]:
    """Neighbours from package files whose index.json is known from a channel's records, so they need not be opened.

    ``within`` is as for neighbours_in_files.
    """
    for path, record in records:
        listing = functools.cache(functools.partial(_listed_in_file, path, within))
        yield _neighbour(path.name, path.parent.name, record, listing)


def neighbours_in_cache(cache: Path) -> Iterator[Neighbour]:
    """Neighbours from the unpacked packages in a client's cache: those that a build solved its environments from."""
    for file in sorted(cache.glob("*/info/index.json")):
        try:
            index = decode_json(file.read_bytes())
        except (OSError, ValueError):
            continue  # being unpacked or removed by another process
        if isinstance(index, dict):
            listing = functools.cache(functools.partial(_listed_in_folder, file.with_name("paths.json")))
            yield _neighbour(file.parents[1].name + ".conda", str(index.get("subdir")), index, listing)


def neighbour_of(package: PackageFacts) -> Neighbour:
    """The neighbour for a package that was read for the audit itself, with the targets of its links."""
    links = {path: file.target for path, file in package.files.items() if file.kind == "link"}
    files = frozenset(package.files.keys() - links.keys())
    return Neighbour(
        file_name=package.file_name,
        subdir=package.subdir,
        name=package.name,
        index=package.index,
        entry_points=package.entry_points,
        listing=lambda: (files, links),
    )


def _neighbour(file_name: str, subdir: str, index: Mapping[str, Any], listing: Callable[[], Listing]) -> Neighbour:
    return Neighbour(file_name=file_name, subdir=subdir, name=str(index.get("name")), index=index, listing=listing)


def _listed_in_file(path: Path, within: Path | None) -> Listing:
    try:
        return _listed(read_info_json(path, "paths.json", folder=folder_of(path, within)))
    except IntegrityError as err:
        _log.warning("%s; none of its files is known", err.message)
        return frozenset(), {}


def _listed_in_folder(file: Path) -> Listing:
    try:
        return _listed(decode_json(file.read_bytes()))
    except (OSError, ValueError):
        return frozenset(), {}


def _listed(paths: object) -> Listing:
    """The files of paths.json. It does not give the targets of links, so each link counts as a file."""
    rows = paths.get("paths") if isinstance(paths, dict) else None
    return frozenset(str(row["_path"]) for row in rows or () if isinstance(row, dict) and "_path" in row), {}


class Known:
    """All packages that the audited ones may depend on, and the oldest ``glibc`` that their channel promises."""

    def __init__(self, neighbours: Iterable[Neighbour], *, glibc: str | None = None) -> None:
        present = list(neighbours)
        self._glibc = glibc
        self._closures = Closures[Neighbour](present)
        self._by_file = {(neighbour.subdir, neighbour.file_name): neighbour for neighbour in present}

    def dependencies_of(self, package: PackageFacts) -> Dependencies:
        """The files that a package can use: its own and those of everything in the closure of its requirements."""
        own = neighbour_of(package)
        closure = self._closures.of(own)
        python = python_minor(
            str(neighbour.index.get("version")) for neighbour in closure if neighbour.name == "python"
        )
        files: set[str] = set()
        links: dict[str, str] = {}
        versions: dict[str, set[str]] = {}
        for neighbour in closure:
            has, leads = _installed(neighbour, python)
            files |= has
            links |= leads
            versions.setdefault(neighbour.name, set()).add(str(neighbour.index.get("version")))
        problems = [words for which, words in self._closures.problems if which.file_name == package.file_name]
        return Dependencies(
            files=frozenset(files),
            links=links,
            depends=tuple(spec for neighbour in closure for spec in texts_of(neighbour.index, "depends")),
            versions={name: tuple(sorted(known_versions)) for name, known_versions in versions.items()},
            unresolved=tuple(problems),
            glibc=self._glibc,
            compilable=dict(self._compilable(package, {neighbour.name for neighbour in closure})),
        )

    def _compilable(self, package: PackageFacts, present: Collection[str]) -> Iterator[tuple[str, str]]:
        """The host packages that are not ``present`` at run time, and what of them may be in the package."""
        if not any(file.elf or file.archive for file in package.files.values()):
            return
        for host in package.host:
            neighbour = None if host.name in present else self._by_file.get((host.subdir, host.file_name))
            if neighbour is not None and (origin := what_can_be_compiled_in(neighbour.listing()[0])):
                yield host.name, origin


def _installed(neighbour: Neighbour, python: str) -> Listing:
    files, links = neighbour.listing()
    if neighbour.index.get("noarch") != "python":
        return files, links
    programs = {f"bin/{line.partition('=')[0].strip()}" for line in neighbour.entry_points}
    placed = frozenset(place_installed(path, python) for path in files) | programs
    return placed, {place_installed(path, python): target for path, target in links.items()}
