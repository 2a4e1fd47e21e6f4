# SPDX-License-Identifier: BSD-3-Clause
"""Fetching the files of a bundle: several at once, hashed while they arrive, continued where they were cut off.

The expected size and sha256 are known beforehand, so what a server says about them is ignored: no byte more than
expected is read, and a file appears under its name only if it is correct.
"""

from __future__ import annotations

import hashlib
import stat
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from channel_tools.conda.addresses import local_path
from channel_tools.mirror.format import BundleFile
from channel_tools.system.errors import ChannelError, IntegrityError
from channel_tools.system.files import disk_full_reported, sha256_of_file
from channel_tools.system.http.download import Cancelled, Download, download
from channel_tools.system.workers import run_in_threads

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from channel_tools.system.http.client import HttpClient
    from channel_tools.system.http.pace import RateLimit
    from channel_tools.system.progress import Progress, Task

PART_SUFFIX = ".part"
_CHUNK_BYTES = 1 << 18
_VERIFY_HINT = "run channel_tools channel verify to see what is wrong there"


@dataclass(frozen=True, kw_only=True, slots=True)
class RemoteFile(BundleFile):
    """A file that a bundle needs from ``url``."""

    url: str


@dataclass(frozen=True, kw_only=True, slots=True)
class FetchOptions:
    """How files are fetched: with which client, how many at once, and how fast in total."""

    client: HttpClient
    jobs: int = 8
    limit: RateLimit | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class _Fetcher:
    folder: Path
    options: FetchOptions
    task: Task
    cancelled: threading.Event = field(default_factory=threading.Event)

    def fetch(self, file: RemoteFile) -> bool:
        """Get the file into the folder; returns whether it had to be fetched."""
        if self.cancelled.is_set():
            raise Cancelled
        target = self.folder / file.path
        if _is_complete(target, file):
            self.task.advance(file.size_bytes, detail=target.name)
            return False
        part = target.with_name(target.name + PART_SUFFIX)
        with disk_full_reported(self.folder):
            target.parent.mkdir(parents=True, exist_ok=True)
            local = local_path(file.url)
            if local is not None:
                self._copy(local, part, file)
            else:
                wanted = Download(
                    url=file.url,
                    part=part,
                    sha256=file.sha256,
                    size_bytes=file.size_bytes,
                    on_bytes=self.task.advance,
                    limit=self.options.limit,
                    cancelled=self.cancelled,
                )
                download(self.options.client, wanted)
            part.replace(target)
        return True

    def _copy(self, source: Path, part: Path, file: RemoteFile) -> None:
        digest, left = hashlib.sha256(), file.size_bytes
        try:
            with source.open("rb") as stream, part.open("wb") as writing:
                while chunk := stream.read(min(_CHUNK_BYTES, left)):
                    if self.cancelled.is_set():
                        raise Cancelled
                    writing.write(chunk)
                    digest.update(chunk)
                    left -= len(chunk)
                    self.task.advance(len(chunk))
                    if self.options.limit is not None:
                        self.options.limit.spend(len(chunk))
                is_complete = not left and not stream.read(1)
        except FileNotFoundError:
            message = f"{source}: is in the channel's index, but does not exist"
            raise ChannelError(message, hint=_VERIFY_HINT) from None
        if digest.hexdigest() != file.sha256 or not is_complete:
            part.unlink()
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
    total = sum(item.size_bytes for item in files)
    with progress.task("fetching packages", total=total, unit="bytes") as task:
        fetcher = _Fetcher(folder=folder, options=options, task=task)
        # large ones first, so that none runs alone at the end
        ordered = sorted(files, key=lambda item: (-item.size_bytes, item.path))
        results = run_in_threads(fetcher.fetch, ordered, threads=options.jobs, cancel=fetcher.cancelled.set)
    fetched = [item for item, was_fetched in results if was_fetched]
    return len(fetched), sum(item.size_bytes for item in fetched)


def _is_complete(target: Path, file: RemoteFile) -> bool:
    try:
        found = target.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    is_candidate = stat.S_ISREG(found.st_mode) and found.st_size == file.size_bytes
    return is_candidate and sha256_of_file(target) == file.sha256
