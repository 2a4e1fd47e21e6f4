# SPDX-License-Identifier: BSD-3-Clause
"""The source store: ``sha256/<sha256>/<file name>`` and ``git/<commit>[-...]/`` with an archive and its manifest.

An entry appears by one rename after its bytes were hashed and its members checked, under a lock per content, so any
number of processes may fill one store. A file keeps its name because engines tell an archive by its suffix; a second
name of the same bytes is a hard link.

Builds get ``file:`` addresses into the store and the sha256, the plainest way that every engine documents; upstream's
addresses are left out there, so that no build downloads by itself. What a source is stands in the address
(``.../sha256/<sha256>/...``, ``.../git/<commit>...``), and every folder rendered for a build says in
``extra.channel_tools.sources`` which upstream addresses that is: whoever cleans a package's metadata finds them by it.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from channel_tools.errors import IntegrityError
from channel_tools.files import (
    TEMPORARY_PREFIX,
    atomic_path,
    disk_full_reported,
    link_or_copy,
    remove_leftovers,
    sha256_of_file,
    write_bytes_atomically,
)
from channel_tools.locks import exclusive_lock
from channel_tools.sources.archives import check_archive
from channel_tools.sources.gitarchive import (
    GitManifest,
    decode_manifest,
    encode_manifest,
    verify_archive,
    write_archive,
)
from channel_tools.sources.model import NeededSource, StoredSource

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from pathlib import Path

    from channel_tools.sources.gitobjects import GitRepository

MANIFEST = "manifest.json"
ORIGIN = ".origin.json"
_LOCK_WAIT_S = 3600.0
_CHUNK_BYTES = 1 << 20
_SHORT = 12


@dataclass(frozen=True, kw_only=True, slots=True)
class Origin:
    """Where a file came from, beside it in the store."""

    origin: str


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceStore:
    """A folder of sources, shared by all that run as this user."""

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
    def incoming(self) -> Path:
        """Where downloads grow and are continued."""
        return self.folder / "incoming"

    def entry(self, need: NeededSource) -> Path:
        """The folder that holds the source, or would."""
        if need.kind == "url":
            return self.files / need.identity
        words = [*need.excludes, *([] if need.submodules else ["without submodules"])]
        suffix = "-" + hashlib.sha256("\0".join(words).encode()).hexdigest()[:_SHORT] if words else ""
        return self.commits / f"{need.identity}{suffix}"

    def locked(self, need: NeededSource) -> AbstractContextManager[None]:
        """Hold the right to make or change one entry; others wait for it."""
        return exclusive_lock(
            self.folder / ".locks" / f"{self.entry(need).name}.lock",
            what=f"source {need.identity}",
            timeout_s=_LOCK_WAIT_S,
        )

    def find(self, need: NeededSource) -> StoredSource | None:
        """What the store holds for ``need``, not hashed again; None where it holds nothing."""
        entry = self.entry(need)
        if need.kind == "git":
            if not (entry / MANIFEST).is_file():
                return None
            manifest = self.manifest(need)
            return StoredSource(
                path=self._archive(manifest, entry), sha256=manifest.sha256, size_bytes=manifest.size_bytes
            )
        path = next(iter(_files_in(entry)), None)
        return None if path is None else StoredSource(path=path, sha256=need.identity, size_bytes=path.stat().st_size)

    def manifest(self, need: NeededSource) -> GitManifest:
        """What a git source's archive holds. Raises IntegrityError for a damaged manifest."""
        path = self.entry(need) / MANIFEST
        return decode_manifest(path.read_bytes(), path)

    def origin(self, need: NeededSource) -> str:
        """Where a stored source came from."""
        if need.kind == "git":
            return self.manifest(need).origin
        path = self.entry(need) / ORIGIN
        return msgspec.json.decode(path.read_bytes(), type=Origin).origin if path.is_file() else "unknown"

    def add_file(self, file: Path, need: NeededSource, *, origin: str) -> StoredSource:
        """Copy a file in. Raises IntegrityError when its bytes are others, or an archive that must not be unpacked."""
        with self.locked(need):
            if (found := self.find(need)) is not None:
                return found
            entry = self.entry(need)
            remove_leftovers(entry)
            with disk_full_reported(self.folder), atomic_path(entry / need.names[0]) as temporary:
                sha256 = _copy_hashing(file, temporary)
                if sha256 != need.identity:
                    message = f"{file}: {file.stat().st_size} bytes with sha256 {sha256}, expected {need.identity}"
                    raise IntegrityError(message, hint="it is cut short or another release; fetch it again")
                for name in need.names:
                    check_archive(temporary, name=name)
                write_bytes_atomically(entry / ORIGIN, msgspec.json.encode(Origin(origin=origin)))
        return self._found(need)

    def add_commit(
        self, need: NeededSource, find: Callable[[str, str, str], GitRepository], *, origin: str
    ) -> StoredSource:
        """Take a git source from local repositories, as write_archive finds them; its archive is proved before use."""
        with self.locked(need):
            if (found := self.find(need)) is not None:
                return found
            entry = self.entry(need)
            self.commits.mkdir(parents=True, exist_ok=True)
            top = f"{need.names[0]}-{need.identity[:_SHORT]}"
            with disk_full_reported(self.folder), atomic_path(entry) as temporary:
                temporary.mkdir()
                archive = temporary / f"{top}.tar.zst"
                proofs = write_archive(
                    archive,
                    commit=need.identity,
                    top=top,
                    find=find,
                    excludes=need.excludes,
                    submodules=need.submodules,
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
                (temporary / MANIFEST).write_bytes(encode_manifest(manifest))
        return self._found(need)

    def check(self, need: NeededSource) -> None:
        """Hash what is stored for ``need``. Raises IntegrityError when it is not what it was."""
        stored = self._found(need)
        found = sha256_of_file(stored.path) if stored.path.is_file() else "nothing"
        if found != stored.sha256:
            message = f"{stored.path}: has sha256 {found}, expected {stored.sha256}"
            raise IntegrityError(message, hint="channel_tools sources verify moves damaged entries aside")

    def supply(self, need: NeededSource, name: str) -> Path:
        """The stored file under the name that a recipe's address ends in."""
        stored = self._found(need)
        if need.kind == "git":
            return stored.path
        named = stored.path.with_name(name)
        link_or_copy(stored.path, named)
        return named

    def move_aside(self, need: NeededSource) -> Path:
        """Take a damaged entry out of the store without losing it; where it is now."""
        damaged = self.folder / "damaged"
        damaged.mkdir(parents=True, exist_ok=True)
        with self.locked(need):
            entry = self.entry(need)
            for number in range(1, 1 << 16):
                place = damaged / f"{entry.name}.{number}"
                if not os.path.lexists(place):
                    entry.rename(place)
                    return place
        raise IntegrityError(f"{damaged}: is full of damaged entries", hint="look at them and remove them")

    def _found(self, need: NeededSource) -> StoredSource:
        found = self.find(need)
        if found is None:
            raise IntegrityError(f"{self.entry(need)}: vanished from the store while it was used")
        return found

    def _archive(self, manifest: GitManifest, entry: Path) -> Path:
        return entry / f"{manifest.top}.tar.zst"


def _files_in(entry: Path) -> list[Path]:
    if not entry.is_dir():
        return []
    return sorted(
        path for path in entry.iterdir() if path.name != ORIGIN and not path.name.startswith(TEMPORARY_PREFIX)
    )


def _copy_hashing(source: Path, destination: Path) -> str:
    digest = hashlib.sha256()
    with source.open("rb") as reading, destination.open("wb") as writing:
        while chunk := reading.read(_CHUNK_BYTES):
            digest.update(chunk)
            writing.write(chunk)
    destination.chmod(0o644)
    return digest.hexdigest()
