# SPDX-License-Identifier: BSD-3-Clause
"""Uploads on disk, so that any process of the server can continue them and a killed one loses nothing.

``uploads/CHANNEL/ID/`` has ``request.json`` (never changed), ``state.json`` (replaced as the job proceeds), ``parts/``
(incomplete files) and ``files/`` (files whose bytes were checked; nothing writes to them any more). The process that
runs a job has locked its ``lock``: a running job that is not locked was interrupted, and can be run again.

Everything is opened beneath the server's folder: a link out of it, or anything but a regular file, is one error.

Locks of uploads, which a process can hand on to another.

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
import secrets
import struct
from dataclasses import dataclass, replace
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

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
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
_REMOVED = ".removed-"
_ID = re.compile(r"[0-9a-f]{32}")
_ID_CHARACTERS = 32
_UNDER_WAY = frozenset({"waiting", "running"})
_RUNS_KEPT = 16
_LOCK = "lock"
_FILES, _PARTS = "files", "parts"
_SENT_FOLDERS = (_FILES, _PARTS)


REQUESTS: dict[JobKind, type[JobRequest]] = {
    "publish": SetRequest,
    "promote": PromoteRequest,
    "yank": YankRequest,
    "hotfix": HotfixRequest,
    "retain": RetainRequest,
}


_FLOCK = "hhqqi"
_LOCKED_ERRNOS = frozenset({errno.EACCES, errno.EAGAIN})


@dataclass(frozen=True, kw_only=True, slots=True)
class State:
    """The state of a job: of its latest run, and how the runs before it ended.

    All who ask for the same share a job, and it may be started again before those who waited for it have looked. So
    each of them asks for the run that they started or joined.
    """

    state: JobState = "open"
    report: ReportResponse | None = None
    error: ErrorResponse | None = None
    run: int = 0
    """Counted from 1; 0 if the job has not been started."""
    earlier: tuple[State, ...] = ()
    """The ends of the latest runs before this one, the latest first."""

    def followed_by(self, state: State) -> State:
        """The state that comes after this one: ``waiting`` begins another run."""
        if state.state != "waiting":
            return replace(state, run=self.run, earlier=self.earlier)
        ended = () if self.is_under_way or self.state == "open" else (replace(self, earlier=()),)
        return replace(state, run=self.run + 1, earlier=(*ended, *self.earlier)[:_RUNS_KEPT])

    def of_run(self, run: int) -> State:
        """The state of one of its runs: ``open``, so that it is repeated, if nothing is known of how that ended."""
        known = next((state for state in (self, *self.earlier) if state.run == run), None)
        return State(run=self.run) if known is None else known

    @property
    def is_under_way(self) -> bool:
        """Whether it waits or runs."""
        return self.state in _UNDER_WAY


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
    files: Beneath
    """The job's folder."""

    @property
    def folder(self) -> Path:
        """The path of the job's folder, for messages and for what reads it by path."""
        return self.files.path

    @property
    def request(self) -> JobRequest:
        """The request, read each time. Raises IntegrityError if it is damaged."""
        file = self.folder / "request.json"
        try:
            content = self.files.read(file.name, limit_bytes=_RECORD_BYTES)
            return decode_json(decode_json(content, _Recorded).body, REQUESTS[self.kind])
        except (FileNotFoundError, ValueError) as err:
            raise IntegrityError(f"{file}: not a valid request ({err})", hint="open the set again") from None

    def recorded(self) -> bytes | None:
        """The bytes of request.json; None if they cannot be read."""
        with contextlib.suppress(OSError, ChannelToolsError):
            return self.files.read("request.json", limit_bytes=_RECORD_BYTES)
        return None

    def try_lock(self) -> AbstractContextManager[int | None]:
        """Lock the job, as the process that runs it does, see uploads/locks.py."""
        return try_lock(self.files, _LOCK)

    def is_locked(self) -> bool:
        """Whether any process has locked the job now."""
        return is_locked(self.files, _LOCK)

    def file(self, package: PackageRef) -> Path:
        """The path of a complete, checked file."""
        return self.folder / self.file_name(package)

    def file_name(self, package: PackageRef) -> str:
        """The name of a complete, checked file in the job's folder."""
        return f"{_FILES}/{package.key}"

    def part_name(self, package: PackageRef) -> str:
        """The name of a file while it is being received."""
        return f"{_PARTS}/{package.key}"

    def part_lock(self, package: PackageRef) -> AbstractContextManager[int | None]:
        """Lock a file while it is being received, see uploads/locks.py."""
        return try_lock(self.files, f"{_PARTS}/{package.subdir}/.{package.file_name}.lock")

    def is_complete(self, package: PackageRef) -> bool:
        """Whether all of a file was received and checked, and has the bytes still.

        Raises ChannelError if something else is in its place.
        """
        status = self.files.file_stat(self.file_name(package))
        return status is not None and status.st_size == package.size_bytes

    def received(self, package: PackageRef) -> int:
        """How many bytes of an incomplete file were received; none if there are more than it has, as after damage.

        Raises ChannelError as is_complete does.
        """
        status = self.files.file_stat(self.part_name(package))
        return 0 if status is None or status.st_size > package.size_bytes else status.st_size

    def state(self) -> State:
        """Its state: ``open`` also if the process that ran it was killed."""
        while True:
            state = self._recorded_state()
            if not state.is_under_way or self.is_locked():
                return state
            if self._recorded_state() == state:  # otherwise it ended between the two looks
                return replace(state, state="open", report=None, error=None)

    def _recorded_state(self) -> State:
        file = self.folder / "state.json"
        try:
            return decode_json(self.files.read(file.name, limit_bytes=_RECORD_BYTES), State)
        except FileNotFoundError:
            return State()
        except (ValueError, ChannelToolsError) as err:  # a job can always be run again
            _log.error("%s: not a valid state of a job (%s); the job counts as interrupted", file, err)
            return State()

    def set_state(self, state: State) -> int:
        """Record the state of its run, or that another one begins; returns its number.

        Only for a process that has locked the job.
        """
        following = self._recorded_state().followed_by(state)
        self.files.write("state.json", encode(following))
        return following.run

    def response(self, run: int | None = None) -> JobResponse:
        """The job as it is shown to clients that wait for this run of it (None: the latest)."""
        state = self.state()
        return self._response(state if run is None else state.of_run(run), {})

    def opened(self, missing: dict[str, int]) -> JobResponse:
        """The job as it is shown to a client that has it opened: open unless it is under way, however it ended before.

        How it ended stays for clients that wait for it, until it is started again.
        """
        state = self.state()
        return self._response(state if state.is_under_way else State(), missing)

    def _response(self, state: State, missing: dict[str, int]) -> JobResponse:
        return JobResponse(
            id=self.id,
            kind=self.kind,
            state=state.state,
            label=self.label,
            missing=missing,
            report=state.report,
            error=state.error,
            run=state.run,
        )

    def without_paths(self, message: str, root: Path) -> str:
        """A message for clients, without the paths of folders on the server."""
        for folder in (self.folder / "files", self.folder, root):
            message = message.replace(f"{folder}/", "").replace(str(folder), "the server")
        return message

    def mark_used(self) -> None:
        """Mark it as in use."""
        with contextlib.suppress(OSError, ChannelToolsError):  # the disk may be full for that, too
            self.files.update_times()


