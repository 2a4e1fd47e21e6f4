# SPDX-License-Identifier: BSD-3-Clause
"""The routes of our own clients: sets are planned, opened, sent and committed; what is published is maintained.

Maintenance is what the commands promote, yank, hotfix and retain do. It runs as a job, like the commit of a set.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.routing import Route

from channel_tools.publish.folder import FolderTarget
from channel_tools.publish.model import check_label
from channel_tools.publish.server.protocol import (
    API,
    LabelsResponse,
    PackagesResponse,
    PlanResponse,
    PromoteRequest,
    SetRequest,
)
from channel_tools.serve.access.addresses import CHANNEL_NAME, RESERVED
from channel_tools.serve.access.guard import RejectedError, error_response, json_response
from channel_tools.serve.connection import connection_of
from channel_tools.serve.uploads.checks import check_request
from channel_tools.serve.uploads.jobs import package_set
from channel_tools.serve.uploads.receive import receive_file, received_of, span_of
from channel_tools.serve.uploads.store import REQUESTS
from channel_tools.system.errors import ChannelError, UsageError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from starlette.requests import Request
    from starlette.responses import Response

    from channel_tools.conda.package import PackageRef
    from channel_tools.publish.model import PublishPlan
    from channel_tools.publish.server.protocol import JobKind
    from channel_tools.serve.access.guard import Guard
    from channel_tools.serve.uploads.checks import Limits
    from channel_tools.serve.uploads.jobs import JobRunner
    from channel_tools.serve.uploads.receive import Documents
    from channel_tools.serve.uploads.store import Job, JobStore

_NO_JOB = "there is no such set or job; open the set again"
_WAIT_LIMIT_S = 25.0
_MAINTENANCE: tuple[JobKind, ...] = ("promote", "yank", "hotfix", "retain")


@dataclass(frozen=True, kw_only=True, slots=True)
class UploadContext:
    """What the routes of a worker share; ``receiving`` bounds the files that it receives at once."""

    root: Path
    guard: Guard
    runner: JobRunner
    store: JobStore
    limits: Limits
    receiving: asyncio.Semaphore
    documents: Documents


class UploadApi:
    """The routes of our own clients."""

    def __init__(self, context: UploadContext) -> None:
        self._context = context

    def routes(self) -> list[Route]:
        """For Starlette."""
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
        ]

    async def plan(self, request: Request) -> Response:
        """What publishing a set would do."""
        async with self._set(request) as (channel, wanted):
            plan = await self._compared(channel, wanted)
            return json_response(
                PlanResponse(
                    upload=tuple(str(file.key) for file in plan.upload),
                    link=tuple(str(file.key) for file in plan.link),
                    present=tuple(str(file.key) for file in plan.present),
                )
            )

    async def open_set(self, request: Request) -> Response:
        """Open a set, or find the one that is open; says which files are missing."""
        async with self._set(request) as (channel, wanted):
            plan = await self._compared(channel, wanted)
            job = await asyncio.to_thread(self._context.store.open, "publish", channel, wanted)
            missing = await _missing(job, wanted, {str(file.key) for file in plan.upload})
            return json_response(job.response(missing), 201)

    async def send(self, request: Request) -> Response:
        """Take one file of a set, or a part of it."""
        job = self._job(request)
        file = _file_of(request, job)
        if job.state().state in {"waiting", "running"}:
            raise ChannelError(f"{file.key}: the set is being published", hint="wait for its end")
        span = span_of(request.headers.get("content-range"), file)
        async with self._context.receiving:
            received = await receive_file(job, file, span, request.receive)
        return json_response(received, 201 if received.complete else 200)

    async def received(self, request: Request) -> Response:
        """How much of a file of a set is here."""
        job = self._job(request)
        return json_response(await received_of(job, _file_of(request, job)))

    async def commit(self, request: Request) -> Response:
        """Begin to check, audit and publish a set."""
        job = self._job(request)
        await asyncio.to_thread(self._context.runner.start, job)
        return json_response(job.response(), 202)

    async def ask(self, request: Request) -> Response:
        """How a job goes; waits for its end for as many seconds as ``wait`` says."""
        job = self._job(request)
        wanted = request.query_params.get("wait", "0")
        try:
            wait_s = min(_WAIT_LIMIT_S, float(wanted))
        except ValueError:
            raise UsageError(f"wait must be a number of seconds, got {wanted!r}") from None
        return json_response(
            await self._context.runner.wait(job, wait_s=wait_s, connection=connection_of(request.scope))
        )

    async def abort(self, request: Request) -> Response:
        """Remove a set with all that was sent for it."""
        job = self._job(request)
        if not await asyncio.to_thread(self._context.store.remove, job):
            raise ChannelError("the set is being published and cannot be stopped any more")
        return json_response({}, 200)

    async def labels(self, request: Request) -> Response:
        """The labels of a channel, as far as the token may write to them."""
        channel = channel_of(request)
        record = self._context.guard.may_write_somewhere(request, channel)
        names = await asyncio.to_thread(FolderTarget(root=self._context.root / channel).labels)
        return json_response(LabelsResponse(labels=tuple(name for name in names if record.covers(channel, name))))

    async def packages(self, request: Request) -> Response:
        """Everything that a label holds."""
        channel, label = channel_of(request), check_label(request.path_params["label"])
        self._context.guard.may_write(request, channel, label)
        async with self._context.documents.large():
            packages = await asyncio.to_thread(FolderTarget(root=self._context.root / channel).packages, label)
            return json_response(PackagesResponse(packages=packages))

    def _maintain(self, kind: JobKind) -> Callable[[Request], Awaitable[Response]]:
        """The handler that begins a job of this kind."""

        async def maintain(request: Request) -> Response:
            channel = channel_of(request)
            self._context.guard.may_write_somewhere(request, channel)
            async with self._context.documents.read(request, REQUESTS[kind]) as wanted:
                check_request(wanted, self._context.limits)
                labels = {wanted.label, wanted.source} if isinstance(wanted, PromoteRequest) else {wanted.label}
                self._context.guard.may_write(request, channel, *labels)
                job = await asyncio.to_thread(self._context.store.open, kind, channel, wanted)
            await asyncio.to_thread(self._context.runner.start, job)
            return json_response(job.response(), 202)

        return maintain

    def _job(self, request: Request) -> Job:
        channel = channel_of(request)
        self._context.guard.may_write_somewhere(request, channel)
        job = self._context.store.find(channel, request.path_params["job"])
        if job is None:
            raise RejectedError(error_response(ChannelError(_NO_JOB), status=404))
        self._context.guard.may_write(request, channel, job.label)
        return job

    @contextlib.asynccontextmanager
    async def _set(self, request: Request) -> AsyncIterator[tuple[str, SetRequest]]:
        """The channel and the set of a request whose token may write to its label."""
        channel = channel_of(request)
        self._context.guard.may_write_somewhere(request, channel)
        async with self._context.documents.read(request, SetRequest) as wanted:
            check_request(wanted, self._context.limits)
            self._context.guard.may_write(request, channel, wanted.label)
            yield channel, wanted

    async def _compared(self, channel: str, wanted: SetRequest) -> PublishPlan:
        """The set beside what the channel holds; raises as FolderTarget.plan."""
        target = FolderTarget(root=self._context.root / channel)
        packages = package_set(self._context.store.described("publish", channel, wanted), wanted)
        return await asyncio.to_thread(target.plan, packages, label=wanted.label)


async def _missing(job: Job, wanted: SetRequest, upload: set[str]) -> dict[str, int]:
    """What has to be sent yet, with the bytes of each that are here."""
    missing = {key: file for file in wanted.files if (key := str(file.key)) in upload}
    found = {key: await received_of(job, file) for key, file in missing.items()}
    return {key: received.received for key, received in found.items() if not received.complete}


def _file_of(request: Request, job: Job) -> PackageRef:
    key = f"{request.path_params['subdir']}/{request.path_params['name']}"
    wanted = job.request
    files = wanted.files if isinstance(wanted, SetRequest) else ()
    for file in files:
        if str(file.key) == key:
            return file
    raise UsageError(f"{key} is not in the set", hint="open a set that names it")


def channel_of(request: Request) -> str:
    """The channel that the address names. Raises UsageError for what cannot be a channel's name."""
    channel = str(request.path_params["channel"])
    if not CHANNEL_NAME.fullmatch(channel) or channel in RESERVED:
        raise UsageError(f"{channel!r} cannot be a channel's name", hint="letters, digits, '.', '_' and '-' can")
    return channel
