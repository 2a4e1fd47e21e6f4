# SPDX-License-Identifier: BSD-3-Clause
"""Exporting a store to one file and importing it, for sites without a network.

The file is an uncompressed tar (its members are compressed already) that starts with a manifest of every member, so it
is written and read as a stream. Importing verifies all of it: the members must be exactly those of the manifest, every
entry is hashed like a stored one, and nothing enters the store before everything was found correct.
"""

from __future__ import annotations

import io
import re
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

import msgspec

from channel_tools.sources.store import SourceStore, check_entry, files_in, stored_entries
from channel_tools.system.document import decode_json
from channel_tools.system.errors import IntegrityError, UsageError
from channel_tools.system.files import atomic_path, disk_full_reported, sha256_of_file
from channel_tools.system.tarstream import tar_members
from channel_tools.system.work_folder import temporary_folder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from channel_tools.system.progress import Progress, Task

MANIFEST_MEMBER = "sources.json"
DEFAULT_NAME = "sources.tar"
_SCHEMA = 1
_CHUNK_BYTES = 1 << 20
_MAX_MANIFEST_BYTES = 64 << 20
_PLACE = re.compile(r"(?:sha256/[0-9a-f]{64}|git/[0-9a-f]{40}(?:[0-9a-f]{24})?(?:-[0-9a-f]{12})?)/[^/\0]+")


@dataclass(frozen=True, kw_only=True, slots=True)
class ExportedFile:
    """A file of the store, by its path in it."""

    path: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ExportManifest:
    """The content of an exported file, in the order of its members."""

    files: tuple[ExportedFile, ...]
    schema: int = _SCHEMA


def export_entries(store: SourceStore, entries: Sequence[Path], destination: Path, progress: Progress) -> Path:
    """Write entries to the file ``destination``; the same entries give the same bytes.

    Each is hashed first. Raises IntegrityError for a damaged one, DiskFullError; an existing file is replaced at the
    end.
    """
    files = [
        path
        for entry in entries
        for path in sorted(entry.iterdir())
        if path.is_file() and not path.name.startswith(".tmp-")
    ]
    total = sum(path.stat().st_size for path in files)
    with progress.task("hashing sources", total=total, unit="bytes") as task:
        for entry in entries:
            check_entry(store, entry)
        manifest = ExportManifest(files=tuple(_exported(store, path, task) for path in files))
    with (
        progress.task("writing sources", total=total, unit="bytes") as task,
        disk_full_reported(destination.parent),
        atomic_path(destination, clear_abandoned=True) as temporary,
        tarfile.open(temporary, mode="w", format=tarfile.GNU_FORMAT) as tar,
    ):
        content = msgspec.json.format(msgspec.json.encode(manifest, order="sorted"), indent=1)
        tar.addfile(_member(MANIFEST_MEMBER, len(content)), io.BytesIO(content))
        for path, listed in zip(files, manifest.files, strict=True):
            with path.open("rb") as stream:
                tar.addfile(_member(listed.path, listed.size_bytes), stream)
            task.advance(listed.size_bytes, detail=path.name)
    return destination


def import_file(store: SourceStore, file: Path, *, dry_run: bool, progress: Progress) -> tuple[list[str], list[str]]:
    """Import the content of ``file``; returns the entries that were added, or would be, and those already there.

    Raises IntegrityError for a file that is cut short, or has damaged members or others than it lists; the store is
    then unchanged. Raises UsageError if there is no such file.
    """
    source = file / DEFAULT_NAME if file.is_dir() else file
    if not source.is_file():
        raise UsageError(f"{source}: there is no such file", hint="make one with channel_tools sources export FILE")
    with disk_full_reported(store.folder):
        store.incoming.mkdir(parents=True, exist_ok=True)
        with temporary_folder(store.incoming) as folder:
            staged = SourceStore(folder=folder)
            try:
                _unpack(source, staged, progress)
            except tarfile.TarError as err:
                raise _refused(source, f"not a complete export: {err}") from None
            entries = stored_entries(staged)
            for entry in entries:
                check_entry(staged, entry)
            return _take_in(store, staged, entries, dry_run=dry_run)


def _take_in(
    store: SourceStore, staged: SourceStore, entries: Sequence[Path], *, dry_run: bool
) -> tuple[list[str], list[str]]:
    added, known = [], []
    for entry in entries:
        name = entry.relative_to(staged.folder).as_posix()
        destination = store.folder / name
        with store.locked_entry(destination):
            if files_in(destination):
                known.append(name)
                continue
            added.append(name)
            if not dry_run:
                destination.parent.mkdir(parents=True, exist_ok=True)
                if destination.is_dir():
                    destination.rmdir()  # empty: the rest of an entry that was never finished
                entry.rename(destination)
    return added, known


def _unpack(source: Path, staged: SourceStore, progress: Progress) -> None:
    with source.open("rb") as raw:
        members = tar_members(raw)
        listed = _read_manifest(source, *next(members, (None, None)))
        total = sum(item.size_bytes for item in listed)
        with progress.task("reading sources", total=total, unit="bytes") as task:
            waiting = iter(listed)
            for member, stream in members:
                expected = next(waiting, None)
                if expected is None or member.name != expected.path or stream is None:
                    raise _refused(source, f"member {member.name!r} is not the one in its list at this position")
                target = staged.folder / expected.path
                target.parent.mkdir(parents=True, exist_ok=True)
                with target.open("xb") as writing:
                    while chunk := stream.read(_CHUNK_BYTES):
                        writing.write(chunk)
                        task.advance(len(chunk), detail=target.name)
                sha256 = sha256_of_file(target)
                if sha256 != expected.sha256:
                    raise _refused(source, f"member {expected.path!r} has sha256 {sha256}; expected {expected.sha256}")
            if (lacking := next(waiting, None)) is not None:
                raise _refused(source, f"member {lacking.path!r} is missing: the file is cut short")


def _read_manifest(source: Path, member: tarfile.TarInfo | None, stream: IO[bytes] | None) -> tuple[ExportedFile, ...]:
    if member is None or member.name != MANIFEST_MEMBER or stream is None or member.size > _MAX_MANIFEST_BYTES:
        raise _refused(source, f"does not start with {MANIFEST_MEMBER}")
    try:
        manifest = decode_json(stream.read(), ExportManifest)
    except (msgspec.DecodeError, msgspec.ValidationError) as err:
        raise _refused(source, f"{MANIFEST_MEMBER} cannot be read: {err}") from None
    if manifest.schema != _SCHEMA:
        raise _refused(source, f"has schema {manifest.schema}; this version of channel_tools reads {_SCHEMA}")
    names: set[str] = set()
    for name in (item.path for item in manifest.files):
        if not _PLACE.fullmatch(name) or Path(name).name in {".", ".."}:
            raise _refused(source, f"lists {name!r}, which is not a path of a source store")
        if name in names:
            raise _refused(source, f"lists {name!r} twice")
        names.add(name)
    return manifest.files


def _exported(store: SourceStore, path: Path, task: Task) -> ExportedFile:
    size_bytes = path.stat().st_size
    sha256 = sha256_of_file(path)
    task.advance(size_bytes, detail=path.name)
    return ExportedFile(path=path.relative_to(store.folder).as_posix(), size_bytes=size_bytes, sha256=sha256)


def _member(name: str, size_bytes: int) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size, info.mode, info.mtime = size_bytes, 0o644, 0
    return info


def _refused(source: Path, reason: str) -> IntegrityError:
    return IntegrityError(
        f"{source}: {reason}", hint="copy it again from where it was exported; the store was not changed"
    )
