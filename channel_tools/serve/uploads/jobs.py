# SPDX-License-Identifier: BSD-3-Clause
"""Jobs: passed from the worker that got the request to the process that runs them, and their results back.

Workers send jobs to the supervising process, through one socket and in the order of the requests; it forks a process
for each, which takes milliseconds since everything is imported already. That process reads and audits what was sent,
publishes it, and records the result. If it is killed, the job can be run again. A job's lock is sent along with it, so
it stays locked from the request until the end, and the system unlocks it if all processes are killed.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import logging
import multiprocessing
import os
import resource
import signal
import socket
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from channel_tools.channel.listing import INSTRUCTIONS_FILE, read_patch
from channel_tools.channel.maintenance import Retention
from channel_tools.conda.package import sidecar_name
from channel_tools.page.write import follow_page
from channel_tools.publish.folder import FolderTarget
from channel_tools.publish.model import MAIN_LABEL, PackageFile, PackageSet
from channel_tools.publish.server.protocol import (
    ErrorResponse,
    HotfixRequest,
    PromoteRequest,
    ReportResponse,
    RetainRequest,
    SetRequest,
    YankRequest,
    encode,
)
from channel_tools.serve.access.guard import hint_for_clients
from channel_tools.serve.uploads.checks import audit_uploaded, check_digests
from channel_tools.serve.uploads.store import JobStore, State, drop_files, jobs_folder
from channel_tools.system.counting import counted
from channel_tools.system.errors import ChannelError, ChannelToolsError, UsageError, error_from_os
from channel_tools.system.progress import SilentProgress
from channel_tools.system.workers import signals_held, signals_released

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from multiprocessing.context import ForkProcess
    from pathlib import Path

    from starlette.types import Receive

    from channel_tools.channel.listing import Patch
    from channel_tools.publish.model import PublishReport
    from channel_tools.publish.server.protocol import JobResponse
    from channel_tools.serve.uploads.store import Job

_log = logging.getLogger(__name__)
T = TypeVar("T")
_POLL_S = 0.02
_LOCK_WAIT_S = 10.0
"""How long to wait for a job's lock, which others hold for a moment: one that removes it, or has just ended it."""
ENDED = frozenset({"open", "done", "failed"})
"""The states of a job that does not wait or run: ``open`` after its process was killed."""
_AT_ONCE = 2
TIME_LIMIT_S = 3600.0
_MEMORY_LIMIT_BYTES = 4 << 30
_MESSAGE_BYTES = 512
_WRITER_WAIT_S = 600.0
_NOT_CARRIED_OUT = ErrorResponse(
    kind="ChannelToolsError",
    message="the server failed to run the job",
    hint="ask the server's operator: its log says why",
)
_fork = multiprocessing.get_context("fork")


class JobRunner:
    """The worker's side: sends jobs and waits for them to end."""

    def __init__(self, sending: socket.socket) -> None:
        self._socket = sending

    def start(self, job: Job) -> int:
        """Have the job run; if it is waiting or running already, that run is this request's, too. Returns its number.

        Raises ChannelError if too many are waiting, if the job was removed meanwhile, and if it stays locked.
        """
        run = _tried(lambda: self._sent(job))
        if run is None:
            message = f"job {job.id} has ended, but is still locked"
            raise ChannelError(message, hint="try again later; if that fails again, restart the server")
        return run

    def remove(self, job: Job, store: JobStore) -> None:
        """Remove a job that ended, and what was sent for it; if that fails, remove_stale does it later."""
        if _tried(lambda: store.remove(job) or None) is None:
            _log.warning("job %s of channel %s: has ended, but is still locked; removed later", job.id, job.channel)

    def _sent(self, job: Job) -> int | None:
        """Lock the job and send it, or find it under way: the run. None if others have locked it and do not run it."""
        if job.files.stat("request.json") is None:
            raise ChannelError("the set or job was removed meanwhile", hint="send the same request again")
        try:
            with job.try_lock() as lock:
                if lock is None:
                    state = job.state()
                    return state.run if state.is_under_way else None
                run = job.set_state(State(state="waiting"))
                socket.send_fds(self._socket, [f"{job.channel}/{job.id}".encode()], [lock])
                return run
        except OSError:
            raise ChannelError("too many jobs are waiting on this server", hint="try again later") from None

    async def wait(self, job: Job, *, run: int | None, wait_s: float, receive: Receive) -> JobResponse:
        """The state of a run (None: the latest) once it has ended, after ``wait_s``, or when the client has left.

        The client sends nothing more.
        """
        clock = asyncio.get_running_loop().time
        deadline_s, pause_s = clock() + wait_s, _POLL_S
        leaving = asyncio.create_task(_left(receive))
        try:
            response = job.response(run)
            while response.state not in ENDED and clock() < deadline_s and not leaving.done():
                await asyncio.wait({leaving}, timeout=pause_s)
                pause_s = min(0.5, pause_s * 1.5)
                response = job.response(run)
        finally:
            leaving.cancel()
        return response


