# SPDX-License-Identifier: BSD-3-Clause
"""The source store: ``sha256/<sha256>/<file name>`` and ``git/<commit>[-...]/`` with an archive and its manifest.

An entry appears by one rename after its bytes were hashed and its members checked, under a lock per entry, so any
number of processes may use one store. A file keeps its name because engines recognise an archive by its suffix; a
second name for the same bytes is a hard link.

Builds get ``file:`` addresses in the store and the sha256, which every engine supports; upstream's addresses are left
out, so that no build downloads by itself. The address identifies the source (``.../sha256/<sha256>/...``,
``.../git/<commit>...``), and every folder rendered for a build has the upstream addresses in
``extra.channel_tools.sources``, from which they are restored when a package's metadata is cleaned.

Verifying hashes everything again: files by their sha256, git sources up to their commits. A damaged entry is moved
aside, never deleted: builds then report the source as missing, and the bytes can still be examined.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from channel_tools.sources.archives import check_archive, is_archive
from channel_tools.sources.gitarchive import (
    GitManifest,
    decode_manifest,
    encode_manifest,
    verify_archive,
    write_archive,
)
from channel_tools.sources.model import NeededSource, StoredSource
from channel_tools.system.document import decode_json
from channel_tools.system.errors import IntegrityError
from channel_tools.system.files import (
    TEMPORARY_PREFIX,
    atomic_path,
    disk_full_reported,
    link_or_copy,
    remove_leftovers,
    sha256_of_file,
    write_bytes_atomically,
)
from channel_tools.system.locks import exclusive_lock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from channel_tools.sources.gitarchive import FindRepository
    from channel_tools.system.progress import Progress

MANIFEST = "manifest.json"
ORIGIN = ".origin.json"
"""The file beside a source that says where it came from."""
_LOCK_WAIT_S = 3600.0
_SHORT = 12
_FILE_MODE = 0o644


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceStore:
    """A folder of sources, shared by all processes of this user."""

    folder: Path

    @property
    def files(self) -> Path:
        """Files by sha256."""
        return self.folder / "sha256"

    @property
    def commits(self) -> Path:
        """Git sources by commit."""
        return self.folder / "git"

    @property
    def damaged(self) -> Path:
        """Damaged entries, kept so that they can be examined."""
        return self.folder / "damaged"

    @property
    def incoming(self) -> Path:
        """The folder for partial downloads."""
        return self.folder / "incoming"

    def entry(self, need: NeededSource) -> Path:
        """The folder for the source, whether it exists or not."""
        if need.kind == "url":
            return self.files / need.identity
        words = [*need.excludes, *([] if need.submodules else ["without submodules"])]
        suffix = "-" + hashlib.sha256("\0".join(words).encode()).hexdigest()[:_SHORT] if words else ""
        return self.commits / f"{need.identity}{suffix}"

    @contextlib.contextmanager
    def locked_entry(self, entry: Path) -> Iterator[None]:
        """Lock the entry in this folder, to make or change it; others wait."""
        lock_file = self.folder / ".locks" / f"{entry.name}.lock"
        with (
            disk_full_reported(self.folder),
            exclusive_lock(lock_file, resource=f"source {entry.name}", timeout_s=_LOCK_WAIT_S),
        ):
            yield

    def find(self, need: NeededSource) -> StoredSource | None:
        """The stored source for ``need``, not hashed again; None if the store does not have it."""
        entry = self.entry(need)
        if need.kind == "git":
            if not (entry / MANIFEST).is_file():
                return None
            manifest = self.manifest(need)
            return StoredSource(
                path=entry / archive_name(manifest.top), sha256=manifest.sha256, size_bytes=manifest.size_bytes
            )
        path = next(iter(files_in(entry)), None)
        return None if path is None else StoredSource(path=path, sha256=need.identity, size_bytes=path.stat().st_size)

    def manifest(self, need: NeededSource) -> GitManifest:
        """The manifest of a git source's archive. Raises IntegrityError if it is damaged."""
        path = self.entry(need) / MANIFEST
        return decode_manifest(path.read_bytes(), path)

    def origin(self, need: NeededSource) -> str:
        """Where a stored source came from."""
        if need.kind == "git":
            return self.manifest(need).origin
        return self._record(need).get("origin", "unknown")

    def name_of(self, need: NeededSource, name: str) -> str:
        """What engines are to call a stored file: what its server did, else ``name``, which its address ends with."""
        return self._record(need).get("name", name)

    def _record(self, need: NeededSource) -> dict[str, str]:
        try:
            return decode_json((self.entry(need) / ORIGIN).read_bytes(), dict[str, str])
        except (FileNotFoundError, msgspec.DecodeError):
            return {}

    def add_file(self, file: Path, need: NeededSource, *, origin: str) -> StoredSource:
        """Copy a file into the store. Raises IntegrityError if it has other bytes or is an unsafe archive."""
        with self.locked_entry(self.entry(need)):
            return self.put_file(file, need, origin=origin)

    def put_file(
        self, file: Path, need: NeededSource, *, origin: str, move: bool = False, name: str | None = None
    ) -> StoredSource:
        """Like add_file, for a caller that holds the lock; with ``move`` the file is renamed instead of copied.

        ``name`` is what the server calls the file: engines go by that, and not by the address, to tell an archive. By
        default it is the file's own, if that is an archive's and the address says nothing.
        """
        if name is None and is_archive(file.name) and not is_archive(need.names[0]):
            name = file.name
        if (stored := self.find(need)) is not None:
            return stored
        entry = self.entry(need)
        remove_leftovers(entry)
        with disk_full_reported(self.folder), atomic_path(entry / need.names[0]) as temporary:
            if move:
                file.rename(temporary)
            else:
                shutil.copyfile(file, temporary)
            sha256 = sha256_of_file(temporary)
            if sha256 != need.identity:
                message = (
                    f"{file}: has {temporary.stat().st_size} bytes, sha256 {sha256}; expected sha256 {need.identity}"
                )
                raise IntegrityError(message, hint="it may be cut short or from another release; download it again")
            temporary.chmod(_FILE_MODE)
            for known in (*need.names, *([] if name is None else [name])):
                check_archive(temporary, name=known)
            record = {"origin": origin} | ({} if name is None else {"name": name})
            write_bytes_atomically(entry / ORIGIN, msgspec.json.encode(record))
        return self.known(need)

    def add_commit(self, need: NeededSource, find: FindRepository, *, origin: str) -> StoredSource:
        """Add a git source from local repositories, as write_archive finds them; its archive is verified before use."""
        with self.locked_entry(self.entry(need)):
            return self.put_commit(need, find, origin=origin)

    def put_commit(self, need: NeededSource, find: FindRepository, *, origin: str) -> StoredSource:
        """Like add_commit, for a caller that holds the lock."""
        if (stored := self.find(need)) is not None:
            return stored
        entry = self.entry(need)
        self._remove_leftovers_of(entry)
        top = f"{need.names[0]}-{need.identity[:_SHORT]}"
        with disk_full_reported(self.folder), atomic_path(entry) as temporary:
            temporary.mkdir()
            archive = temporary / archive_name(top)
            proofs = write_archive(
                archive, commit=need.identity, top=top, find=find, excludes=need.excludes, submodules=need.submodules
            )
            manifest = GitManifest(
                commit=need.identity,
                excludes=need.excludes,
                submodules=need.submodules,
                top=top,
                sha256=sha256_of_file(archive),
                size_bytes=archive.stat().st_size,
                origin=origin,
                commits=proofs,
            )
            check_archive(archive)
            verify_archive(archive, manifest)
            write_bytes_atomically(temporary / MANIFEST, encode_manifest(manifest))
        return self.known(need)

    def check(self, need: NeededSource) -> None:
        """Hash what is stored for ``need``. Raises IntegrityError if it has changed."""
        stored = self.known(need)
        sha256 = sha256_of_file(stored.path) if stored.path.is_file() else "nothing"
        if sha256 != stored.sha256:
            message = f"{stored.path}: has sha256 {sha256}; expected {stored.sha256}"
            raise IntegrityError(message, hint="run channel_tools sources verify, which moves damaged entries aside")

    def supply(self, need: NeededSource, name: str) -> Path:
        """The stored file, under ``name`` or what its server called it."""
        stored = self.known(need)
        if need.kind == "git":
            return stored.path
        named = stored.path.with_name(self.name_of(need, name))
        link_or_copy(stored.path, named)
        return named

    def known(self, need: NeededSource) -> StoredSource:
        """The stored source for ``need``. Raises IntegrityError if the store does not have it."""
        stored = self.find(need)
        if stored is None:
            raise IntegrityError(f"{self.entry(need)}: not in the store", hint="see channel_tools sources list")
        return stored

    def move_aside(self, entry: Path) -> Path:
        """Move a damaged entry out of the store without deleting it; returns its new place."""
        self.damaged.mkdir(parents=True, exist_ok=True)
        with self.locked_entry(entry):
            holder = Path(tempfile.mkdtemp(prefix=f"{entry.name}-", dir=self.damaged))
            entry.rename(holder / entry.name)
        return holder / entry.name

    def _remove_leftovers_of(self, entry: Path) -> None:
        """Delete what killed writers of this entry left: folders with temporary names beside it."""
        for holder in entry.parent.glob(f"{TEMPORARY_PREFIX}*"):
            if (holder / entry.name).exists():
                shutil.rmtree(holder, ignore_errors=True)


