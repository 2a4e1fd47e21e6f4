# SPDX-License-Identifier: BSD-3-Clause
"""What is being uploaded, on disk: so that any process of the server can go on with it, and a killed one loses nothing.

``uploads/CHANNEL/ID/`` holds ``request.json`` (never changed), ``state.json`` (replaced as the job goes on), ``parts/``
(files under way) and ``files/`` (files whose bytes were checked; nothing writes to one any more). Whoever carries a job
out holds its ``lock`` for as long: a job under way without a holder was interrupted, and can be done again.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from channel_tools.channel.model import RECORD_FOLDER
from channel_tools.files import write_bytes_atomically
from channel_tools.publish.wire import (
    ErrorAnswer,
    HotfixRequest,
    JobAnswer,
    JobKind,
    JobState,
    PromoteRequest,
    ReportAnswer,
    RetainRequest,
    SetRequest,
    WireFile,
    YankRequest,
    decode,
    encode,
)
from channel_tools.serve.uploads.held import is_held, try_hold

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Request = SetRequest | PromoteRequest | YankRequest | HotfixRequest | RetainRequest

STALE_S = 24 * 3600.0
_ID = re.compile(r"[0-9a-f]{32}")
_ID_CHARACTERS = 32
_UNDER_WAY = frozenset({"waiting", "running"})
_SENT_FOLDERS = ("files", "parts")
_REQUESTS: dict[JobKind, type[Request]] = {
    "publish": SetRequest,
    "promote": PromoteRequest,
    "yank": YankRequest,
    "hotfix": HotfixRequest,
    "retain": RetainRequest,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class State:
    """How far a job is."""

    state: JobState = "open"
    report: ReportAnswer | None = None
    error: ErrorAnswer | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class _Recorded:
    """request.json."""

    kind: JobKind
    body: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """A thing that was asked of the server, and its folder."""

    id: str
    kind: JobKind
    channel: str
    request: Request
    folder: Path

    @property
    def label(self) -> str:
        """The label that it changes."""
        return self.request.label

    @property
    def lock(self) -> Path:
        """Held by who carries it out."""
        return self.folder / "lock"

    def file(self, wanted: WireFile) -> Path:
        """Where a complete, checked file lies."""
        return self.folder / "files" / wanted.subdir / wanted.file_name

    def part(self, wanted: WireFile) -> Path:
        """Where a file lies while it comes in."""
        return self.folder / "parts" / wanted.subdir / wanted.file_name

    def has_files(self) -> bool:
        """Whether anything that was sent is kept."""
        return any((self.folder / name).is_dir() for name in _SENT_FOLDERS)

    def received(self, wanted: WireFile) -> int:
        """How many of its bytes are here, if it is not complete."""
        with contextlib.suppress(OSError):
            return self.part(wanted).stat().st_size
        return 0

    def state(self) -> State:
        """How far it is."""
        state = State()
        with contextlib.suppress(FileNotFoundError):
            state = decode((self.folder / "state.json").read_bytes(), State)
        if state.state in _UNDER_WAY and not is_held(self.lock):
            return State()  # whoever carried it out was killed
        return state

    def set_state(self, state: State) -> None:
        """Note how far it is; only for who holds the lock."""
        write_bytes_atomically(self.folder / "state.json", encode(state))

    def answer(self, missing: dict[str, int] | None = None) -> JobAnswer:
        """The job as it is told to clients."""
        state = self.state()
        return JobAnswer(
            id=self.id,
            kind=self.kind,
            state=state.state,
            label=self.label,
            missing=missing or {},
            report=state.report,
            error=state.error,
        )

    def without_paths(self, message: str, root: Path) -> str:
        """A message for clients: without the folders of the server's machine."""
        for folder in (self.folder / "files", self.folder, root):
            message = message.replace(f"{folder}/", "").replace(str(folder), "the server")
        return message

    def touch(self) -> None:
        """It is in use."""
        with contextlib.suppress(FileNotFoundError):
            os.utime(self.folder)


