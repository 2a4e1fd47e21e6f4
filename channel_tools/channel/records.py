# SPDX-License-Identifier: BSD-3-Clause
"""Makes repodata records from packages' metadata, with a cache so that packages are not read again.

Records follow rattler's indexer field by field (the tests compare the two), so that a channel may be indexed by either.
The cache is keyed by size and modification time; deleting it only costs time. Only files that are new or touched are
read, by several processes if there are many: ten thousand are indexed from scratch in seconds.
"""

from __future__ import annotations

import logging
import os
import stat
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import msgspec

from channel_tools.conda.archive import PackageInfo, read_package
from channel_tools.conda.contents import JsonObject, damaged_package
from channel_tools.conda.metadata import ABOUT_FIELDS, RUN_EXPORT_KINDS, check_place, subdir_of
from channel_tools.conda.package import HASHED_NAME, PACKAGE_SUFFIXES, RECORD_FIELD, SUFFIX, sidecar_sha256
from channel_tools.conda.repodata import encode_json
from channel_tools.system.beneath import Beneath
from channel_tools.system.document import decode_json
from channel_tools.system.errors import ChannelError, ChannelToolsError, FileAccessError, IntegrityError
from channel_tools.system.files import TEMPORARY_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

STATE_SCHEMA: Literal[3] = 3

_RECORD_FIELDS = (
    "arch", "build", "build_number", "features", "license", "license_family",
    "name", "noarch", "platform", "purls", "python_site_packages_path", "subdir", "timestamp", "version",
)  # fmt: skip
_V3_FIELDS = ("extra_depends", "flags", "requires_flags")
_log = logging.getLogger(__name__)
_FILES_PER_PROCESS = 250
"""Fewer files than this are read before a second process has started."""
_FILES_AT_ONCE = 100