class JobStore:
    """All jobs of a server, in the folder ``files``."""

    def __init__(self, files: Beneath, *, clock: Callable[[], float]) -> None:
        self.files = files
        self._clock = clock

    def open(self, kind: JobKind, channel: str, request: JobRequest, *, only: str | None = None) -> Job:
        """The job of a request: the existing one, else a new one. ``only`` is as for described."""
        job = self.described(kind, channel, request, only=only)
        content = _recorded(kind, request)
        if job.recorded() != content:  # damage, or a set of which other files are to be uploaded now
            job.files.write("request.json", content)
        job.mark_used()
        return job

    def described(self, kind: JobKind, channel: str, request: JobRequest, *, only: str | None = None) -> Job:
        """The job of a request, whether it exists or not; its id is derived from what is to be done.

        So all clients that ask for the same share one; with ``only``, a name that no other has, it is not shared.
        """
        task = replace(request, upload=None) if isinstance(request, SetRequest) else request
        content = b"\0".join([channel.encode(), *([] if only is None else [only.encode()]), _recorded(kind, task)])
        job_id = hashlib.sha256(content).hexdigest()[:_ID_CHARACTERS]
        return self._job(channel, job_id, kind, request.label)

    def _job(self, channel: str, job_id: str, kind: JobKind, label: str) -> Job:
        return Job(id=job_id, kind=kind, channel=channel, label=label, files=self.files.at(f"{channel}/{job_id}"))

    def find(self, channel: str, job_id: str) -> Job | None:
        """The job with this id, None if there is none; a damaged one is set aside and counts as missing.

        Raises ChannelError if the folder of the channel's jobs is no folder.
        """
        if not _ID.fullmatch(job_id):
            return None
        files = self.files.at(channel)
        try:
            content = files.read(f"{job_id}/request.json", limit_bytes=_RECORD_BYTES)
            recorded = decode_json(content, _Recorded)
            label = decode_json(recorded.body, _Labelled).label
        except FileNotFoundError:
            return None
        except (ValueError, ChannelToolsError) as err:
            self._put_aside(files, job_id, str(err))
            return None
        return self._job(channel, job_id, recorded.kind, label)

    def _put_aside(self, files: Beneath, job_id: str, reason: str) -> None:
        """Keep a damaged job for the server's operator, under a name that no request can reach."""
        aside = f"{_QUARANTINED}{job_id}-{secrets.token_hex(4)}"  # else two processes would take it from each other
        with contextlib.suppress(FileNotFoundError):  # another process was faster
            files.put_aside(job_id, aside)
            path = files.path / job_id
            _log.error("%s: request.json is damaged (%s); the job is kept as %s for a day", path, reason, aside)

    def remove(self, job: Job) -> bool:
        """Remove a job and all that was sent for it; not while it is running (False)."""
        with job.try_lock() as lock:
            if lock is None:
                return False
            files, removed = self.files.at(job.channel), f"{_REMOVED}{job.id}"
            files.remove_tree(removed)
            files.put_aside(job.id, removed)
            files.remove_tree(removed)
        return True

    def remove_stale(self) -> list[str]:
        """Remove the jobs that were not used for STALE_S; returns their ids."""
        removed: list[str] = []
        with _going_on(self.files.path):
            for channel in self.files.names():
                with _going_on(self.files.path / channel):
                    self._remove_leftovers(self.files.at(channel))
                    removed += self._stale_removed(channel)
        return removed

    def _stale_removed(self, channel: str) -> Iterator[str]:
        files = self.files.at(channel)
        for name, status in sorted(files.stats()):
            with _going_on(files.path / name):
                job = self.find(channel, name)
                if job is not None and self._clock() - status.st_mtime > STALE_S and self.remove(job):
                    yield job.id

    def _remove_leftovers(self, files: Beneath) -> None:
        """Remove unfinished deletions, damaged jobs kept for a day, and interrupted uploads of single packages."""
        for name, status in files.stats():
            old = name.startswith(_QUARANTINED) and self._clock() - status.st_mtime > STALE_S
            if old or name.startswith(_REMOVED):
                files.remove_tree(name)
        arriving = files.at(ARRIVING_FOLDER)
        for name, status in arriving.stats():
            with _going_on(arriving.path / name):
                # a new one may not be locked yet
                if self._clock() - status.st_mtime > _JUST_MADE_S and not is_locked(arriving, name):
                    arriving.remove(name)
                    _log.info("removed %s, left by an interrupted upload", arriving.path / name)


