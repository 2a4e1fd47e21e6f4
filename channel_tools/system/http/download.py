# SPDX-License-Identifier: BSD-3-Clause
"""Downloads that continue where they were cut off, in this run or an earlier one.

A download is verified by its sha256, not by what a server says about lengths or ranges. The partial file of an earlier
run may be from another file, so if the result is wrong, it is fetched once more from the start.
"""

from __future__ import annotations

import hashlib
import shutil
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from channel_tools.system.errors import DiskFullError, IntegrityError, NetworkError
from channel_tools.system.files import disk_full_reported
from channel_tools.system.http.client import RangeError
from channel_tools.system.http.pace import TooSlowError, TransientError

if TYPE_CHECKING:
    from collections.abc import Callable

    from channel_tools.system.beneath import Beneath
    from channel_tools.system.files import Digest
    from channel_tools.system.http.client import HttpClient, Response

_CHUNK_BYTES = 1 << 18
_MOST_BYTES = 256 << 30
_NAME_BYTES = 255
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
    cancelled: threading.Event = field(default_factory=threading.Event)


def download(client: HttpClient, request: Download) -> str | None:
    """Fetch exactly the wanted bytes into ``wanted.part``, whose folder is made; the name that the server gives them.

    Raises NetworkError (the partial file is kept for the next run), IntegrityError if the server sent other bytes (it
    is removed), DiskFullError, Cancelled.
    """
    transfer = _Transfer(client, request)
    transfer.run()
    return transfer.name


class _Transfer:
    """One download: attempts until the bytes are right or no attempt gets any further."""

    def __init__(self, client: HttpClient, request: Download) -> None:
        self._client = client
        self._request = request
        self._etag: str | None = None
        self.name: str | None = None

    def run(self) -> None:
        request, retry = self._request, self._client.retry
        where = self._where
        failures, furthest, is_own = 0, self._size(), False
        while True:
            before = self._size()
            try:
                sha256 = self._attempt(before)
            except TransientError as err:
                problem, now = err, self._size()
                advanced = now >= furthest + _PROGRESS_BYTES and not isinstance(err, TooSlowError)
                furthest, failures = max(furthest, now), 0 if advanced else failures + 1
            else:
                if request.sha256 in {None, sha256}:
                    return
                self._discard(where, sha256, continued=before > 0)
                problem, failures = (
                    TransientError("the partial file of an earlier download was from another file"),
                    failures + 1,
                )
                furthest, is_own = furthest if is_own else 0, True  # once: else it might go on forever
            if retry.is_last(failures, problem.retry_after_s):
                hint = "run the same command again: what was received is kept"
                raise NetworkError(f"{where}: {problem}", hint=hint)
            if request.cancelled.wait(retry.wait_s(failures, problem.retry_after_s)):
                raise Cancelled

    def _discard(self, where: str, sha256: str, *, continued: bool) -> None:
        """Remove a partial file with other bytes. Raises IntegrityError if all of them were received in this run."""
        size_bytes = self._size()
        self._request.folder.remove(self._request.part)
        if not continued:
            expected = "" if self._request.size_bytes is None else f"{self._request.size_bytes} bytes with "
            message = (
                f"{where}: got {size_bytes} bytes with sha256 {sha256}; "
                f"expected {expected}sha256 {self._request.sha256}"
            )
            raise IntegrityError(message, hint="the file there is not the recorded one: tell the server's operator")

    def _attempt(self, start: int) -> str:
        """Make one request for what is missing; returns the sha256 of the partial file."""
        request = self._request
        if request.sha256 is None and self._etag is None:
            start = 0
        if start and request.size_bytes is not None and start >= request.size_bytes:
            return self._digest_there().hexdigest()
        try:
            with (
                disk_full_reported(request.folder.path),
                self._client.get(request.url, start=start, etag=self._etag) as response,
            ):
                etag = response.headers.get("ETag")
                self._etag = None if etag is None or etag.startswith("W/") else etag
                self.name = file_name_in(response.headers.get("Content-Disposition", ""))
                return self._receive(response)
        except RangeError:
            return self._digest_there().hexdigest()

    def _receive(self, response: Response) -> str:
        """Hash and write the body as it arrives."""
        request = self._request
        self._check_room(response)
        digest = self._digest_there() if response.start else hashlib.sha256()
        remaining = None if request.size_bytes is None else request.size_bytes - response.start
        received = response.start
        with request.folder.writing(request.part, append=bool(response.start)) as writing:
            while remaining is None or remaining > 0:
                chunk = response.read1(_CHUNK_BYTES if remaining is None else min(_CHUNK_BYTES, remaining))
                if not chunk:
                    break
                writing.write(chunk)
                digest.update(chunk)
                remaining = None if remaining is None else remaining - len(chunk)
                request.on_bytes(len(chunk))
                received += len(chunk)
                if received > _MOST_BYTES:
                    message = f"{self._where}: more than {_MOST_BYTES >> 30} GiB; no file of that size is read"
                    raise NetworkError(message, hint="check the address, and remove what was received")
                if request.cancelled.is_set():
                    raise Cancelled
        if remaining:
            raise TransientError(f"the connection ended {remaining} bytes too early")
        return digest.hexdigest()

    def _check_room(self, response: Response) -> None:
        """Raise DiskFullError if the server says that more follows than the disk has room for."""
        stated = response.raw.length_remaining
        if stated is None or self._request.size_bytes is not None:
            return
        folder = self._request.folder.path
        free_bytes = shutil.disk_usage(folder).free
        if stated > free_bytes:
            message = f"{self._where}: {stated} bytes follow, and {folder} has room for {free_bytes}"
            raise DiskFullError(message, hint="check the address; if it is right, free space there")

    @property
    def _where(self) -> str:
        return self._client.credentials.redact(self._request.url)

    def _digest_there(self) -> Digest:
        with self._request.folder.opened(self._request.part) as stream:
            return hashlib.file_digest(stream, "sha256")

    def _size(self) -> int:
        """The size of the partial file; 0 if there is none."""
        status = self._request.folder.file_stat(self._request.part)
        return 0 if status is None else status.st_size


def file_name_in(disposition: str) -> str | None:
    """The file name in a Content-Disposition header, without folders; None if there is none for a file of ours.

    >>> file_name_in('attachment; filename="toy-1.tar.gz"'), file_name_in("inline"), file_name_in("x; filename=../.a")
    ('toy-1.tar.gz', None, None)
    """
    for part in disposition.split(";"):
        key, _, value = part.strip().partition("=")
        name = value.strip("\"'").rpartition("/")[2]
        if key == "filename" and name and not name.startswith(".") and name.isprintable():
            return name if len(name.encode()) <= _NAME_BYTES else None
    return None
