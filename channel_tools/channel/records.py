# SPDX-License-Identifier: BSD-3-Clause
"""From a package's metadata to its repodata record, and the record cache that spares reading packages again.

Records follow rattler's indexer field by field (the tests compare the two), so that a channel may be indexed by either.
The cache is keyed by size and modification time; deleting it costs time, never truth.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import msgspec

from channel_tools.channel.archive import JsonObject, PackageFacts
from channel_tools.channel.metadata import check_index, check_run_exports
from channel_tools.channel.model import Finding
from channel_tools.channel.refusal import damaged
from channel_tools.errors import IntegrityError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

STATE_SCHEMA: Literal[3] = 3

_RECORD_FIELDS = (
    "arch", "build", "build_number", "features", "license", "license_family",
    "name", "noarch", "platform", "purls", "python_site_packages_path", "subdir", "timestamp", "version",
)  # fmt: skip
_V3_FIELDS = ("extra_depends", "flags", "requires_flags")
_ABOUT_FIELDS = ("description", "dev_url", "doc_url", "home", "license", "source_url", "summary")
_RUN_EXPORT_KINDS = ("weak", "strong", "noarch", "weak_constrains", "strong_constrains")


class Stamp(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """What tells a file from another without reading it."""

    size_bytes: int
    mtime_ns: int


class CachedPackage(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """An indexed package as the cache keeps it: JSON stays text until somebody looks into it.

    ``record_json`` is its repodata record, ``exports_json`` its run_exports, ``about_json`` what channeldata.json says
    of it, ``origin_json`` an Origin. So ten thousand packages are read, listed and written again in milliseconds.
    """

    stamp: Stamp
    name: str
    sha256: str
    record_json: bytes
    exports_json: bytes
    about_json: bytes
    origin_json: bytes

    @property
    def record(self) -> JsonObject:
        """The repodata record, decoded anew at each call."""
        return msgspec.json.decode(self.record_json, type=JsonObject)

    @property
    def depends(self) -> tuple[str, ...]:
        """The MatchSpecs of what it needs."""
        depends = self.record.get("depends")
        return tuple(str(spec) for spec in depends) if isinstance(depends, list) else ()

    @property
    def about(self) -> JsonObject:
        """The fields of about.json that channeldata.json takes."""
        return msgspec.json.decode(self.about_json, type=JsonObject)

    @property
    def origin(self) -> Origin:
        """What the plan recorded in it."""
        return msgspec.json.decode(self.origin_json, type=Origin)

    @property
    def digest(self) -> str | None:
        """The digest that the plan recorded in it."""
        return self.origin.digest

    def patched(self, record: JsonObject) -> CachedPackage:
        """The same package with another record."""
        return msgspec.structs.replace(
            self, record_json=encode_json(record), exports_json=encode_json(record.get("run_exports", {}))
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Origin:
    """What the plan wrote into a package, and the variant keys that its build used; empty for one from elsewhere."""

    digest: str | None = None
    inputs: dict[str, str] = field(default_factory=dict)
    variant: dict[str, str] | None = None


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


def stamp_of(path: Path) -> Stamp:
    """Size and modification time of a file."""
    status = path.stat()
    return Stamp(size_bytes=status.st_size, mtime_ns=status.st_mtime_ns)


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
    record = make_record(path, facts) | {"indexed_timestamp": indexed_ms}
    return CachedPackage(
        stamp=stamp,
        name=str(record["name"]),
        sha256=facts.sha256,
        record_json=encode_json(record),
        exports_json=encode_json(record.get("run_exports", {})),
        about_json=encode_json({key: facts.about[key] for key in _ABOUT_FIELDS if facts.about.get(key)}),
        origin_json=encode_json(_origin(facts)),
    )


def recorded_package(record: JsonObject) -> CachedPackage:
    """The cache row of a package of which only its repodata record is known."""
    return CachedPackage(
        stamp=Stamp(size_bytes=0, mtime_ns=0),
        name=str(record["name"]),
        sha256=str(record.get("sha256", "")),
        record_json=encode_json(record),
        exports_json=encode_json(record.get("run_exports", {})),
        about_json=b"{}",
        origin_json=b"{}",
    )


def _origin(facts: PackageFacts) -> Origin:
    extra = facts.about.get("extra")
    ours = extra.get("channel_tools") if isinstance(extra, dict) else None
    ours = ours if isinstance(ours, dict) else {}
    if not isinstance(digest := ours.get("digest"), str):
        return Origin(inputs=_texts(ours.get("inputs")) or {})
    return Origin(digest=digest, inputs=_texts(ours.get("inputs")) or {}, variant=_texts(facts.variant))


def _texts(value: object) -> dict[str, str] | None:
    return {str(key): str(item) for key, item in value.items()} if isinstance(value, dict) else None


def make_record(path: Path, facts: PackageFacts) -> JsonObject:
    """The repodata record (CEP 36, without ``indexed_timestamp``) of a package file in its subdir's folder.

    Raises IntegrityError when index.json names another subdir, lacks a field, or needs repodata of the next revision.
    """
    index = facts.index
    if index.get("subdir") != path.parent.name:
        raise damaged(path, f"its index.json says subdir {index.get('subdir')!r}; expected {path.parent.name!r}")
    check_index(index, path)
    depends, constrains = _specs(index, "depends"), _specs(index, "constrains")
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
        check_run_exports(facts.run_exports, _RUN_EXPORT_KINDS, path)
        record["run_exports"] = run_exports_of(facts.run_exports)
    return dict(sorted(record.items()))


def run_exports_of(value: Mapping[str, object]) -> JsonObject:
    """run_exports with its empty kinds left out (CEP 12)."""
    return {kind: value[kind] for kind in _RUN_EXPORT_KINDS if value.get(kind)}


def _specs(index: Mapping[str, object], key: str) -> list[str]:
    value = index.get(key)
    return [str(spec) for spec in value] if isinstance(value, list) else []


def encode_json(value: object) -> bytes:
    """JSON as it is written into a channel: sorted keys, one line, UTF-8."""
    return msgspec.json.encode(value, order="sorted")