async def _left(receive: Receive) -> None:
    """Return when the client has closed the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _tried(action: Callable[[], T | None]) -> T | None:
    """What the action returns within the time that others may hold a job's lock; None if that is nothing."""
    deadline_s = time.monotonic() + _LOCK_WAIT_S
    while (result := action()) is None:
        if time.monotonic() > deadline_s:
            return None
        time.sleep(_POLL_S)
    return result


@dataclass(frozen=True, kw_only=True, slots=True)
class _QueuedJob:
    """A job, and the open descriptor that keeps it locked."""

    job: Job
    lock: int


@dataclass(kw_only=True, slots=True)
class _Running:
    queued: _QueuedJob
    process: ForkProcess
    until_s: float
    killed: bool = False
    """Whether it was killed because it took too long."""


class JobQueue:
    """The supervising process's side: one job per channel at a time, in the order of the requests.

    ``store`` has all jobs of the server. A job that takes longer than ``limit_s`` is killed, whatever it waits for.
    """

    def __init__(self, root: Path, *, limit_s: float = TIME_LIMIT_S) -> None:
        self._limit_s = limit_s
        self._root = root
        self.store = JobStore(jobs_folder(root), clock=time.time)
        self._receiving, self.sending = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._receiving.setblocking(False)  # noqa: FBT003 - the socket's own signature
        self.sending.setblocking(False)  # noqa: FBT003
        self._waiting: collections.deque[_QueuedJob] = collections.deque()
        self._running: dict[int, _Running] = {}

    @property
    def waitables(self) -> list[socket.socket | int]:
        """What to wait on: requests and ending jobs."""
        return [self._receiving, *self._running]

    def close_in_child(self, *, own: int | None = None) -> None:
        """In a process just forked: close this side and all locks but its ``own``, which the supervising process keeps.

        Otherwise sending jobs would not fail when that process has ended, and the locks would outlive their jobs.
        """
        self._receiving.close()
        for queued in (*self._waiting, *(running.queued for running in self._running.values())):
            if queued.lock != own:
                os.close(queued.lock)

    def handle(self, ready: Sequence[object]) -> None:
        """Receive jobs, finish those whose process ended, kill those over the time limit, start those that are next."""
        if self._receiving in ready:
            self._receive()
        for sentinel in [ended for ended in self._running if ended in ready]:
            self._finish(self._running.pop(sentinel))
        now_s = time.monotonic()
        for running in self._running.values():
            if now_s > running.until_s:
                running.killed = True
                running.process.kill()
        self._begin()

    def stop(self, wait_s: float) -> None:
        """Wait for running jobs, and kill those that take longer: the same request can be sent again."""
        deadline_s = time.monotonic() + wait_s
        for running in self._running.values():
            running.process.join(max(0.0, deadline_s - time.monotonic()))
            if running.process.exitcode is None:
                _log.warning("job %s of channel %s: killed", running.queued.job.id, running.queued.job.channel)
                running.process.kill()
            self._finish(running)
        self._running.clear()
        for queued in self._waiting:
            os.close(queued.lock)
        self._receiving.close()
        self.sending.close()

    def _receive(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                message, locks, _flags, _address = socket.recv_fds(self._receiving, _MESSAGE_BYTES, 1)
                try:
                    channel, _slash, job_id = message.decode().partition("/")
                    job = self.store.find(channel, job_id)
                    if job is not None and locks:
                        self._waiting.append(_QueuedJob(job=job, lock=locks.pop()))
                        continue
                    # the system drops the lock if no descriptor is free; without it the job counts as interrupted
                    _log.error("job %s of channel %s cannot be started now", job_id, channel)
                finally:
                    for lock in locks:
                        os.close(lock)

    def _begin(self) -> None:
        busy = {running.queued.job.channel for running in self._running.values()}
        for queued in list(self._waiting):
            if len(self._running) >= _AT_ONCE:
                return
            if queued.job.channel in busy:
                continue
            busy.add(queued.job.channel)
            process = _fork.Process(target=self._carry_out, args=(queued,))
            with signals_held():
                process.start()  # if that fails, the job keeps waiting
                self._waiting.remove(queued)
                until_s = time.monotonic() + self._limit_s
                self._running[process.sentinel] = _Running(queued=queued, process=process, until_s=until_s)

    def _finish(self, running: _Running) -> None:
        process, queued = running.process, running.queued
        try:
            process.join()
            if process.exitcode:
                _log.error("job %s of channel %s: exit code %s", queued.job.id, queued.job.channel, process.exitcode)
            if running.killed:
                error = ErrorResponse(
                    kind="ChannelToolsError",
                    message=f"the job was ended, since it took more than {self._limit_s / 60:.0f} minutes",
                    hint="ask the server's operator what it waited for; a smaller set takes less time",
                )
                queued.job.set_state(State(state="failed", error=error))
            elif process.exitcode and process.exitcode > 0:
                queued.job.set_state(State(state="failed", error=_NOT_CARRIED_OUT))
        except (ChannelToolsError, OSError) as err:  # if its state cannot be written it counts as interrupted
            _log.error(
                "job %s of channel %s: its result cannot be recorded: %s", queued.job.id, queued.job.channel, err
            )
        finally:
            os.close(queued.lock)

    def _carry_out(self, queued: _QueuedJob) -> None:
        """Run a job's process; it exits without interpreter teardown, see cli/entry.py."""
        code = 1
        try:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # finish what was started; SIGKILL does no harm either
            signals_released()
            self.close_in_child(own=queued.lock)
            resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY_LIMIT_BYTES, _MEMORY_LIMIT_BYTES))
            carry_out(self._root, queued.job)
            code = 0
        except ChannelToolsError as err:
            _log.error("job %s of channel %s: %s", queued.job.id, queued.job.channel, err)
        except Exception:  # noqa: BLE001 - the last resort: the supervising process sees the exit code
            _log.exception("a job failed: this is a defect in channel_tools")
        finally:
            sys.stderr.flush()
            os._exit(code)