@contextlib.contextmanager
def _going_on(path: Path) -> Iterator[None]:
    """Log errors with one job, and continue with the next."""
    try:
        yield
    except FileNotFoundError:
        return  # another process of the server was faster
    except OSError as err:
        _log.error("%s: %s; trying again later", path, err.strerror)
    except ChannelToolsError as err:
        _log.error("%s; trying again later", err)


def _recorded(kind: JobKind, request: JobRequest) -> bytes:
    return encode({"kind": kind, "body": request})


def drop_files(job: Job) -> None:
    """Remove the files that were sent for a finished job; only for a process that has locked the job."""
    for name in _SENT_FOLDERS:
        job.files.remove_tree(name)


def jobs_folder(root: Path) -> Beneath:
    """The folder for the jobs of the server of ``root``, on the same file system and out of reach of requests."""
    return Beneath(root=root).at(f"{RECORD_FOLDER}/uploads")


@contextlib.contextmanager
def try_lock(files: Beneath, name: str, *, mode: int = 0o600) -> Iterator[int | None]:
    """Lock a file while the block runs; yields the open descriptor that keeps the lock, None if it is already locked.

    A missing file is created with ``mode``. A process that gets a copy of the descriptor (a child, or one that it is
    sent to) keeps the lock after the block.
    """
    descriptor = files.open_to_write(name, mode=mode)
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


def is_locked(files: Beneath, name: str) -> bool:
    """Whether any process has locked a file now. Raises ChannelError if it is not a regular file."""
    with contextlib.suppress(FileNotFoundError):
        descriptor = files.open_file(name)
        try:
            answer = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, _whole_file(fcntl.F_WRLCK))
        finally:
            os.close(descriptor)
        return bool(struct.unpack(_FLOCK, answer[: struct.calcsize(_FLOCK)])[0] != fcntl.F_UNLCK)
    return False


def _whole_file(kind: int) -> bytes:
    return struct.pack(_FLOCK, kind, os.SEEK_SET, 0, 0, 0)
