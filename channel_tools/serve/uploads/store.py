# SPDX-License-Identifier: BSD-3-Clause
"""Uploads on disk, so that any process of the server can continue them and a killed one loses nothing.

``uploads/CHANNEL/ID/`` has ``request.json`` (never changed), ``state.json`` (replaced as the job proceeds), ``parts/``
(incomplete files) and ``files/`` (files whose bytes were checked; nothing writes to them any more). The process that
runs a job has locked its ``lock``: a running job that is not locked was interrupted, and can be run again.

A lock belongs to the open file and not to a process (Linux' OFD locks): a child that inherits the descriptor keeps it
when its parent dies, the system releases it when the last of them has died, and any process can query it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import logging
import os
import re
import shutil
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec  # noqa: TC002 - msgspec reads the annotations

from channel_tools.channel.model import RECORD_FOLDER
from channel_tools.publish.server.protocol import (
    ErrorResponse,
    HotfixRequest,
    JobKind,
    JobResponse,
    JobState,
    PromoteRequest,
    ReportResponse,
    RetainRequest,
    SetRequest,
    YankRequest,
    encode,
)
from channel_tools.system.beneath import Beneath
from channel_tools.system.document import decode_json
from channel_tools.system.errors import ChannelToolsError, IntegrityError
from channel_tools.system.files import write_bytes_atomically

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from channel_tools.conda.package import PackageRef

    JobRequest = SetRequest | PromoteRequest | YankRequest | HotfixRequest | RetainRequest

_log = logging.getLogger(__name__)
STALE_S = 24 * 3600.0
_JUST_MADE_S = 60.0
_RECORD_BYTES = 64 << 20
ARRIVING_FOLDER = "arriving"
"""In a channel's folder: single packages being received, each locked by the process that receives it."""
_QUARANTINED = ".damaged-"
_ID = re.compile(r"[0-9a-f]{32}")
_ID_CHARACTERS = 32
_RUNNING = frozenset({"waiting", "running"})
_SENT_FOLDERS = ("files", "parts")
_FLOCK = "hhqqi"
_LOCKED_ERRNOS = frozenset({errno.EACCES, errno.EAGAIN})
REQUESTS: dict[JobKind, type[JobRequest]] = {
    "publish": SetRequest,
    "promote": PromoteRequest,
    "yank": YankRequest,
    "hotfix": HotfixRequest,
    "retain": RetainRequest,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class State:
    """The state of a job."""

    state: JobState = "open"
    report: ReportResponse | None = None
    error: ErrorResponse | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class _Recorded:
    """The content of request.json."""

    kind: JobKind
    body: msgspec.Raw


@dataclass(frozen=True, kw_only=True, slots=True)
class _Labelled:
    """The part that every request has; the rest of it can be large."""

    label: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """What the server is asked to do with a label, and the job's folder; the request itself stays on disk."""

    id: str
    kind: JobKind
    channel: str
    label: str
    folder: Path

    @property
    def request(self) -> JobRequest:
        """The request, read each time. Raises IntegrityError if it is damaged."""
        file = self.folder / "request.json"
        try:
            content = self._files.read(file.name, limit_bytes=_RECORD_BYTES)
            return decode_json(decode_json(content, _Recorded).body, REQUESTS[self.kind])
        except (FileNotFoundError, ValueError) as err:
            raise IntegrityError(f"{file}: not a valid request ({err})", hint="open the set again") from None

    def recorded(self) -> bytes | None:
        """The bytes of request.json; None if they cannot be read."""
        with contextlib.suppress(OSError, ChannelToolsError):
            return self._files.read("request.json", limit_bytes=_RECORD_BYTES)
        return None

    @property
    def _files(self) -> Beneath:
        return Beneath(root=self.folder)

    @property
    def lock(self) -> Path:
        """The file that the process that runs the job has locked."""
        return self.folder / "lock"

    def file(self, wanted: PackageRef) -> Path:
        """The path of a complete, checked file."""
        return self.folder / "files" / wanted.subdir / wanted.file_name

    def part(self, wanted: PackageRef) -> Path:
        """The path of a file while it is being received."""
        return self.folder / "parts" / wanted.subdir / wanted.file_name

    def has_files(self) -> bool:
        """Whether any sent files are still kept."""
        return any((self.folder / name).is_dir() for name in _SENT_FOLDERS)

    def received(self, wanted: PackageRef) -> int:
        """How many bytes of an incomplete file were received."""
        with contextlib.suppress(OSError):
            return self.part(wanted).stat().st_size
        return 0

    def state(self) -> State:
        """Its state."""
        state = State()
        file = self.folder / "state.json"
        try:
            state = decode_json(self._files.read(file.name, limit_bytes=_RECORD_BYTES), State)
        except FileNotFoundError:
            pass
        except (ValueError, ChannelToolsError) as err:  # a job can always be run again
            _log.error("%s: not a valid state of a job (%s); the job counts as interrupted", file, err)
        if state.state in _RUNNING and not is_locked(self.lock):
            return State()  # the process that ran it was killed
        return state

    def set_state(self, state: State) -> None:
        """Record its state; only for a process that has locked the job."""
        write_bytes_atomically(self.folder / "state.json", encode(state))

    def response(self, missing: dict[str, int] | None = None) -> JobResponse:
        """The job as it is shown to clients."""
        state = self.state()
        return JobResponse(
            id=self.id,
            kind=self.kind,
            state=state.state,
            label=self.label,
            missing=missing or {},
            report=state.report,
            error=state.error,
        )

    def without_paths(self, message: str, root: Path) -> str:
        """A message for clients, without the paths of folders on the server."""
        for folder in (self.folder / "files", self.folder, root):
            message = message.replace(f"{folder}/", "").replace(str(folder), "the server")
        return message

    def touch(self) -> None:
        """Mark it as in use."""
        with contextlib.suppress(OSError):  # the disk may be full for that, too
            os.utime(self.folder)


class JobStore:
    """All jobs of a server, below ``folder``."""

    def __init__(
        self, folder: Path, *, clock: Callable[[], float], quarantined: Callable[[], None] = lambda: None
    ) -> None:
        """``quarantined`` is called for each job that is set aside because it cannot be read."""
        self.folder = folder
        self._clock = clock
        self._quarantined = quarantined

    def open(self, kind: JobKind, channel: str, request: JobRequest) -> Job:
        """The job of a request, open unless it is running: the existing one, else a new one."""
        job = self.described(kind, channel, request)
        file, content = job.folder / "request.json", _recorded(kind, request)
        if job.recorded() != content:  # the id is derived from it: anything else is damage
            write_bytes_atomically(file, content)
        with try_lock(job.lock) as lock:
            if lock is not None:
                (job.folder / "state.json").unlink(missing_ok=True)
        job.touch()
        return job

    def described(self, kind: JobKind, channel: str, request: JobRequest) -> Job:
        """The job of a request, whether it exists or not; its id is derived from the request."""
        content = channel.encode() + b"\0" + _recorded(kind, request)
        job_id = hashlib.sha256(content).hexdigest()[:_ID_CHARACTERS]
        folder = self.folder / channel / job_id
        return Job(id=job_id, kind=kind, channel=channel, label=request.label, folder=folder)

    def find(self, channel: str, job_id: str) -> Job | None:
        """The job with this id, None if there is none; a damaged one is set aside and counts as missing."""
        if not _ID.fullmatch(job_id):
            return None
        folder = self.folder / channel / job_id
        try:
            content = Beneath(root=folder).read("request.json", limit_bytes=_RECORD_BYTES)
            recorded = decode_json(content, _Recorded)
            label = decode_json(recorded.body, _Labelled).label
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (ValueError, ChannelToolsError) as err:
            self._put_aside(folder, str(err))
            return None
        return Job(id=job_id, kind=recorded.kind, channel=channel, label=label, folder=folder)

    def _put_aside(self, folder: Path, reason: str) -> None:
        """Keep a damaged job for the server's operator, under a name that no request can reach."""
        aside = folder.with_name(f"{_QUARANTINED}{folder.name}")
        with contextlib.suppress(FileNotFoundError):  # another process was faster
            shutil.rmtree(aside, ignore_errors=True)
            folder.rename(aside)
            os.utime(aside)
            _log.error("%s: request.json is damaged (%s); the job is kept as %s for a day", folder, reason, aside.name)
            self._quarantined()

    def remove(self, job: Job) -> bool:
        """Remove a job and all that was sent for it; not while it is running (False)."""
        with try_lock(job.lock) as lock:
            if lock is None:
                return False
            removed = job.folder.with_name(f".removed-{job.id}")
            shutil.rmtree(removed, ignore_errors=True)
            job.folder.rename(removed)
            shutil.rmtree(removed, ignore_errors=True)
        return True

    def remove_stale(self) -> list[str]:
        """Remove the jobs that were not used for STALE_S; returns their ids.

        Files of a finished job are removed at once: they are left behind if its process was killed after the end.
        """
        self._remove_leftovers()
        removed = []
        for job in self._jobs():
            with _going_on(job.folder):
                if self._clock() - job.folder.stat().st_mtime > STALE_S and self.remove(job):
                    removed.append(job.id)
                elif job.has_files() and job.state().state == "done":
                    _drop_if_free(job)
        return removed

    def _remove_leftovers(self) -> None:
        """Remove unfinished deletions, damaged jobs kept for a day, and interrupted uploads of single packages."""
        for left in self.folder.glob("*/.removed-*"):
            shutil.rmtree(left, ignore_errors=True)
        for left in self.folder.glob(f"*/{_QUARANTINED}*"):
            with _going_on(left):
                if self._clock() - left.lstat().st_mtime > STALE_S:
                    shutil.rmtree(left, ignore_errors=True)
        for left in self.folder.glob(f"*/{ARRIVING_FOLDER}/*"):
            with _going_on(left):
                # a new one may not be locked yet
                if self._clock() - left.stat().st_mtime > _JUST_MADE_S and not is_locked(left):
                    left.unlink()
                    _log.info("removed %s, left by an interrupted upload", left)

    def _jobs(self) -> Iterator[Job]:
        for folder in sorted(self.folder.glob("*/*")):
            job = None
            with _going_on(folder):
                job = self.find(folder.parent.name, folder.name)
            if job is not None:
                yield job


@contextlib.contextmanager
def _going_on(path: Path) -> Iterator[None]:
    """Log errors with one job, and continue with the next."""
    try:
        yield
    except FileNotFoundError:
        return  # another process of the server was faster
    except OSError as err:
        _log.error("%s: %s; trying again later", path, err.strerror)


def _recorded(kind: JobKind, request: JobRequest) -> bytes:
    return encode({"kind": kind, "body": request})


def _drop_if_free(job: Job) -> None:
    with try_lock(job.lock) as lock:
        if lock is not None and job.state().state == "done":  # nobody opened it again meanwhile
            drop_files(job)


def drop_files(job: Job) -> None:
    """Remove the files that were sent for a finished job; only for a process that has locked the job."""
    for name in _SENT_FOLDERS:
        shutil.rmtree(job.folder / name, ignore_errors=True)


def jobs_folder(root: Path) -> Path:
    """The folder for the jobs of the server of ``root``, on the same file system and out of reach of requests."""
    return root / RECORD_FOLDER / "uploads"


@contextlib.contextmanager
def try_lock(path: Path, *, mode: int = 0o600) -> Iterator[int | None]:
    """Lock ``path`` while the block runs; yields the open descriptor that keeps the lock, None if it is already locked.

    A missing file is created with ``mode``. A process that gets a copy of the descriptor (a child, or one that it is
    sent to) keeps the lock after the block.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, mode)
    try:
        yield descriptor if _lock(descriptor) else None
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> bool:
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _whole_file(fcntl.F_WRLCK))
    except OSError as err:
        if err.errno in _LOCKED_ERRNOS:
            return False
        raise
    return True


def is_locked(path: Path) -> bool:
    """Whether any process has locked ``path`` now."""
    with contextlib.suppress(FileNotFoundError):
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            found = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, _whole_file(fcntl.F_WRLCK))
        finally:
            os.close(descriptor)
        return bool(struct.unpack(_FLOCK, found[: struct.calcsize(_FLOCK)])[0] != fcntl.F_UNLCK)
    return False


def _whole_file(kind: int) -> bytes:
    return struct.pack(_FLOCK, kind, os.SEEK_SET, 0, 0, 0)