class JobStore:
    """All jobs of a server, below ``folder``."""

    def __init__(self, folder: Path, *, clock: Callable[[], float]) -> None:
        self.folder = folder
        self._clock = clock

    def open(self, kind: JobKind, channel: str, request: Request) -> Job:
        """The job of a request, open unless it is being carried out: the one that is there already, else a new one."""
        job = self.described(kind, channel, request)
        if not (job.folder / "request.json").is_file():
            write_bytes_atomically(job.folder / "request.json", _recorded(kind, request))
        lock = try_hold(job.lock)
        if lock is not None:
            (job.folder / "state.json").unlink(missing_ok=True)
            os.close(lock)
        job.touch()
        return job

    def described(self, kind: JobKind, channel: str, request: Request) -> Job:
        """The job of a request, whether it is there or not; its id follows from what is asked for."""
        content = channel.encode() + b"\0" + _recorded(kind, request)
        job_id = hashlib.sha256(content).hexdigest()[:_ID_CHARACTERS]
        return Job(id=job_id, kind=kind, channel=channel, request=request, folder=self.folder / channel / job_id)

    def find(self, channel: str, job_id: str) -> Job | None:
        """The job with this id, None where there is none."""
        if not _ID.fullmatch(job_id):
            return None
        folder = self.folder / channel / job_id
        try:
            recorded = decode((folder / "request.json").read_bytes(), _Recorded)
        except OSError:
            return None
        request = decode(encode(recorded.body), _REQUESTS[recorded.kind])
        return Job(id=job_id, kind=recorded.kind, channel=channel, request=request, folder=folder)

    def remove(self, job: Job) -> bool:
        """Remove a job and all that was sent for it; not while it is being carried out (False)."""
        lock = try_hold(job.lock)
        if lock is None:
            return False
        try:
            doomed = job.folder.with_name(f".removed-{job.id}")
            shutil.rmtree(doomed, ignore_errors=True)
            job.folder.rename(doomed)
            shutil.rmtree(doomed, ignore_errors=True)
        finally:
            os.close(lock)
        return True

    def remove_stale(self) -> list[str]:
        """Remove the jobs that nobody came back to for STALE_S; their ids.

        What was sent for a job that is done goes at once: it is left where its process was killed after the end.
        """
        for left in self.folder.glob("*/.removed-*") if self.folder.is_dir() else ():
            shutil.rmtree(left, ignore_errors=True)
        removed = []
        for job in self._jobs():
            with contextlib.suppress(FileNotFoundError):  # another process of the server was faster
                if self._clock() - job.folder.stat().st_mtime > STALE_S and self.remove(job):
                    removed.append(job.id)
                elif job.has_files() and job.state().state == "done":
                    _drop_if_free(job)
        return removed

    def _jobs(self) -> Iterator[Job]:
        for folder in sorted(self.folder.glob("*/*")) if self.folder.is_dir() else ():
            job = self.find(folder.parent.name, folder.name)
            if job is not None:
                yield job


def _recorded(kind: JobKind, request: Request) -> bytes:
    return encode(_Recorded(kind=kind, body=decode(encode(request), dict[str, object])))


def _drop_if_free(job: Job) -> None:
    lock = try_hold(job.lock)
    if lock is None:
        return
    try:
        if job.state().state == "done":  # nobody opened it again meanwhile
            drop_files(job)
    finally:
        os.close(lock)


def drop_files(job: Job) -> None:
    """Remove what was sent for a job that is done; only for who holds the lock."""
    for name in _SENT_FOLDERS:
        shutil.rmtree(job.folder / name, ignore_errors=True)


def jobs_folder(root: Path) -> Path:
    """Where the jobs of the server of ``root`` are kept, on its file system and out of reach of every request."""
    return root / RECORD_FOLDER / "uploads"