def package_set(job: Job, request: SetRequest) -> PackageSet:
    """The set of a request, with the paths of its files in the job's folder.

    Raises UsageError for patches of other packages than those of the set, ConfigError for invalid ones.
    """
    files = tuple(PackageFile.of(file, job.file(file)) for file in request.files)
    patches = _patches(job, request.patches)
    keys = {str(file.key) for file in files}
    for subdir, patch in patches.items():
        if others := [name for name in sorted(patch.names()) if f"{subdir}/{name}" not in keys or name in patch.remove]:
            raise UsageError(f"the set has a patch of {subdir}/{others[0]}, but does not bring the package")
    return PackageSet(name=request.name, files=files, foundation=request.foundation, patches=patches)


def _patches(job: Job, instructions: Mapping[str, Mapping[str, object]]) -> dict[str, Patch]:
    """The patches of subdirs that a request has. Raises ConfigError as read_patch does."""
    patches = {}
    for subdir, patch in instructions.items():
        name = f"{subdir}-{INSTRUCTIONS_FILE}"
        job.files.write(name, encode(patch))
        patches[subdir] = read_patch(job.folder / name)
    return patches


def carry_out(root: Path, job: Job) -> None:
    """Run the job and write its result into its state; only for a process that has locked it.

    What was sent for it is removed before it is done: after that, others may send it again.
    """
    job.set_state(State(state="running"))
    try:
        report = _report(root, job)
        drop_files(job)
        job.set_state(State(state="done", report=report))
    except (ChannelToolsError, OSError) as err:
        failure = error_from_os(err) if isinstance(err, OSError) else err
        error = ErrorResponse(
            kind=type(failure).__name__, message=job.without_paths(str(failure), root), hint=hint_for_clients(failure)
        )
        job.set_state(State(state="failed", error=error))


