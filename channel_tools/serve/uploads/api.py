# SPDX-License-Identifier: BSD-3-Clause
"""The addresses under which sets are published: plan, open, send, commit, and asking how it goes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from starlette.routing import Route

from channel_tools.errors import ChannelError, UsageError
from channel_tools.publish.folder import FolderTarget
from channel_tools.publish.wire import API, JobAnswer, PlanAnswer, SetRequest
from channel_tools.serve.guard import RefusedError, answered, error_response
from channel_tools.serve.uploads.checks import check_set
from channel_tools.serve.uploads.job import package_set
from channel_tools.serve.uploads.receive import receive_file, received_of, span_of
from channel_tools.serve.uploads.requests import channel_of, read_document

if TYPE_CHECKING:
    from pathlib import Path

    from starlette.requests import Request
    from starlette.responses import Response

    from channel_tools.publish.model import PublishPlan
    from channel_tools.publish.wire import WireFile
    from channel_tools.serve.guard import Guard
    from channel_tools.serve.uploads.checks import Limits
    from channel_tools.serve.uploads.jobs import JobRunner
    from channel_tools.serve.uploads.store import Job, JobStore

_NO_JOB = "there is no such set or job; open the set anew"
_WAIT_LIMIT_S = 25.0


class UploadApi:
    """The routes of our own clients."""

    def __init__(self, root: Path, guard: Guard, runner: JobRunner, store: JobStore, limits: Limits) -> None:
        self._root = root
        self._guard = guard
        self._runner = runner
        self._limits = limits
        self._receiving = asyncio.Semaphore(limits.at_once)
        self._store = store

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
        ]

    async def plan(self, request: Request) -> Response:
        """What publishing a set would do."""
        channel, wanted = await self._set(request)
        plan = await self._compared(channel, wanted)
        return answered(
            PlanAnswer(
                upload=tuple(file.key for file in plan.upload),
                link=tuple(file.key for file in plan.link),
                present=tuple(file.key for file in plan.present),
            )
        )

    async def open_set(self, request: Request) -> Response:
        """Open a set, or find the one that is open; says which files are missing."""
        channel, wanted = await self._set(request)
        plan = await self._compared(channel, wanted)
        job = await asyncio.to_thread(self._store.open, "publish", channel, wanted)
        return answered(job.answer(await _missing(job, wanted, {file.key for file in plan.upload})), 201)

    async def send(self, request: Request) -> Response:
        """Take one file of a set, or a part of it."""
        job = self._job(request)
        file = _file_of(request, job)
        if job.state().state in {"waiting", "running"}:
            raise ChannelError(f"{file.key}: the set is being published", hint="wait for its end")
        span = span_of(request.headers.get("content-range"), file)
        async with self._receiving:
            received = await receive_file(job, file, span, request.receive)
        return answered(received, 201 if received.complete else 200)

    async def received(self, request: Request) -> Response:
        """How much of a file of a set is here."""
        job = self._job(request)
        return answered(await received_of(job, _file_of(request, job)))

    async def commit(self, request: Request) -> Response:
        """Begin to check, audit and publish a set."""
        job = self._job(request)
        await asyncio.to_thread(self._runner.start, job)
        return answered(job.answer(), 202)

    async def ask(self, request: Request) -> Response:
        """How a job goes; waits for its end for as many seconds as ``wait`` says."""
        job = self._job(request)
        try:
            wait_s = min(_WAIT_LIMIT_S, float(request.query_params.get("wait", "0")))
        except ValueError:
            raise UsageError("wait is no number of seconds") from None
        answer: JobAnswer = await self._runner.wait(job, wait_s=wait_s)
        return answered(answer)

    async def abort(self, request: Request) -> Response:
        """Throw a set away with all that was sent for it."""
        job = self._job(request)
        if not await asyncio.to_thread(self._store.remove, job):
            raise ChannelError("the set is being published and cannot be stopped any more")
        return answered({}, 200)

    def _job(self, request: Request) -> Job:
        channel = channel_of(request)
        self._guard.may_write_somewhere(request, channel)
        job = self._store.find(channel, request.path_params["job"])
        if job is None:
            raise RefusedError(error_with_status(ChannelError(_NO_JOB), 404))
        self._guard.may_write(request, channel, job.label)
        return job

    async def _set(self, request: Request) -> tuple[str, SetRequest]:
        """The channel and the set of a request whose token may write to its label."""
        channel = channel_of(request)
        self._guard.may_write_somewhere(request, channel)
        wanted = await read_document(request, SetRequest, self._limits)
        check_set(wanted, self._limits)
        self._guard.may_write(request, channel, wanted.label)
        return channel, wanted

    async def _compared(self, channel: str, wanted: SetRequest) -> PublishPlan:
        """The set beside what the channel holds; raises as FolderTarget.plan."""
        target = FolderTarget(root=self._root / channel)
        packages = package_set(self._store.described("publish", channel, wanted), wanted)
        return await asyncio.to_thread(target.plan, packages, label=wanted.label)


def error_with_status(error: ChannelError, status: int) -> Response:
    """An error of ours under another status than its own."""
    response = error_response(error)
    response.status_code = status
    return response


async def _missing(job: Job, wanted: SetRequest, upload: set[str]) -> dict[str, int]:
    """What has to be sent yet, with the bytes of each that are here."""
    found = {file.key: await received_of(job, file) for file in wanted.files if file.key in upload}
    return {key: received.received for key, received in found.items() if not received.complete}


def _file_of(request: Request, job: Job) -> WireFile:
    key = f"{request.path_params['subdir']}/{request.path_params['name']}"
    files = job.request.files if isinstance(job.request, SetRequest) else ()
    for file in files:
        if file.key == key:
            return file
    raise UsageError(f"{key} is not in the set", hint="open a set that names it")
