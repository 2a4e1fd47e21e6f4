# SPDX-License-Identifier: BSD-3-Clause
"""Getting the files of a bundle: several at once, hashed while they come, continued where they were cut off.

What is expected is known before (size and sha256), so nothing that a server says about either is believed: no byte more
than expected is read, and a file is there under its name only when it is right.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import hashlib
import stat
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from channel_tools.addresses import local_path, without_credentials
from channel_tools.errors import ChannelError, IntegrityError, NetworkError
from channel_tools.files import disk_full_reported, sha256_of_file
from channel_tools.mirror.http import TryAgainError

if TYPE_CHECKING:
    import io
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from channel_tools.mirror.http import Answer, HttpReader
    from channel_tools.mirror.ratelimit import RateLimit
    from channel_tools.progress import Progress, Task

PART_SUFFIX = ".part"
_CHUNK_BYTES = 1 << 18
_ATTEMPTS = 5
_BACKOFF_S = 0.5
_VERIFY_HINT = "channel_tools channel verify says what is wrong there"


@dataclass(frozen=True, kw_only=True, slots=True)
class WantedFile:
    """A file that a bundle needs: where it goes (``path`` in the bundle) and where it comes from."""

    path: str
    size_bytes: int
    sha256: str
    url: str


@dataclass(frozen=True, kw_only=True, slots=True)
class FetchOptions:
    """How files are fetched; a server that sends less than ``slowest_bytes_per_s`` counts as stalled."""

    reader: HttpReader
    jobs: int = 8
    limit: RateLimit | None = None
    slowest_bytes_per_s: float = 1000.0


class _TooSlowError(TryAgainError):
    """The server sends, but hardly anything: that it got further does not count."""


class _Cancelled(Exception):  # noqa: N818 - no error: another file's was
    """The other files are given up."""


class _Fetcher:
    def __init__(self, folder: Path, options: FetchOptions, task: Task) -> None:
        self._folder = folder
        self._options = options
        self._task = task
        self._cancelled = threading.Event()
        self._reader = options.reader
        self._local = threading.local()
        self._made: set[Path] = set()

    def cancel(self) -> None:
        self._cancelled.set()

    def fetch(self, wanted: WantedFile) -> bool:
        """Leave the file in the folder; whether it had to be fetched."""
        if self._cancelled.is_set():
            raise _Cancelled
        target = self._folder / wanted.path
        if _holds(target, wanted):
            self._task.advance(wanted.size_bytes, detail=target.name)
            return False
        part = target.with_name(target.name + PART_SUFFIX)
        with disk_full_reported(self._folder):
            if target.parent not in self._made:
                target.parent.mkdir(parents=True, exist_ok=True)
                self._made.add(target.parent)
            local = local_path(wanted.url)
            self._copy(local, part, wanted) if local is not None else self._download(part, wanted)
            part.replace(target)
        return True

    def _copy(self, source: Path, part: Path, wanted: WantedFile) -> None:
        digest = hashlib.sha256()
        try:
            with source.open("rb", buffering=0) as stream, part.open("wb", buffering=0) as writing:
                lacking = self._pump(stream.readinto, writing, digest, wanted.size_bytes)
                complete = not lacking and not stream.read(1)
        except FileNotFoundError:
            message = f"{source}: the channel's index names it, but it is not there"
            raise ChannelError(message, hint=_VERIFY_HINT) from None
        if digest.hexdigest() != wanted.sha256 or not complete:
            part.unlink()
            message = f"{source}: is not the file that the channel's index names ({_expected(wanted)})"
            raise IntegrityError(message, hint=_VERIFY_HINT)

    def _download(self, part: Path, wanted: WantedFile) -> None:
        where, problem, idle = without_credentials(wanted.url), "", 0
        while idle < _ATTEMPTS:
            before = _size(part)
            try:
                found = self._attempt(part, wanted, start=before)
            except TryAgainError as err:
                problem = str(err)
                idle = 0 if _size(part) > before and not isinstance(err, _TooSlowError) else idle + 1
                self._pause(idle)
                continue
            if found == wanted.sha256:
                return
            part.unlink()
            if before == 0:
                message = f"{where}: bytes with sha256 {found} came; expected {_expected(wanted)}"
                raise IntegrityError(message, hint="the channel's index and its files differ: tell those who run it")
            problem, idle = "the part of an earlier download did not fit", idle + 1
        raise NetworkError(f"{where}: {problem}", hint="run the same command again: what has come is kept")

    def _attempt(self, part: Path, wanted: WantedFile, *, start: int) -> str:
        """One request for what is missing; the sha256 of the whole part. Raises TryAgainError when some is lacking."""
        digest = hashlib.sha256()
        with contextlib.ExitStack() as stack:
            if start >= wanted.size_bytes > 0:
                start = 0
            answer = stack.enter_context(self._reader.get(wanted.url, start=start))
            writing = stack.enter_context(part.open("r+b" if answer.start else "wb", buffering=0))
            _hash_start(writing, answer.start, digest)
            lacking = self._pump(answer.readinto, writing, digest, wanted.size_bytes - answer.start)
        if lacking:
            raise TryAgainError(f"the connection ended {lacking} bytes too early")
        return digest.hexdigest()

    def _pump(
        self, readinto: Callable[[memoryview], int], writing: io.RawIOBase, digest: hashlib._Hash, left: int
    ) -> int:
        """Move ``left`` bytes on, hashing them; how many did not come. Raises TryAgainError for a peer too slow."""
        limit = self._options.limit
        buffer = self._buffer()[: None if limit is None else limit.chunk_bytes]
        waited_s, came = 0.0, 0
        while left > 0:
            if self._cancelled.is_set():
                raise _Cancelled
            asked_at = time.monotonic()
            count = readinto(buffer[:left])
            waited_s += time.monotonic() - asked_at
            if not count:
                break
            _write_all(writing, buffer[:count])
            digest.update(buffer[:count])
            left -= count
            came += count
            self._task.advance(count)
            if waited_s > self._reader.timeout_s and came < waited_s * self._options.slowest_bytes_per_s:
                raise _TooSlowError(f"only {came} bytes came in {waited_s:.0f} s")
            if limit is not None:
                limit.spend(count)
        return left

    def _buffer(self) -> memoryview:
        """One per thread, used for all its files."""
        if not hasattr(self._local, "buffer"):
            self._local.buffer = memoryview(bytearray(_CHUNK_BYTES))
        buffer: memoryview = self._local.buffer
        return buffer

    def _pause(self, idle: int) -> None:
        if idle and self._cancelled.wait(_BACKOFF_S * 2**idle):
            raise _Cancelled


def fetch_files(
    wanted: Sequence[WantedFile], folder: Path, *, options: FetchOptions, progress: Progress
) -> tuple[int, int]:
    """Bring all files into ``folder``; how many files and bytes had to be fetched, the others were there.

    Files that are there are hashed again; parts of earlier runs are continued. Raises NetworkError, ChannelError (a
    local channel lacks a file), IntegrityError (other bytes than the index says), DiskFullError; what came is kept.
    """
    total = sum(item.size_bytes for item in wanted)
    with progress.task("fetching packages", total=total, unit="bytes") as task:
        fetcher = _Fetcher(folder, options, task)
        # large ones first: none is left alone at the end
        ordered = sorted(wanted, key=lambda item: (-item.size_bytes, item.path))
        with concurrent.futures.ThreadPoolExecutor(max_workers=options.jobs) as pool:
            futures = {pool.submit(fetcher.fetch, item): item for item in ordered}
            try:
                fetched = [futures[done] for done in concurrent.futures.as_completed(futures) if done.result()]
            except BaseException:
                fetcher.cancel()
                pool.shutdown(wait=True, cancel_futures=True)
                raise
    return len(fetched), sum(item.size_bytes for item in fetched)


def read_small(reader: HttpReader, url: str, *, limit_bytes: int) -> bytes:
    """All of a small file. Raises NetworkError (MissingError where there is none) and for more than ``limit_bytes``."""
    where, problem = without_credentials(url), ""
    for attempt in range(_ATTEMPTS):
        if attempt:
            time.sleep(_BACKOFF_S * 2 ** (attempt - 1))
        try:
            with reader.get(url) as answer:
                return _read_whole(answer, where, limit_bytes)
        except TryAgainError as err:
            problem = str(err)
    raise NetworkError(f"{where}: {problem}", hint="check the address and the route to it, then run it again")


def _read_whole(answer: Answer, where: str, limit_bytes: int) -> bytes:
    content, buffer = bytearray(), memoryview(bytearray(_CHUNK_BYTES))
    while count := answer.readinto(buffer):
        content += buffer[:count]
        if len(content) > limit_bytes:
            raise NetworkError(f"{where}: is longer than {limit_bytes} bytes", hint="is this a channel?")
    if not answer.complete:
        raise TryAgainError(f"the connection ended after {len(content)} bytes")
    return bytes(content)


def _write_all(stream: io.RawIOBase, content: memoryview) -> None:
    """A file takes all of it, unless the disk is full just then."""
    while content:
        content = content[stream.write(content) :]


def _expected(wanted: WantedFile) -> str:
    return f"{wanted.size_bytes} bytes with sha256 {wanted.sha256}"


def _holds(target: Path, wanted: WantedFile) -> bool:
    size = _size(target)
    there = size > 0 or (wanted.size_bytes == 0 and target.is_file())
    return there and size == wanted.size_bytes and sha256_of_file(target) == wanted.sha256


def _hash_start(stream: io.RawIOBase, count: int, digest: hashlib._Hash) -> None:
    """Hash the first ``count`` bytes and stand behind them."""
    while count > 0 and (chunk := stream.read(min(_CHUNK_BYTES, count))):
        digest.update(chunk)
        count -= len(chunk)


def _size(path: Path) -> int:
    """Of a regular file; 0 for anything else."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return 0
    return found.st_size if stat.S_ISREG(found.st_mode) else 0
