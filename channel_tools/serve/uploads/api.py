# SPDX-License-Identifier: BSD-3-Clause
"""The routes for publishing and maintenance, for our own clients and for clients of other servers.

Our own clients plan, open, send and commit sets. Maintenance is what the commands promote, yank, hotfix and retain do;
it runs as a job, like the commit of a set. rattler-build uploads one package per request, in quetz' or Artifactory's
protocol: each becomes a set of one package, so it is checked, audited and published like any other; the response is
sent when that is done. The channel must exist already, since such a request does not name a foundation.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import secrets
from dataclasses import replace
from typing import TYPE_CHECKING

from starlette.routing import Route

from channel_tools.channel.store import open_channel
from channel_tools.conda.archive import read_index_json
from channel_tools.conda.metadata import subdir_of
from channel_tools.conda.package import PackageKey
from channel_tools.publish.folder import FolderTarget
from channel_tools.publish.model import MAIN_LABEL, check_label
from channel_tools.publish.server.protocol import (
    API,
    LabelsResponse,
    PackagesResponse,
    PlanResponse,
    PromoteRequest,
    ReceivedBytes,
    SetRequest,
    from_error_response,
)
from channel_tools.serve.access.guard import RejectedError, error_response, json_response
from channel_tools.serve.addresses import CHANNEL_NAME_HINT, is_channel_name
from channel_tools.serve.uploads.checks import check_key, check_request
from channel_tools.serve.uploads.jobs import ENDED, package_set
from channel_tools.serve.uploads.receive import (
    Documents,
    PartBusyError,
    check_space,
    pieces,
    receive_file,
    received_of,
    span_of,
    write_all,
)
from channel_tools.serve.uploads.store import ARRIVING_FOLDER, REQUESTS, try_lock
from channel_tools.system.errors import ChannelError, ChannelToolsError, IntegrityError, UsageError
from channel_tools.system.files import disk_full_reported

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import Receive

    from channel_tools.conda.package import PackageRef
    from channel_tools.publish.model import Comparison
    from channel_tools.publish.server.protocol import JobKind
    from channel_tools.serve.access.guard import Guard
    from channel_tools.serve.uploads.checks import Limits
    from channel_tools.serve.uploads.jobs import JobRunner
    from channel_tools.serve.uploads.store import Job, JobStore
    from channel_tools.system.beneath import Beneath
    from channel_tools.system.files import Digest


_NO_JOB = "there is no such set or job; open the set again"
_WAIT_LIMIT_S = 25.0
_JOB_LIMIT_S = 900.0
"""How long a client that uploaded one package waits until it is published."""
_MAINTENANCE: tuple[JobKind, ...] = ("promote", "yank", "hotfix", "retain")


class UploadApi:
    """The routes by which one worker's clients publish and maintain."""

    def __init__(self, *, root: Path, guard: Guard, runner: JobRunner, store: JobStore, limits: Limits) -> None:
        self._root, self._guard, self._runner, self._store, self._limits = root, guard, runner, store, limits
        self._documents = Documents(limits)
        self._receiving = asyncio.Semaphore(limits.at_once)
        self._reading = asyncio.Semaphore(1)
        """One package is opened at a time, since reading it may take 128 MiB of memory."""

    def routes(self) -> list[Route]:
        """The routes, for Starlette."""
        channel = API + "/{channel}"
        one_set = channel + "/sets/{job}"
        return [
            Route(channel + "/plan", self.plan, methods=["POST"]),
            Route(channel + "/sets", self.open_set, methods=["POST"]),
            Route(one_set + "/files/{subdir}/{name}", self.send, methods=["PUT"]),
            Route(one_set + "/files/{subdir}/{name}", self.received, methods=["GET"]),
            Route(one_set + "/commit", self.commit, methods=["POST"]),
            Route(one_set, self.abort, methods=["DELETE"]),
            Route(channel + "/jobs/{job}", self.ask, methods=["GET"]),
            Route(channel + "/labels", self.labels, methods=["GET"]),
            Route(channel + "/labels/{label}/packages", self.packages, methods=["GET"]),
            *(Route(f"{channel}/{kind}", self._maintain(kind), methods=["POST"]) for kind in _MAINTENANCE),
            # for clients of other servers
            Route("/api/channels/{channel}/upload/{name}", self.quetz, methods=["POST"]),
            Route("/api/channels/{channel}/label/{label}/upload/{name}", self.quetz, methods=["POST"]),
            Route("/{channel}/{subdir}/{name}", self.artifactory, methods=["PUT"]),
            Route("/{channel}/label/{label}/{subdir}/{name}", self.artifactory, methods=["PUT"]),
        ]

    async def plan(self, request: Request) -> Response:
        """Respond with what publishing a set would do."""
        async with self._set(request) as (channel, set_request):
            comparison = await self._compared(channel, set_request)
            return json_response(
                PlanResponse(upload=comparison.upload, link=comparison.link, present=comparison.present)
            )

    async def open_set(self, request: Request) -> Response:
        """Open a set, or find the one that is open; the response says which files are missing.

        A set that the client has had compared is not compared again: its job does that, with the channel's lock held.
        """
        async with self._set(request) as (channel, set_request):
            upload = set_request.upload
            if upload is None:
                upload = (await self._compared(channel, set_request)).upload
            planned = replace(set_request, upload=upload)
            job = await asyncio.to_thread(self._store.open, "publish", channel, planned)
            received_by_key = {str(file.key): await received_of(job, file) for file in planned.expected}
            missing = {key: received.received for key, received in received_by_key.items() if not received.complete}
            return json_response(job.opened(missing), 201)

    async def send(self, request: Request) -> Response:
        """Receive one file of a set, or a part of it."""
        job = self._job(request)
        file = _file_of(request, job)
        if job.state().is_under_way:
            if job.is_complete(file):  # another client sent it, and had the set published
                return json_response(ReceivedBytes(received=file.size_bytes, complete=True))
            raise PartBusyError(f"{file.key}: the set is being published", hint="wait until that has finished")
        span = span_of(request.headers.get("content-range"), file)
        async with self._receiving:
            received = await receive_file(job, file, span, request.receive)
        return json_response(received, 201 if received.complete else 200)

    async def received(self, request: Request) -> Response:
        """Respond with how much of a file of a set has been received."""
        job = self._job(request)
        return json_response(await received_of(job, _file_of(request, job)))

    async def commit(self, request: Request) -> Response:
        """Start to check, audit and publish a set."""
        job = self._job(request)
        run = await asyncio.to_thread(self._runner.start, job)
        return json_response(job.response(run), 202)

    async def ask(self, request: Request) -> Response:
        """Respond with the state of a job's ``run`` (the latest); waits up to ``wait`` seconds for its end."""
        job = self._job(request)
        wait, run = request.query_params.get("wait", "0"), request.query_params.get("run")
        try:
            wait_s = min(_WAIT_LIMIT_S, float(wait))
        except ValueError:
            raise UsageError(f"wait must be a number of seconds, got {wait!r}") from None
        try:
            asked = None if run is None else int(run)
        except ValueError:
            raise UsageError(f"run must be the number of a run, got {run!r}") from None
        return json_response(await self._runner.wait(job, run=asked, wait_s=wait_s, receive=request.receive))

    async def abort(self, request: Request) -> Response:
        """Remove a set with everything that was sent for it."""
        job = self._job(request)
        if not await asyncio.to_thread(self._store.remove, job):
            raise ChannelError("the set is being published and can no longer be cancelled")
        return json_response({}, 200)

    async def labels(self, request: Request) -> Response:
        """Respond with the labels of a channel that the token may write to."""
        channel = _channel_of(request)
        record = self._guard.may_write_somewhere(request, channel)
        names = await asyncio.to_thread(FolderTarget(root=self._root / channel).labels)
        return json_response(LabelsResponse(labels=tuple(name for name in names if record.covers(channel, name))))

    async def packages(self, request: Request) -> Response:
        """Respond with all packages of a label."""
        channel, label = _channel_of(request), check_label(request.path_params["label"])
        self._guard.may_write(request, channel, label)
        async with self._documents.large():
            packages = await asyncio.to_thread(FolderTarget(root=self._root / channel).packages, label)
            return json_response(PackagesResponse(packages=packages))

    def _maintain(self, kind: JobKind) -> Callable[[Request], Awaitable[Response]]:
        """The handler that starts a job of this kind."""

        async def maintain(request: Request) -> Response:
            channel = _channel_of(request)
            self._guard.may_write_somewhere(request, channel)
            async with self._documents.read(request, REQUESTS[kind]) as change:
                check_request(change, self._limits)
                labels = {change.label, change.source} if isinstance(change, PromoteRequest) else {change.label}
                self._guard.may_write(request, channel, *labels)
                job = await asyncio.to_thread(self._store.open, kind, channel, change)
            run = await asyncio.to_thread(self._runner.start, job)
            return json_response(job.response(run), 202)

        return maintain

    def _job(self, request: Request) -> Job:
        channel = _channel_of(request)
        self._guard.may_write_somewhere(request, channel)
        job = self._store.find(channel, request.path_params["job"])
        if job is None:
            raise RejectedError(error_response(ChannelError(_NO_JOB), status=404))
        self._guard.may_write(request, channel, job.label)
        return job

    @contextlib.asynccontextmanager
    async def _set(self, request: Request) -> AsyncIterator[tuple[str, SetRequest]]:
        """The channel and the set of a request; its token must be allowed to write to the set's label."""
        channel = _channel_of(request)
        self._guard.may_write_somewhere(request, channel)
        async with self._documents.read(request, SetRequest) as set_request:
            check_request(set_request, self._limits)
            self._guard.may_write(request, channel, set_request.label)
            yield channel, set_request

    async def _compared(self, channel: str, set_request: SetRequest) -> Comparison:
        """The set compared with the channel's content; raises as FolderTarget.plan does."""
        target = FolderTarget(root=self._root / channel)
        packages = package_set(self._store.described("publish", channel, set_request), set_request)
        plan = await asyncio.to_thread(target.plan, packages, label=set_request.label)
        return plan.comparison

    async def quetz(self, request: Request) -> Response:
        """Upload by quetz' protocol: ``?sha256=`` is the package's; its subdir is read from the package."""
        return await self._publish(request, None, request.query_params.get("sha256"))

    async def artifactory(self, request: Request) -> Response:
        """Upload by Artifactory's protocol: the subdir is in the address."""
        return await self._publish(request, request.path_params["subdir"], request.headers.get("x-checksum-sha256"))

    async def _publish(self, request: Request, subdir: str | None, sha256: str | None) -> Response:
        channel, label = _channel_of(request), request.path_params.get("label", MAIN_LABEL)
        name = request.path_params["name"]
        self._guard.may_write(request, channel, label)
        check_key(f"{subdir or 'noarch'}/{name}")
        foundation = open_channel(self._root / channel).foundation
        arriving, arrived = self._store.files.at(f"{channel}/{ARRIVING_FOLDER}"), secrets.token_hex(16)
        length = request.headers.get("content-length", "")
        check_space(arriving, int(length) if length.isdigit() else 0)
        with try_lock(
            arriving, arrived, mode=0o644
        ) as descriptor:  # without a lock it would look like an interrupted upload
            if descriptor is None:
                raise ChannelToolsError(f"{name}: cannot be received at the moment", hint="upload it again")
            try:
                async with self._receiving:
                    received_sha256, size_bytes = await self._receive(request, arriving, descriptor)
                if sha256 is not None and sha256.lower() != received_sha256:
                    raise IntegrityError(
                        f"{name}: the received bytes have sha256 {received_sha256}; expected the announced {sha256}"
                    )
                key = PackageKey(await self._subdir(arriving, arrived, name) if subdir is None else subdir, name)
                file = key.ref(received_sha256, size_bytes)
                set_request = SetRequest(label=label, name=name, foundation=foundation, files=(file,))
                check_request(set_request, self._limits)
                job = await asyncio.to_thread(self._prepared, channel, set_request, arrived)
            finally:
                arriving.remove(arrived)
        return await self._published(job, request.receive)

    async def _subdir(self, arriving: Beneath, arrived: str, name: str) -> str:
        async with self._reading:
            return await asyncio.to_thread(_subdir_in, arriving, arrived, name)

    def _prepared(self, channel: str, set_request: SetRequest, arrived: str) -> Job:
        """The job for the set, with the received file in it; nobody else's, since its client cannot continue it."""
        job = self._store.open("publish", channel, set_request, only=arrived)
        self._store.files.at(channel).move(
            f"{ARRIVING_FOLDER}/{arrived}", f"{job.id}/{job.file_name(set_request.files[0])}"
        )
        return job

    async def _published(self, job: Job, receive: Receive) -> Response:
        run = await asyncio.to_thread(self._runner.start, job)
        ended = await self._runner.wait(job, run=run, wait_s=_JOB_LIMIT_S, receive=receive)
        if ended.state in ENDED:
            await asyncio.to_thread(self._runner.remove, job, self._store)
        if ended.error is not None:
            raise from_error_response(ended.error)
        if ended.report is None:
            interrupted = "the server was stopped before the package was published"
            late = f"the package was not published within {_JOB_LIMIT_S:.0f} s"
            raise ChannelToolsError(interrupted if ended.state in ENDED else late, hint="upload it again")
        return json_response(ended.report, 201)

    async def _receive(self, request: Request, arriving: Beneath, descriptor: int) -> tuple[str, int]:
        """Receive the body into the file; returns its sha256 and size."""
        digest, size = hashlib.sha256(), 0
        with disk_full_reported(arriving.path):
            async for piece, _is_last in pieces(request.receive):
                if size + len(piece) > self._limits.file_bytes:
                    limit = self._limits.file_bytes
                    raise UsageError(f"the package is larger than the {limit} bytes that this server accepts")
                await asyncio.to_thread(_hash_and_write, descriptor, digest, piece, size)
                size += len(piece)
            await asyncio.to_thread(os.fsync, descriptor)
        return digest.hexdigest(), size


