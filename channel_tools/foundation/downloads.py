# SPDX-License-Identifier: BSD-3-Clause
"""Downloads .debs and wheels into the download store.

The store has files by sha256, ``<downloads>/<sha256>/<file name>``. A file enters by a rename after its bytes were
hashed; it is hashed once more before use, because it may have been damaged since by a disk or by copying the folder.
"""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from channel_tools.foundation.apt import DEB_ARCHITECTURES, OTHER_FOUNDATION, Apt, complaints
from channel_tools.foundation.pypi import MACHINES, Pip, pip_error
from channel_tools.system.counting import counted
from channel_tools.system.errors import FoundationError, IntegrityError, NetworkError
from channel_tools.system.files import disk_full_reported, link_or_copy, remove_leftovers, sha256_of_file
from channel_tools.system.locks import exclusive_lock
from channel_tools.system.progress import GrowthReport
from channel_tools.system.workers import run_in_threads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from channel_tools.foundation.model import LockedArtifact
    from channel_tools.foundation.pypi import PytorchChoice
    from channel_tools.foundation.table import FoundationTable
    from channel_tools.system.processes import CommandResult
    from channel_tools.system.progress import Progress

_HASHING_THREADS = 2
LARGE_BYTES = 100_000_000
"""A download of at least this size is announced before it starts."""
_LOCK_WAIT_S = 1800.0
LockedArtifacts = dict[tuple[str, str], "LockedArtifact"]


@dataclass(frozen=True, kw_only=True, slots=True)
class DownloadStore:
    """A folder of downloads, shared by all processes of this user."""

    folder: Path

    @property
    def incoming(self) -> Path:
        """The folder for partial downloads; complete ones are moved into the store, others are continued or dropped."""
        return self.folder / "incoming"

    @property
    def lock_file(self) -> Path:
        """The lock for downloading."""
        return self.folder / ".lock"

    def path_of(self, artifact: LockedArtifact) -> Path:
        """The path of the file, whether it exists or not."""
        return self.folder / artifact.sha256 / artifact.file_name

    def missing(self, wanted: Iterable[LockedArtifact]) -> list[LockedArtifact]:
        """Those that the store lacks. Files whose sha256 differs from their path are removed and count as missing."""
        files = sorted(set(wanted), key=lambda artifact: (artifact.kind, artifact.name, artifact.version))
        complete = dict(run_in_threads(self._is_complete, files, threads=_HASHING_THREADS))
        return [artifact for artifact in files if not complete[artifact]]

    def accept(self, downloaded: Path, artifact: LockedArtifact) -> Path:
        """Move a downloaded file into the store. Raises IntegrityError if it is not the expected file."""
        size_bytes = downloaded.stat().st_size
        sha256 = sha256_of_file(downloaded)
        if sha256 != artifact.sha256:
            message = (
                f"{artifact.kind} {artifact.name} {artifact.version} ({artifact.file_name}): got {size_bytes} bytes "
                f"with sha256 {sha256}, expected {artifact.size_bytes} bytes with sha256 {artifact.sha256}"
            )
            raise IntegrityError(
                message, hint="run the command again; if that fails too, the mirror or a proxy is at fault"
            )
        destination = self.path_of(artifact)
        with disk_full_reported(self.folder):
            destination.parent.mkdir(parents=True, exist_ok=True)
            with downloaded.open("rb") as stream:
                os.fsync(stream.fileno())
            if downloaded.is_symlink():  # apt's way with packages of a file: source
                link_or_copy(downloaded.resolve(), destination)
                downloaded.unlink()
            else:
                downloaded.replace(destination)
        return destination

    def _is_complete(self, artifact: LockedArtifact) -> bool:
        path = self.path_of(artifact)
        if not path.is_file():
            return False
        if artifact.size_bytes in (0, path.stat().st_size) and sha256_of_file(path) == artifact.sha256:
            return True
        path.unlink()
        return False


