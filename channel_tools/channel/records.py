# SPDX-License-Identifier: BSD-3-Clause
"""From a package's metadata to its repodata record, and the record cache that spares reading packages again.

Records follow rattler's indexer field by field (the tests compare the two), so that a channel may be indexed by either.
The cache is keyed by size and modification time; deleting it costs time, never truth.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import msgspec

from channel_tools.channel.archive import JsonObject, PackageFacts, damaged, read_package
from channel_tools.channel.model import PACKAGE_SUFFIX, Finding
from channel_tools.errors import IntegrityError
from channel_tools.files import TEMPORARY_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

_log = logging.getLogger(__name__)
STATE_SCHEMA: Literal[2] = 2

_RECORD_FIELDS = (
    "arch", "build", "build_number", "features", "license", "license_family",
    "name", "noarch", "platform", "purls", "python_site_packages_path", "subdir", "timestamp", "version",
)  # fmt: skip
_V3_FIELDS = ("extra_depends", "flags", "requires_flags")
_ABOUT_FIELDS = ("description", "dev_url", "doc_url", "home", "license", "source_url", "summary")
_RUN_EXPORT_KINDS = ("weak", "strong", "noarch", "weak_constrains", "strong_constrains")


@dataclass(frozen=True, kw_only=True, slots=True)
class Stamp:
    """What tells a file from another without reading it."""

    size_bytes: int
    mtime_ns: int


@dataclass(frozen=True, kw_only=True, slots=True)
class CachedPackage:
    """An indexed package: its repodata record, and what repodata has no room for."""

    stamp: Stamp
    record: JsonObject
    about: JsonObject
    digest: str | None = None
    inputs: dict[str, str] = field(default_factory=dict)
    variant: dict[str, str] | None = None

    @property
    def sha256(self) -> str:
        """The file's hash when it was indexed."""
        return str(self.record["sha256"])


@dataclass(frozen=True, kw_only=True, slots=True)
class RefusedFile:
    """A file that is not indexed, remembered so that it is not read again while it stays as it is.

    ``published`` is the package it was when it was indexed: should those bytes come back, they are listed again.
    """

    stamp: Stamp
    changed: bool
    message: str
    hint: str
    published: CachedPackage | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Records:
    """All packages of one subdir, sound and refused."""

    packages: dict[str, CachedPackage] = field(default_factory=dict)
    refused: dict[str, RefusedFile] = field(default_factory=dict)

    def findings(self, subdir_folder: Path) -> Iterator[Finding]:
        """The refused files as findings."""
        for name, row in sorted(self.refused.items()):
            kind: Literal["changed", "damaged"] = "changed" if row.changed else "damaged"
            yield Finding(path=subdir_folder / name, kind=kind, message=row.message, hint=row.hint)


def scan_packages(subdir_folder: Path) -> dict[str, Stamp]:
    """The ``.conda`` files of a subdir, by name in order."""
    found = {}
    for path in subdir_folder.iterdir() if subdir_folder.is_dir() else ():
        if path.name.endswith(PACKAGE_SUFFIX) and not path.name.startswith(TEMPORARY_PREFIX):
            found[path.name] = stamp_of(path)
    return dict(sorted(found.items()))


def stamp_of(path: Path) -> Stamp:
    """Size and modification time of a file."""
    status = path.stat()
    return Stamp(size_bytes=status.st_size, mtime_ns=status.st_mtime_ns)


def refresh_records(
    known: Records, subdir_folder: Path, *, skip: frozenset[str], first_seen: Mapping[str, tuple[str, int]], now_ms: int
) -> Records:
    """The records of the folder as it is now; only files that are new or touched since ``known`` are read.

    ``skip`` names files that are not published yet. ``first_seen`` gives sha256 and index time (ms) that an earlier
    index had for a file, for when the cache was lost.
    """
    packages: dict[str, CachedPackage] = {}
    refused: dict[str, RefusedFile] = {}
    for name, stamp in scan_packages(subdir_folder).items():
        if name in skip:
            continue
        row = _refresh_one(known, subdir_folder / name, stamp, first_seen=first_seen.get(name), now_ms=now_ms)
        if isinstance(row, CachedPackage):
            packages[name] = row
        else:
            refused[name] = row
    return Records(packages=packages, refused=refused)