def _file_of(request: Request, job: Job) -> PackageRef:
    key = f"{request.path_params['subdir']}/{request.path_params['name']}"
    set_request = job.request
    files = set_request.files if isinstance(set_request, SetRequest) else ()
    for file in files:
        if str(file.key) == key:
            return file
    raise UsageError(f"{key} is not in the set", hint="open a set that names it")


def _channel_of(request: Request) -> str:
    """The channel that the address names. Raises UsageError for an invalid channel name."""
    channel = str(request.path_params["channel"])
    if not is_channel_name(channel):
        raise UsageError(f"{channel!r} is not a valid channel name", hint=CHANNEL_NAME_HINT)
    return channel


def _hash_and_write(descriptor: int, digest: Digest, piece: bytes, position: int) -> None:
    digest.update(piece)
    write_all(descriptor, piece, position)


def _subdir_in(arriving: Beneath, arrived: str, name: str) -> str:
    """The subdir in a package's metadata. Raises IntegrityError with the client's name for it if it is damaged."""
    path = arriving.path / arrived
    try:
        subdir = subdir_of(read_index_json(path, folder=arriving))
    except IntegrityError as err:
        raise IntegrityError(err.message.replace(str(path), name), hint="upload a conda package") from None
    if subdir is None:
        raise IntegrityError(f"{name}: its index.json has no subdir", hint="upload a conda package")
    return subdir
