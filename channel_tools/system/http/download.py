# SPDX-License-Identifier: BSD-3-Clause
"""Downloads that continue where they were cut off, in this run or an earlier one.

A download is verified by its sha256, not by what a server says about lengths or ranges. The partial file of an earlier
run may be from another file, so if the result is wrong, it is fetched once more from the start.
"""

from __future__ import annotations

import hashlib
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from channel_tools.system.errors import IntegrityError, NetworkError
from channel_tools.system.files import disk_full_reported
from channel_tools.system.http.client import RangeError
from channel_tools.system.http.pace import TooSlowError, TransientError

if TYPE_CHECKING:
    from collections.abc import Callable

    from channel_tools.system.beneath import Beneath
    from channel_tools.system.hashing import Digest
    from channel_tools.system.http.client import HttpClient, Response
    from channel_tools.system.http.pace import RateLimit

_CHUNK_BYTES = 1 << 18
_PROGRESS_BYTES = 1 << 16
"""An attempt that gets this many bytes further than all before it does not count as a failure."""


class Cancelled(Exception):  # noqa: N818 - not an error: the caller asked for it
    """A download was cancelled; its partial file is kept."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Download:
    """A file to fetch from ``url`` to ``part`` in ``folder``, where an earlier attempt may have left its start.

    Without ``sha256``, whatever the address has is taken; what was cut off is then continued only if the server has a
    strong ETag for it, and else sent anew, as nothing would tell the start of one file from the end of another. With
    ``size_bytes``, at most that many bytes are read; without, the server decides where the file ends. ``on_bytes`` is
    called with the length of each chunk. Setting ``cancelled`` ends the download.
    """

    url: str
    folder: Beneath
    part: str
    sha256: str | None
    on_bytes: Callable[[int], None]
    size_bytes: int | None = None
    limit: RateLimit | None = None
    cancelled: threading.Event = field(default_factory=threading.Event)


def download(client: HttpClient, wanted: Download) -> None:
    """Fetch exactly the wanted bytes into ``wanted.part``, whose folder is made.

    Raises NetworkError (the partial file is kept for the next run), IntegrityError if the server sent other bytes (it
    is removed), DiskFullError, Cancelled.
    """
    _Transfer(client, wanted).run()


class _Transfer:
    """One download: attempts until the bytes are right or no attempt gets any further."""

    def __init__(self, client: HttpClient, wanted: Download) -> None:
        self._client = client
        self._wanted = wanted
        self._etag: str | None = None

    def run(self) -> None:
        wanted, retry = self._wanted, self._client.retry
        where = self._client.credentials.redact(wanted.url)
        failures, furthest, is_own = 0, self._size(), False
        while True:
            before = self._size()
            try:
                found = self._attempt(before)
            except TransientError as err:
                problem, now = err, self._size()
                advanced = now >= furthest + _PROGRESS_BYTES and not isinstance(err, TooSlowError)
                furthest, failures = max(furthest, now), 0 if advanced else failures + 1
            else:
                if wanted.sha256 in {None, found}:
                    return
                self._discard(where, found, continued=before > 0)
                problem, failures = (
                    TransientError("the partial file of an earlier download was from another file"),
                    failures + 1,
                )
                furthest, is_own = furthest if is_own else 0, True  # once: else it might go on forever
            if retry.is_last(failures, problem.retry_after_s):
                hint = "run the same command again: what was received is kept"
                raise NetworkError(f"{where}: {problem}", hint=hint)
            if wanted.cancelled.wait(retry.wait_s(failures, problem.retry_after_s)):
                raise Cancelled

    def _discard(self, where: str, found: str, *, continued: bool) -> None:
        """Remove a partial file with other bytes. Raises IntegrityError if all of them were received in this run."""
        size_bytes = self._size()
        self._wanted.folder.remove(self._wanted.part)
        if not continued:
            expected = "" if self._wanted.size_bytes is None else f"{self._wanted.size_bytes} bytes with "
            message = (
                f"{where}: got {size_bytes} bytes with sha256 {found}; expected {expected}sha256 {self._wanted.sha256}"
            )
            raise IntegrityError(message, hint="the file there is not the recorded one: tell the server's operator")

    def _attempt(self, start: int) -> str:
        """Make one request for what is missing; returns the sha256 of the partial file."""
        wanted = self._wanted
        if wanted.sha256 is None and self._etag is None:
            start = 0
        if start and wanted.size_bytes is not None and start >= wanted.size_bytes:
            return self._digest_there().hexdigest()
        try:
            with (
                disk_full_reported(wanted.folder.path),
                self._client.get(wanted.url, start=start, etag=self._etag) as response,
            ):
                self._etag = _strong_etag(response)
                return self._receive(response)
        except RangeError:
            return self._digest_there().hexdigest()

    def _receive(self, response: Response) -> str:
        """Hash and write the body as it arrives."""
        wanted = self._wanted
        digest = self._digest_there() if response.start else hashlib.sha256()
        chunk_bytes = _CHUNK_BYTES if wanted.limit is None else min(_CHUNK_BYTES, wanted.limit.chunk_bytes)
        left = None if wanted.size_bytes is None else wanted.size_bytes - response.start
        with wanted.folder.writing(wanted.part, append=bool(response.start)) as writing:
            while left is None or left > 0:
                chunk = response.read1(chunk_bytes if left is None else min(chunk_bytes, left))
                if not chunk:
                    break
                writing.write(chunk)
                digest.update(chunk)
                left = None if left is None else left - len(chunk)
                wanted.on_bytes(len(chunk))
                if wanted.cancelled.is_set():
                    raise Cancelled
                if wanted.limit is not None:
                    wanted.limit.spend(len(chunk))
        if left:
            raise TransientError(f"the connection ended {left} bytes too early")
        return digest.hexdigest()

    def _digest_there(self) -> Digest:
        with self._wanted.folder.opened(self._wanted.part) as stream:
            return hashlib.file_digest(stream, "sha256")

    def _size(self) -> int:
        """The size of the partial file; 0 if there is none."""
        status = self._wanted.folder.file_stat(self._wanted.part)
        return 0 if status is None else status.st_size


def _strong_etag(response: Response) -> str | None:
    """The ETag if it identifies the file's exact bytes, which a weak one does not."""
    etag = response.headers.get("ETag")
    return None if etag is None or etag.startswith("W/") else etag
