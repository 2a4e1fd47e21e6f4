# SPDX-License-Identifier: BSD-3-Clause
"""Uploads as rattler-build sends them to other servers: one package per request, in quetz' form or in Artifactory's.

Each becomes a set of one package, so it is checked, audited and published like any other; the answer comes when that is
done. The channel has to be there, since such a request says nothing about a foundation.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.routing import Route

from channel_tools.channel.store import open_channel
from channel_tools.errors import ChannelToolsError, IntegrityError, UsageError
from channel_tools.files import disk_full_reported
from channel_tools.packages.reader import stream_component
from channel_tools.publish.model import MAIN_LABEL
from channel_tools.publish.wire import SetRequest, WireFile, decode, from_error_answer
from channel_tools.serve.guard import answered
from channel_tools.serve.uploads.checks import Limits, check_file, check_key, check_set
from channel_tools.serve.uploads.receive import pieces
from channel_tools.serve.uploads.requests import channel_of

if TYPE_CHECKING:
    from pathlib import Path

    from starlette.requests import Request
    from starlette.responses import Response

    from channel_tools.serve.guard import Guard
    from channel_tools.serve.uploads.jobs import JobRunner
    from channel_tools.serve.uploads.store import JobStore

_PATIENCE_S = 900.0
_INDEX = "info/index.json"
_INDEX_LIMIT_BYTES = 1 << 20
_INFO_LIMIT_BYTES = 256 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class _Index:
    subdir: str


@dataclass(frozen=True, kw_only=True, slots=True)
class _Arrived:
    """A file that came, under a name of no meaning."""

    path: Path
    sha256: str
    size_bytes: int


class ForeignUploads:
    """The routes of other servers' clients."""

    def __init__(self, root: Path, guard: Guard, runner: JobRunner, store: JobStore, limits: Limits) -> None:
        self._root = root
        self._guard = guard
        self._runner = runner
        self._store = store
        self._limits = limits
        self._receiving = asyncio.Semaphore(limits.at_once)

    def routes(self) -> list[Route]:
        """For Starlette."""
        return [
            Route("/api/channels/{channel}/upload/{name}", self.quetz, methods=["POST"]),
            Route("/api/channels/{channel}/label/{label}/upload/{name}", self.quetz, methods=["POST"]),
            Route("/{channel}/{subdir}/{name}", self.artifactory, methods=["PUT"]),
            Route("/{channel}/label/{label}/{subdir}/{name}", self.artifactory, methods=["PUT"]),
        ]

    async def quetz(self, request: Request) -> Response:
        """``?sha256=`` is the package's; its subdir is in the package."""
        return await self._publish(request, None, request.query_params.get("sha256"))

    async def artifactory(self, request: Request) -> Response:
        """The subdir is in the address."""
        return await self._publish(request, request.path_params["subdir"], request.headers.get("x-checksum-sha256"))

    async def _publish(self, request: Request, subdir: str | None, sha256: str | None) -> Response:
        channel, label = channel_of(request), request.path_params.get("label", MAIN_LABEL)
        name = request.path_params["name"]
        self._guard.may_write(request, channel, label)
        check_key(f"{subdir or 'noarch'}/{name}")
        foundation = open_channel(self._root / channel).foundation
        async with self._receiving:
            arrived = await self._receive(request, channel)
        try:
            if sha256 is not None and sha256.lower() != arrived.sha256:
                raise IntegrityError(
                    f"{name}: the bytes that came have sha256 {arrived.sha256}; announced was {sha256}"
                )
            file = WireFile(
                subdir=await asyncio.to_thread(_subdir_in, arrived.path, name) if subdir is None else subdir,
                file_name=name,
                sha256=arrived.sha256,
                size_bytes=arrived.size_bytes,
                foundation=False,
            )
            check_file(file, self._limits)
            wanted = SetRequest(label=label, name=name, foundation=foundation, files=(file,))
            check_set(wanted, self._limits)
            return await self._carried_out(channel, wanted, arrived)
        finally:
            arrived.path.unlink(missing_ok=True)

    async def _carried_out(self, channel: str, wanted: SetRequest, arrived: _Arrived) -> Response:
        job = await asyncio.to_thread(self._store.open, "publish", channel, wanted)
        place = job.file(wanted.files[0])
        place.parent.mkdir(parents=True, exist_ok=True)
        arrived.path.rename(place)
        await asyncio.to_thread(self._runner.start, job)
        answer = await self._runner.wait(job, wait_s=_PATIENCE_S)
        if answer.error is not None:
            raise from_error_answer(answer.error)
        if answer.report is None:
            raise ChannelToolsError("the server did not come to it in time", hint="upload it again")
        return answered(answer.report, 201)

    async def _receive(self, request: Request, channel: str) -> _Arrived:
        folder = self._store.folder / channel / "arriving"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / secrets.token_hex(16)
        digest, size = hashlib.sha256(), 0
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            with disk_full_reported(folder):
                async for piece in pieces(request.receive):
                    size += len(piece)
                    self._check_size(size)
                    await asyncio.to_thread(_take, descriptor, digest, piece)
                await asyncio.to_thread(os.fsync, descriptor)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        finally:
            os.close(descriptor)
        return _Arrived(path=path, sha256=digest.hexdigest(), size_bytes=size)

    def _check_size(self, size_bytes: int) -> None:
        if size_bytes > self._limits.file_bytes:
            raise UsageError(f"the package has more than the {self._limits.file_bytes} bytes that this server takes")


def _take(descriptor: int, digest: hashlib._Hash, piece: bytes) -> None:
    digest.update(piece)
    view = memoryview(piece)
    while view:
        view = view[os.write(descriptor, view) :]


def _subdir_in(path: Path, name: str) -> str:
    """The subdir that a package names, read in bounded memory and time. Raises IntegrityError where there is none."""
    seen_bytes = 0
    for member, stream in stream_component(path, "info"):
        seen_bytes += member.size
        if seen_bytes > _INFO_LIMIT_BYTES or (member.name == _INDEX and member.size > _INDEX_LIMIT_BYTES):
            raise IntegrityError(f"{name}: its metadata has no plausible size")
        if member.name == _INDEX and stream is not None:
            with contextlib.suppress(ValueError):
                return decode(stream.read(), _Index).subdir
            break
    raise IntegrityError(f"{name}: has no {_INDEX} that names a subdir", hint="upload a conda package")