def _refresh_one(
    known: Records, path: Path, stamp: Stamp, *, first_seen: tuple[str, int] | None, now_ms: int
) -> CachedPackage | RefusedFile:
    cached, refused = known.packages.get(path.name), known.refused.get(path.name)
    if cached is not None and cached.stamp == stamp:
        return cached
    if refused is not None and refused.stamp == stamp:
        return refused
    published = cached or (refused.published if refused else None)
    expected = published.sha256 if published else first_seen[0] if first_seen else None
    try:
        facts = read_package(path, contents=cached is None)
        if expected is not None and facts.sha256 != expected:
            raise changed(path, facts.sha256, expected)
        seen_ms = _index_time(published, first_seen, now_ms)
        return cached_package(path, facts, stamp=stamp, indexed_ms=seen_ms)
    except IntegrityError as err:
        _log.warning("%s", err)
        return RefusedFile(
            stamp=stamp, changed=expected is not None, message=err.message, hint=err.hint or "", published=published
        )


def _index_time(published: CachedPackage | None, first_seen: tuple[str, int] | None, now_ms: int) -> int:
    if published is not None and isinstance(indexed := published.record["indexed_timestamp"], int):
        return indexed
    return first_seen[1] if first_seen else now_ms


def changed(path: Path, found: str, expected: str) -> IntegrityError:
    """The error for a file whose bytes are not those that were published under its name."""
    message = (
        f"{path}: its sha256 is {found}, but {expected} was published under this name; published files never change"
    )
    return IntegrityError(
        message, hint=f"put the published bytes back, or delete {path.name} and run channel_tools channel index"
    )


def cached_package(path: Path, facts: PackageFacts, *, stamp: Stamp, indexed_ms: int) -> CachedPackage:
    """The cache row of a package that was read. Raises IntegrityError when its metadata cannot stand in repodata."""
    extra = facts.about.get("extra")
    ours = extra.get("channel_tools") if isinstance(extra, dict) else None
    ours = ours if isinstance(ours, dict) else {}
    digest = ours["digest"] if isinstance(ours.get("digest"), str) else None
    return CachedPackage(
        stamp=stamp,
        record=make_record(path, facts) | {"indexed_timestamp": indexed_ms},
        about={key: facts.about[key] for key in _ABOUT_FIELDS if facts.about.get(key)},
        digest=digest,
        inputs=_texts(ours.get("inputs")) or {},
        variant=None if digest is None else _texts(facts.variant),
    )


def _texts(value: object) -> dict[str, str] | None:
    return {str(key): str(item) for key, item in value.items()} if isinstance(value, dict) else None


def make_record(path: Path, facts: PackageFacts) -> JsonObject:
    """The repodata record (CEP 36, without ``indexed_timestamp``) of a package file in its subdir's folder.

    Raises IntegrityError when index.json names another subdir, lacks a field, or needs repodata of the next revision.
    """
    index = facts.index
    if index.get("subdir") != path.parent.name:
        raise damaged(path, f"its index.json says subdir {index.get('subdir')!r}; expected {path.parent.name!r}")
    if not isinstance(index.get("build_number"), int):
        raise damaged(path, f"its index.json has build_number {index.get('build_number')!r}; expected a number")
    depends, constrains = _specs(index, "depends", path), _specs(index, "constrains", path)
    if any(index.get(key) for key in _V3_FIELDS) or any("[when=" in spec for spec in (*depends, *constrains)):
        raise damaged(
            path, "it has conditional dependencies, groups or flags, which this repodata revision cannot hold"
        )
    record: JsonObject = {key: index[key] for key in _RECORD_FIELDS if index.get(key) is not None}
    record |= {"depends": depends, "md5": facts.md5, "sha256": facts.sha256, "size": facts.size_bytes}
    if constrains:
        record["constrains"] = constrains
    if (track_features := index.get("track_features")) is not None:
        record["track_features"] = " ".join(track_features) if isinstance(track_features, list) else track_features
    if facts.run_exports is not None:
        record["run_exports"] = run_exports_of(facts.run_exports)
    return dict(sorted(record.items()))


def run_exports_of(value: Mapping[str, object]) -> JsonObject:
    """run_exports with its empty kinds left out (CEP 12)."""
    return {kind: value[kind] for kind in _RUN_EXPORT_KINDS if value.get(kind)}


def _specs(index: Mapping[str, object], key: str, path: Path) -> list[str]:
    value = index.get(key) or []
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise damaged(path, f"its index.json has {key} {value!r}; expected a list of MatchSpecs")
    return list(value)


def encode_json(value: object) -> bytes:
    """JSON as it is written into a channel: sorted keys, one line, UTF-8."""
    return msgspec.json.encode(value, order="sorted")