def _report(root: Path, job: Job) -> ReportResponse:
    target = FolderTarget(root=root / job.channel, wait_s=_WRITER_WAIT_S, within=job.files.root, changed=follow_page)
    match job.request:
        case SetRequest() as request:
            return _publish(target, job, request)
        case PromoteRequest(source=source, label=label, keys=keys):
            return _uploads_reported(target.promote(keys, source=source, label=label, progress=SilentProgress()))
        case YankRequest(label=label, keys=keys, reason=reason):
            target.yank(keys, label=label, reason=reason)
        case HotfixRequest(label=label, replace=replace, patches=patches):
            target.hotfix(_patches(job, patches), label=label, replace=replace)
        case RetainRequest() as request:
            rule = Retention(
                keep=request.keep,
                older_than_s=request.older_than_s,
                locked_files=frozenset(request.locked_files),
                locked_hashes=frozenset(request.locked_hashes),
                grace_s=request.grace_s,
                removed=frozenset(request.removed),
            )
            plan = target.retain(rule, label=request.label, dry_run=request.dry_run)
            return ReportResponse(retired=plan.retire, deleted=plan.delete, kept=plan.keep)
    return ReportResponse()


def _publish(target: FolderTarget, job: Job, request: SetRequest) -> ReportResponse:
    """Check, audit and publish a set, which is compared with the channel under its lock: others publish meanwhile."""
    packages = package_set(job, request)
    received = [file for file in packages.files if job.is_complete(file)]
    keys = {str(file.key) for file in received}
    missing = [str(file.key) for file in request.expected if str(file.key) not in keys]
    if missing:  # unless another client had the same set published, since this one was planned
        upload = frozenset(target.plan(packages, label=request.label).comparison.upload)
        missing = [key for key in missing if key in upload]
    if missing:
        message = (
            f"{counted(len(missing), 'file of the set is', 'files of the set are')} missing, the first is {missing[0]}"
        )
        raise ChannelError(message, hint="send them, then commit the set again")
    for file in received:
        if (attestations := request.attestations.get(str(file.key))) is not None:
            job.files.write(sidecar_name(job.file_name(file)), attestations.encode())
    paths, within = [file.path for file in received], job.files.root
    # the label's packages are audited together with a set's; main's, if the label does not exist yet
    labels = target.labels()
    beside = [target.open_label(name) for name in (request.label, MAIN_LABEL) if name in labels][:1]
    corrections = {
        file.path: patch.records[file.file_name]
        for file in received
        if (patch := packages.patches.get(file.subdir)) is not None and file.file_name in patch.records
    }
    audit = audit_uploaded(paths, request.foundation, beside, within=within, corrections=corrections)
    check_digests([file.path for file in received if not file.foundation], within=within)
    report = target.publish_received(
        packages, received, label=request.label, rows=audit.rows, progress=SilentProgress()
    )
    return _uploads_reported(report, audit.notes)


def _uploads_reported(report: PublishReport, notes: tuple[str, ...] = ()) -> ReportResponse:
    return ReportResponse(uploaded=report.uploaded, linked=report.linked, notes=notes)
