# SPDX-License-Identifier: BSD-3-Clause
"""Fetches files of known hashes: several at once, hashed while they arrive, continued where they were cut off.

The expected size and sha256 are known beforehand, so what a server says about them is ignored: no byte more than
expected is read, and a file appears under its name only if it is correct.
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING

from channel_tools.conda.addresses import local_path
from channel_tools.conda.package import subdir_beneath
from channel_tools.system.beneath import Beneath
from channel_tools.system.errors import ChannelError, IntegrityError
from channel_tools.system.files import disk_full_reported
from channel_tools.system.http.download import Cancelled, Download, download
from channel_tools.system.workers import run_in_threads

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from channel_tools.system.http.client import HttpClient
    from channel_tools.system.progress import Progress, Task

PART_SUFFIX = ".part"
_CHUNK_BYTES = 1 << 18
_VERIFY_HINT = "run channel_tools channel verify to see what is wrong there"


@dataclass(frozen=True, kw_only=True, slots=True)
class HashedFile:
    """A file of known bytes; ``path`` is relative to the folder that it is for, with slashes."""

    path: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, kw_only=True, slots=True)
class RemoteFile(HashedFile):
    """A file to fetch from ``url``."""

    url: str


@dataclass(frozen=True, kw_only=True, slots=True)
class FetchOptions:
    """How files are fetched: with which client, and how many at once."""

    client: HttpClient
    jobs: int = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class _Fetcher:
    folder: Beneath
    options: FetchOptions
    task: Task
    cancelled: threading.Event = field(default_factory=threading.Event)

    def fetch(self, file: RemoteFile) -> bool:
        """Get the file into the folder; returns whether it had to be fetched."""
        if self.cancelled.is_set():
            raise Cancelled
        status = self.folder.file_stat(file.path)
        if status is not None and status.st_size == file.size_bytes and self.folder.sha256(file.path) == file.sha256:
            self.task.advance(file.size_bytes, detail=file.path.rpartition("/")[2])
            return False
        part = file.path + PART_SUFFIX
        with disk_full_reported(self.folder.path):
            local = local_path(file.url)
            if local is not None:
                self._copy(local, part, file)
            else:
                request = Download(
                    url=file.url,
                    folder=self.folder,
                    part=part,
                    sha256=file.sha256,
                    size_bytes=file.size_bytes,
                    on_bytes=self.task.advance,
                    cancelled=self.cancelled,
                )
                download(self.options.client, request)
            self.folder.move(part, file.path)
        return True

    def _copy(self, source: Path, part: str, file: RemoteFile) -> None:
        digest, remaining = hashlib.sha256(), file.size_bytes
        with _opened(source) as stream, self.folder.writing(part) as writing:
            while chunk := stream.read(min(_CHUNK_BYTES, remaining)):
                if self.cancelled.is_set():
                    raise Cancelled
                writing.write(chunk)
                digest.update(chunk)
                remaining -= len(chunk)
                self.task.advance(len(chunk))
            is_complete = not remaining and not stream.read(1)
        if digest.hexdigest() != file.sha256 or not is_complete:
            self.folder.remove(part)
            expected = f"{file.size_bytes} bytes with sha256 {file.sha256}"
            message = f"{source}: is not the file in the channel's index, which has {expected}"
            raise IntegrityError(message, hint=_VERIFY_HINT)


def fetch_files(
    files: Sequence[RemoteFile], folder: Path, *, options: FetchOptions, progress: Progress
) -> tuple[int, int]:
    """Get all files into ``folder``; returns how many files and bytes had to be fetched, the others were there.

    Existing files are hashed again; partial files of earlier runs are continued. Raises NetworkError, ChannelError (a
    local channel lacks a file), IntegrityError (bytes differ from the index), DiskFullError; what was fetched is kept.
    """
    folder.mkdir(parents=True, exist_ok=True)
    total = sum(item.size_bytes for item in files)
    with progress.task("fetching packages", total=total, unit="bytes") as task:
        fetcher = _Fetcher(folder=Beneath(root=folder), options=options, task=task)
        # large ones first, so that none runs alone at the end
        ordered = sorted(files, key=lambda item: (-item.size_bytes, item.path))
        results = run_in_threads(fetcher.fetch, ordered, threads=options.jobs, cancel=fetcher.cancelled.set)
    fetched = [item for item, was_fetched in results if was_fetched]
    return len(fetched), sum(item.size_bytes for item in fetched)


@contextlib.contextmanager
def _opened(source: Path) -> Iterator[IO[bytes]]:
    """A file of a local channel. Raises ChannelError if there is none, or if it is not a regular file."""
    with contextlib.ExitStack() as stack:
        try:
            stream = stack.enter_context(subdir_beneath(source).opened(source.name))
        except FileNotFoundError:
            message = f"{source}: is in the channel's index, but does not exist"
            raise ChannelError(message, hint=_VERIFY_HINT) from None
        yield stream