def archive_name(top: str) -> str:
    """The file name of a git source's archive, by the name of its top folder."""
    return f"{top}.tar.zst"


def files_in(entry: Path) -> list[Path]:
    """The files of an entry by sha256, which are names of the same bytes."""
    if not entry.is_dir():
        return []
    return sorted(
        path for path in entry.iterdir() if path.name != ORIGIN and not path.name.startswith(TEMPORARY_PREFIX)
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class DamagedEntry:
    """An entry whose bytes do not match its name, and where it was moved (None: it was not moved)."""

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
    """The number of entries, and the damaged ones, which are moved aside unless ``dry_run``."""
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
    """Hash one entry. Raises IntegrityError if its bytes do not match its name."""
    if entry.parent == store.commits:
        _check_commit(store, entry)
        return
    for path in files_in(entry):
        sha256 = sha256_of_file(path)
        if sha256 != entry.name:
            raise IntegrityError(f"{path}: has sha256 {sha256}; expected {entry.name}")
        check_archive(path)


def _check_commit(store: SourceStore, entry: Path) -> None:
    manifest = decode_manifest((entry / MANIFEST).read_bytes(), entry / MANIFEST)
    archive = entry / archive_name(manifest.top)
    sha256 = sha256_of_file(archive)
    if sha256 != manifest.sha256 or archive.stat().st_size != manifest.size_bytes:
        raise IntegrityError(f"{archive}: has sha256 {sha256}; expected {manifest.sha256}")
    named = NeededSource(
        kind="git",
        identity=manifest.commit,
        urls=(manifest.origin,),
        names=(manifest.top,),
        excludes=manifest.excludes,
        submodules=manifest.submodules,
    )
    if (names := {path.name for path in entry.iterdir()}) != {MANIFEST, archive.name}:
        raise IntegrityError(f"{entry}: contains {', '.join(sorted(names))}; expected {MANIFEST} and {archive.name}")
    if store.entry(named).name != entry.name:
        raise IntegrityError(f"{entry}: contains {store.entry(named).name} instead")
    check_archive(archive)
    verify_archive(archive, manifest)
