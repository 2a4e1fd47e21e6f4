# SPDX-License-Identifier: BSD-3-Clause
"""Hashing a whole store again: files by their sha256, git sources up to their commits.

A damaged entry is moved aside, never deleted: builds then say that the source is missing, and the bytes are still there
for whoever wants to know what happened to them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from channel_tools.errors import IntegrityError
from channel_tools.files import TEMPORARY_PREFIX, sha256_of_file
from channel_tools.sources.archives import check_archive
from channel_tools.sources.gitarchive import decode_manifest, verify_archive
from channel_tools.sources.model import NeededSource
from channel_tools.sources.store import MANIFEST, archive_name, files_in

if TYPE_CHECKING:
    from pathlib import Path

    from channel_tools.progress import Progress
    from channel_tools.sources.store import SourceStore


@dataclass(frozen=True, kw_only=True, slots=True)
class DamagedEntry:
    """An entry whose bytes are not what its name says, and where it is now (None: it was left where it is)."""

    entry: Path
    problem: str
    moved_to: Path | None


def stored_entries(store: SourceStore) -> list[Path]:
    """Every entry of the store, damaged or not, sorted."""
    return sorted(
        entry
        for folder in (store.files, store.commits)
        if folder.is_dir()
        for entry in folder.iterdir()
        if not entry.name.startswith(TEMPORARY_PREFIX) and (folder == store.commits or files_in(entry))
    )


def verify_store(store: SourceStore, *, dry_run: bool, progress: Progress) -> tuple[int, list[DamagedEntry]]:
    """How many entries there are, and those that are damaged; they are moved aside unless ``dry_run``."""
    entries = stored_entries(store)
    damaged = []
    with progress.task("verifying sources", total=len(entries)) as task:
        for entry in entries:
            try:
                check_entry(store, entry)
            except (IntegrityError, FileNotFoundError) as err:
                moved_to = None if dry_run else store.move_aside(entry)
                damaged.append(DamagedEntry(entry=entry, problem=str(err), moved_to=moved_to))
            task.advance(detail=entry.name)
    return len(entries), damaged


def check_entry(store: SourceStore, entry: Path) -> None:
    """Hash one entry. Raises IntegrityError when it is not what its name says."""
    if entry.parent == store.commits:
        _check_commit(store, entry)
        return
    for path in files_in(entry):
        found = sha256_of_file(path)
        if found != entry.name:
            raise IntegrityError(f"{path}: has sha256 {found}, expected {entry.name}")
        check_archive(path)


def _check_commit(store: SourceStore, entry: Path) -> None:
    manifest = decode_manifest((entry / MANIFEST).read_bytes(), entry / MANIFEST)
    archive = entry / archive_name(manifest.top)
    found = sha256_of_file(archive)
    if found != manifest.sha256 or archive.stat().st_size != manifest.size_bytes:
        raise IntegrityError(f"{archive}: has sha256 {found}, expected {manifest.sha256}")
    named = NeededSource(
        kind="git",
        identity=manifest.commit,
        urls=(manifest.origin,),
        names=(manifest.top,),
        excludes=manifest.excludes,
        submodules=manifest.submodules,
    )
    if (held := {path.name for path in entry.iterdir()}) != {MANIFEST, archive.name}:
        raise IntegrityError(f"{entry}: holds {', '.join(sorted(held))}; expected {MANIFEST} and {archive.name}")
    if store.entry(named).name != entry.name:
        raise IntegrityError(f"{entry}: holds {store.entry(named).name}")
    check_archive(archive)
    verify_archive(archive, manifest)