class Stamp(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """What identifies a file's content without reading it."""

    size_bytes: int
    mtime_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> Stamp:
        """The stamp of a file with this status."""
        return cls(size_bytes=status.st_size, mtime_ns=status.st_mtime_ns)


class CachedPackage(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """An indexed package in the cache: JSON is kept as text until it is needed.

    ``record_json`` is its repodata record, ``exports_json`` its run_exports, ``about_json`` its data for
    channeldata.json, ``origin_json`` an Origin. So ten thousand packages are read, listed and written in milliseconds.
    ``correction_json`` are the fields of the channel's patch without which no index could contain it, if there are any.
    """

    stamp: Stamp
    name: str
    sha256: str
    record_json: bytes
    exports_json: bytes
    about_json: bytes
    origin_json: bytes
    correction_json: bytes = b""

    def is_right_with(self, correction: JsonObject | None) -> bool:
        """Whether reading the package with this correction would give the same."""
        return not self.correction_json or self.correction_json == encode_json(correction)

    @property
    def record(self) -> JsonObject:
        """The repodata record, decoded at each call."""
        return decode_json(self.record_json, JsonObject)

    @property
    def depends(self) -> tuple[str, ...]:
        """The MatchSpecs of its dependencies."""
        from channel_tools.conda.specs import texts_of  # noqa: PLC0415 - it imports rattler, which is slow

        return texts_of(self.record, "depends")

    @property
    def dependency_names(self) -> tuple[str, ...]:
        """The names of its dependencies, in the order of its MatchSpecs. Raises IntegrityError for one that is none."""
        from channel_tools.conda.specs import required_names  # noqa: PLC0415 - as above

        return required_names(self.record, self.name)

    @property
    def about(self) -> JsonObject:
        """The fields of about.json for channeldata.json."""
        return decode_json(self.about_json, JsonObject)

    @property
    def origin(self) -> Origin:
        """What the plan recorded in it."""
        return decode_json(self.origin_json, Origin)

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
    """The plan's data in a package, and the variant keys of its build; empty for a package from elsewhere."""

    digest: str | None = None
    inputs: dict[str, str] = field(default_factory=dict)
    variant: dict[str, str] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class RefusedFile:
    """A file that is not indexed, cached so that it is not read again while it is unchanged.

    ``published`` is the package as it was indexed: if those bytes are restored, they are listed again.
    ``correction`` is what the channel's patch had for it.
    """

    stamp: Stamp
    changed: bool
    message: str
    hint: str
    published: CachedPackage | None = None
    correction: JsonObject | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Records:
    """All packages of one subdir: those that are indexed, and those rejected as damaged or changed."""

    packages: dict[str, CachedPackage] = field(default_factory=dict)
    refused: dict[str, RefusedFile] = field(default_factory=dict)


def escaped(text: str) -> str:
    """A text with names of files in it, whose bytes are not always UTF-8, as UTF-8: ``\\udcfc`` for the byte fc."""
    return text.encode(errors="backslashreplace").decode()


def changed(path: Path, sha256: str, expected: str) -> IntegrityError:
    """The error for a file whose bytes are not those that were published under its name."""
    message = (
        f"{path}: its sha256 is {sha256}, but {expected} was published under this name; published files never change"
    )
    return IntegrityError(
        message, hint=f"restore the published file, or delete {path.name} and run channel_tools channel index"
    )


def cached_package(
    path: Path, info: PackageInfo, *, indexed_ms: int, subdir: str | None = None, folder: Beneath | None = None
) -> CachedPackage:
    """The cache row of a package that was read; the other parameters and the IntegrityError are make_record's."""
    record = make_record(path, info, subdir=subdir, folder=folder) | {"indexed_timestamp": indexed_ms}
    return CachedPackage(
        stamp=Stamp(size_bytes=info.size_bytes, mtime_ns=info.mtime_ns),
        name=str(record["name"]),
        sha256=info.sha256,
        record_json=encode_json(record),
        exports_json=encode_json(record.get("run_exports", {})),
        about_json=encode_json({key: info.about[key] for key in ABOUT_FIELDS if info.about.get(key)}),
        origin_json=encode_json(_origin(info)),
        correction_json=b"" if info.correction is None else encode_json(info.correction),
    )


def recorded_package(record: JsonObject) -> CachedPackage:
    """The cache row of a package from only its repodata record."""
    return CachedPackage(
        stamp=Stamp(size_bytes=0, mtime_ns=0),
        name=str(record["name"]),
        sha256=str(record.get("sha256", "")),
        record_json=encode_json(record),
        exports_json=encode_json(record.get("run_exports", {})),
        about_json=b"{}",
        origin_json=b"{}",
    )


def _origin(info: PackageInfo) -> Origin:
    extra = info.about.get("extra")
    ours = extra.get("channel_tools") if isinstance(extra, dict) else None
    ours = ours if isinstance(ours, dict) else {}
    if not isinstance(digest := ours.get("digest"), str):
        return Origin(inputs=_texts(ours.get("inputs")) or {})
    return Origin(digest=digest, inputs=_texts(ours.get("inputs")) or {}, variant=_texts(info.variant))


def _texts(value: object) -> dict[str, str] | None:
    return {str(key): str(item) for key, item in value.items()} if isinstance(value, dict) else None


def make_record(
    path: Path, info: PackageInfo, *, subdir: str | None = None, folder: Beneath | None = None
) -> JsonObject:
    """The repodata record (CEP 36, without ``indexed_timestamp``) of a package for ``subdir``.

    None means the subdir that its folder is named after. ``folder`` is that folder, if it is a channel's.
    Raises IntegrityError if index.json says another one or none, or the package needs the next revision of repodata.
    """
    index, own = info.index, subdir_of(info.index)
    check_place(index, path, subdir or path.parent.name)
    depends, constrains = _specs(index, "depends"), _specs(index, "constrains")
    if any(index.get(key) for key in _V3_FIELDS) or any("[when=" in spec for spec in (*depends, *constrains)):
        raise damaged_package(
            path, "it has conditional dependencies, groups or flags, which this repodata revision cannot express"
        )
    record: JsonObject = {key: index[key] for key in _RECORD_FIELDS if index.get(key) is not None}
    record |= {"subdir": own, "depends": depends, "md5": info.md5, "sha256": info.sha256, "size": info.size_bytes}
    if constrains:
        record["constrains"] = constrains
    if (track_features := index.get("track_features")) is not None:
        record["track_features"] = " ".join(track_features) if isinstance(track_features, list) else track_features
    if info.run_exports is not None:
        record["run_exports"] = run_exports_of(info.run_exports)
    if (attestations := sidecar_sha256(folder or Beneath(root=path.parent), path.name)) is not None:
        record[RECORD_FIELD] = attestations
    return dict(sorted(record.items()))


def run_exports_of(value: Mapping[str, object]) -> JsonObject:
    """run_exports with its empty kinds left out (CEP 12)."""
    return {kind: value[kind] for kind in RUN_EXPORT_KINDS if value.get(kind)}


def _specs(index: Mapping[str, object], key: str) -> list[str]:
    value = index.get(key)
    return [str(spec) for spec in value] if isinstance(value, list) else []


@dataclass(frozen=True, kw_only=True, slots=True)
class _UnreadFile:
    """A file that has to be read: with its ``contents``, unless they were read before and only its stamp changed."""

    folder: Beneath
    name: str
    stamp: Stamp
    contents: bool
    expected_sha256: str | None
    indexed_ms: int
    published: CachedPackage | None
    correction: JsonObject | None

    @property
    def path(self) -> Path:
        """Its path, for messages."""
        return self.folder.path / self.name


def attested_row(row: CachedPackage, folder: Beneath, file_name: str) -> CachedPackage:
    """The row of a package of the folder with the attestations that are beside it now, if any."""
    record = {key: value for key, value in row.record.items() if key != RECORD_FIELD}
    if (attestations := sidecar_sha256(folder, file_name)) is not None:
        record[RECORD_FIELD] = attestations
    return row.patched(dict(sorted(record.items())))


def _scan_packages(folder: Beneath) -> tuple[dict[str, Stamp], dict[str, list[str]]]:
    """The package files of a subdir, by name in order; and for those with attestations the hashes in their names.

    What has a package's name and is something else counts as well: reading it says what it is.
    """
    stamps = {}
    attestations: dict[str, list[str]] = {}
    for name, status in folder.stats():
        if name.startswith(TEMPORARY_PREFIX):
            continue
        if name.endswith(PACKAGE_SUFFIXES):
            stamps[name] = Stamp.of(_target_status(folder, name, status) if stat.S_ISLNK(status.st_mode) else status)
        elif name.endswith(SUFFIX):
            attestations.setdefault(name.removesuffix(SUFFIX), [])
        elif (hashed := HASHED_NAME.fullmatch(name)) is not None:
            attestations.setdefault(hashed["package"], []).append(hashed["sha256"])
    return dict(sorted(stamps.items())), attestations


def _target_status(folder: Beneath, name: str, link: os.stat_result) -> os.stat_result:
    """The status of what a link leads to, that of the link itself if it is not followed."""
    try:
        return folder.stat(name) or link
    except ChannelToolsError:
        return link


def _says_attestations(row: CachedPackage, hashes: Sequence[str] | None) -> bool:
    """Whether the row has the hash of the existing attestations; does not decode the record."""
    if hashes is None:
        return RECORD_FIELD.encode() not in row.record_json
    return any(sha256.encode() in row.record_json for sha256 in hashes)


def refresh_records(
    known: Records,
    folder: Beneath,
    *,
    skip: frozenset[str],
    first_seen: Mapping[str, tuple[str, int]],
    now_ms: int,
    corrections: Mapping[str, JsonObject] | None = None,
) -> Records:
    """The records of the folder now; only files that are new or touched since ``known`` are read.

    ``skip`` names files that are not published yet. ``first_seen`` gives sha256 and index time (ms) that an earlier
    index had for a file, for when the cache was lost. ``corrections`` are those of the channel's patches: a file that
    needs one, or was refused, is read again with another.
    """
    packages: dict[str, CachedPackage] = {}
    refused: dict[str, RefusedFile] = {}
    unread = []
    stamps, attestations = _scan_packages(folder)
    for name, stamp in stamps.items():
        cached, remembered, correction = (
            known.packages.get(name),
            known.refused.get(name),
            (corrections or {}).get(name),
        )
        if cached is not None and cached.stamp == stamp and cached.is_right_with(correction):
            current = _says_attestations(cached, attestations.get(name))
            packages[name] = cached if current else attested_row(cached, folder, name)
        elif remembered is not None and remembered.stamp == stamp and remembered.correction == correction:
            refused[name] = remembered
        elif name not in skip:
            unread.append(
                _unread(known, folder, name, stamp, first_seen.get(name), now_ms=now_ms, correction=correction)
            )
    for name, row in _read_files(unread):
        if isinstance(row, CachedPackage):
            packages[name] = row
        else:
            _log.warning("%s", row.message)
            refused[name] = row
    if unread:
        packages = {name: packages[name] for name in stamps if name in packages}
    return Records(packages=packages, refused=refused)


def _unread(
    known: Records,
    folder: Beneath,
    name: str,
    stamp: Stamp,
    first_seen: tuple[str, int] | None,
    *,
    now_ms: int,
    correction: JsonObject | None,
) -> _UnreadFile:
    cached, refused = known.packages.get(name), known.refused.get(name)
    published = cached or (refused.published if refused else None)
    expected, indexed_ms = first_seen or (None, now_ms)
    if published is not None:
        expected = published.sha256
        indexed_ms = int(str(published.record["indexed_timestamp"]))
    return _UnreadFile(
        folder=folder,
        name=name,
        stamp=stamp,
        contents=cached is None,
        expected_sha256=expected,
        indexed_ms=indexed_ms,
        published=published,
        correction=correction,
    )


def _read_files(files: Sequence[_UnreadFile]) -> Iterator[tuple[str, CachedPackage | RefusedFile]]:
    """Read and check each file; yields names and results as they are done, in several processes if there are many."""
    processes = min(len(os.sched_getaffinity(0)), len(files) // _FILES_PER_PROCESS)
    if processes <= 1:
        yield from ((file.name, _read_file(file)) for file in files)
        return
    from channel_tools.system.workers import run_in_processes  # noqa: PLC0415 - slow to import, and few files are the rule

    chunks = [files[start : start + _FILES_AT_ONCE] for start in range(0, len(files), _FILES_AT_ONCE)]
    for chunk, rows in run_in_processes(_read_chunk, chunks, processes=processes, activity="read packages"):
        yield from zip((file.name for file in chunk), rows, strict=True)


def _read_chunk(files: Sequence[_UnreadFile]) -> list[CachedPackage | RefusedFile]:
    return [_read_file(file) for file in files]


def _read_file(file: _UnreadFile) -> CachedPackage | RefusedFile:
    try:
        info = read_package(file.path, contents=file.contents, folder=file.folder, correction=file.correction)
        if file.expected_sha256 not in {None, info.sha256}:
            raise changed(file.path, info.sha256, str(file.expected_sha256))
        return cached_package(file.path, info, indexed_ms=file.indexed_ms, folder=file.folder)
    except (IntegrityError, ChannelError, FileAccessError) as err:
        return RefusedFile(
            stamp=file.stamp,
            changed=file.expected_sha256 is not None,
            message=escaped(err.message),  # the channel's own path may be no UTF-8
            hint=escaped(err.hint or ""),
            published=file.published,
            correction=file.correction,
        )