class UnavailableError(FoundationError):
    """Recorded files are neither in the store nor still offered by a registry."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sources:
    """Where .debs and wheels come from: apt, pip, and the store of earlier downloads."""

    apt: Apt
    pip: Pip
    store: DownloadStore
    offline: bool = False
    """Only the store may be used; asking apt or pip for anything is an error."""

    def reach(self, purpose: str) -> None:
        """Call this before asking a registry. Raises NetworkError naming the purpose if that is not allowed."""
        if self.offline:
            message = f"the registry foundation is incomplete, and no registry may be used offline: {purpose}"
            hint = (
                "make the foundation once with a network (channel_tools foundation build), or copy its downloads "
                f"to {self.store.folder} and give its foundation.json with --locked"
            )
            raise NetworkError(message, hint=hint)


def make_sources(
    table: FoundationTable, *, downloads: Path, subdir: str, pytorch: PytorchChoice, offline: bool = False
) -> Sources:
    """The registries that this host is configured for, and the download store in ``downloads``.

    ``pytorch`` says which of PyTorch's wheels is taken.
    """
    architecture = DEB_ARCHITECTURES[subdir]
    state = downloads / "apt" / f"{table.suite}-{architecture}"
    return Sources(
        apt=Apt(state=state, suite=table.suite, architecture=architecture),
        pip=Pip(python=table.python, glibc=table.glibc, machine=MACHINES[subdir], pytorch=pytorch),
        store=DownloadStore(folder=downloads),
        offline=offline,
    )


def fetch(files: Iterable[LockedArtifact], sources: Sources, progress: Progress) -> None:
    """Download ``files`` into the store; a file that arrives damaged is fetched once more.

    Raises UnavailableError, NetworkError or IntegrityError, naming the files; offline always NetworkError. Files that
    did arrive stay in the store.
    """
    missing = sources.store.missing(files)
    if not missing:
        return
    sources.reach(f"{counted(len(missing), 'file')} ({some_names(artifact.file_name for artifact in missing)})")
    sources.store.incoming.mkdir(parents=True, exist_ok=True)
    with exclusive_lock(sources.store.lock_file, resource="the download store", timeout_s=_LOCK_WAIT_S):
        remove_leftovers(sources.store.incoming)
        missing = sources.store.missing(missing)  # another process may have fetched some in the meantime
        _announce(missing, progress)
        debs = [artifact for artifact in missing if artifact.kind == "deb"]
        wheels = [artifact for artifact in missing if artifact.kind == "wheel"]
        if debs:
            _fetch_debs(debs, sources, progress)
        if wheels:
            _fetch_wheels(wheels, sources, progress)


def with_sizes(artifacts: LockedArtifacts, store: DownloadStore) -> LockedArtifacts:
    """``artifacts`` with the sizes of wheels, which are known only after the download."""
    return {
        key: replace(file, size_bytes=store.path_of(file).stat().st_size)
        if file.size_bytes == 0 and store.path_of(file).is_file()
        else file
        for key, file in artifacts.items()
    }


def _announce(missing: Sequence[LockedArtifact], progress: Progress) -> None:
    total = sum(artifact.size_bytes for artifact in missing)
    for artifact in missing:
        _note_large(progress, artifact.file_name, artifact.size_bytes)
    if total >= LARGE_BYTES:
        progress.note(f"to download: {total:,} bytes in {counted(len(missing), 'file')}")


def _fetch_debs(debs: Sequence[LockedArtifact], sources: Sources, progress: Progress) -> None:
    waiting = _accept_incoming(debs, sources.store)
    if not waiting:
        return
    _check_offered(waiting, sources.apt)
    lacking, result = _download("Debian packages", waiting, sources.store, progress, sources.apt.download)
    if lacking:
        names = some_names(file.name for file in lacking)
        message = f"{len(lacking)} Debian packages could not be downloaded ({names}):\n"
        hint = f"run it again when the mirror responds, or {OTHER_FOUNDATION}"
        raise NetworkError(message + complaints(result), hint=hint)


def _check_offered(debs: Sequence[LockedArtifact], apt: Apt) -> None:
    """Raise UnavailableError if freshly fetched lists no longer have one of these files."""
    apt.update()
    offered = apt.find(f"{artifact.name}={artifact.version}" for artifact in debs)
    unavailable = [
        artifact
        for artifact in debs
        if artifact.name not in offered or offered[artifact.name].sha256 != artifact.sha256
    ]
    if unavailable:
        raise _unavailable(unavailable)


def _fetch_wheels(wheels: Sequence[LockedArtifact], sources: Sources, progress: Progress) -> None:
    waiting = _accept_incoming(wheels, sources.store)
    if not waiting:
        return
    download = functools.partial(sources.pip.download, on_large=functools.partial(_note_large, progress))
    lacking, result = _download("wheels", waiting, sources.store, progress, download)
    if lacking:
        error = pip_error(result, f"wheels {some_names(file.name for file in lacking)}")
        raise error if isinstance(error, (NetworkError, IntegrityError)) else _unavailable(lacking)


def _download(
    title: str,
    files: Sequence[LockedArtifact],
    store: DownloadStore,
    progress: Progress,
    download: Callable[..., CommandResult],
) -> tuple[list[LockedArtifact], CommandResult]:
    """Run apt's or pip's download, and again for incomplete files; returns what is still missing, and its output."""
    waiting = list(files)
    total = sum(artifact.size_bytes for artifact in files) if all(artifact.size_bytes for artifact in files) else None
    with progress.task(title, total=total, unit="bytes") as task:
        for is_last in (False, True):
            report = GrowthReport(task, [store.incoming], [artifact.file_name for artifact in waiting])
            result = download(waiting, store.incoming, poll=report.poll)
            waiting = _accept_incoming(waiting, store, is_last=is_last)
            if not waiting:
                break
    return waiting, result


def _note_large(progress: Progress, name: str, size_bytes: int) -> None:
    if size_bytes >= LARGE_BYTES:
        progress.note(f"large download: {name}, {size_bytes:,} bytes")


def _accept_incoming(
    wanted: Sequence[LockedArtifact], store: DownloadStore, *, is_last: bool = False
) -> list[LockedArtifact]:
    """Move complete files into the store; returns those still missing; with ``is_last``, a damaged file is an error."""
    waiting: list[LockedArtifact] = []
    for artifact in wanted:
        path = store.incoming / artifact.file_name
        if not path.is_file():
            waiting.append(artifact)
            continue
        if not is_last and path.stat().st_size < artifact.size_bytes:
            waiting.append(artifact)  # apt continues where it was cut off
            continue
        try:
            store.accept(path, artifact)
        except IntegrityError:
            path.unlink()
            if is_last:
                raise
            waiting.append(artifact)
    return waiting


def _unavailable(unavailable: Sequence[LockedArtifact]) -> UnavailableError:
    names = "; ".join(
        f"{artifact.kind} {artifact.name} {artifact.version} (sha256 {artifact.sha256[:12]}...)"
        for artifact in unavailable
    )
    message = f"{len(unavailable)} recorded files are neither in the download store nor available any more: {names}"
    hint = "copy them into the download store of this machine, or do without the lock and use the available versions"
    return UnavailableError(message, hint=hint)


def some_names(names: Iterable[str]) -> str:
    """The first names in a list of any length, for messages."""
    listed = sorted(names)
    shown = ", ".join(listed[:5])
    return shown if len(listed) <= 5 else f"{shown} and {len(listed) - 5} more"  # noqa: PLR2004 - a readable line
