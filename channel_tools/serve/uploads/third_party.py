# SPDX-License-Identifier: BSD-3-Clause
"""Uploads as rattler-build sends them to other servers: one package per request, in quetz' form or in Artifactory's.

Each becomes a set of one package, so it is checked, audited and published like any other; the response comes when that
is done. The channel has to exist already, since such a request says nothing about a foundation.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.routing import Route

from channel_tools.channel.store import open_channel
from channel_tools.conda.archive import read_index_json
from channel_tools.conda.package import PackageKey
from channel_tools.publish.model import MAIN_LABEL
from channel_tools.publish.server.protocol import SetRequest, from_error_response
from channel_tools.serve.access.guard import json_response
from channel_tools.serve.connection import connection_of
from channel_tools.serve.uploads.api import UploadContext, channel_of
from channel_tools.serve.uploads.checks import check_key, check_request
from channel_tools.serve.uploads.receive import check_space, pieces, write_all
from channel_tools.serve.uploads.store import ARRIVING_FOLDER, try_lock
from channel_tools.system.errors import ChannelToolsError, IntegrityError, UsageError
from channel_tools.system.files import disk_full_reported

if TYPE_CHECKING:
    from pathlib import Path

    from starlette.requests import Request
    from starlette.responses import Response

    from channel_tools.serve.connection import Connection
    from channel_tools.serve.uploads.store import Job

_JOB_LIMIT_S = 900.0


@dataclass(frozen=True, kw_only=True, slots=True)
class _Arrived:
    """A file that was received."""

    sha256: str
    size_bytes: int


class ThirdPartyUploads:
    """The routes of other servers' clients."""

    def __init__(self, context: UploadContext) -> None:
        self._context = context
        self._reading = asyncio.Semaphore(1)
        """One package is looked into at a time: it may make its reader keep 128 MiB."""

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
        self._context.guard.may_write(request, channel, label)
        check_key(f"{subdir or 'noarch'}/{name}")
        foundation = open_channel(self._context.root / channel).foundation
        path = self._context.store.folder / channel / ARRIVING_FOLDER / secrets.token_hex(16)
        check_space(path.parent, _announced_bytes(request))
        with try_lock(path, mode=0o644) as descriptor:  # without a lock it would be one whose upload was interrupted
            if descriptor is None:
                raise ChannelToolsError(f"{name}: cannot be received now", hint="upload it again")
            try:
                async with self._context.receiving:
                    arrived = await self._receive(request, path, descriptor)
                if sha256 is not None and sha256.lower() != arrived.sha256:
                    message = (
                        f"{name}: the bytes that came have sha256 {arrived.sha256}; expected the announced {sha256}"
                    )
                    raise IntegrityError(message)
                key = PackageKey(await self._subdir(path, name) if subdir is None else subdir, name)
                file = key.ref(arrived.sha256, arrived.size_bytes)
                wanted = SetRequest(label=label, name=name, foundation=foundation, files=(file,))
                check_request(wanted, self._context.limits)
                job = await asyncio.to_thread(self._prepared, channel, wanted, path)
            finally:
                path.unlink(missing_ok=True)
        return await self._published(job, connection_of(request.scope))

    async def _subdir(self, path: Path, name: str) -> str:
        async with self._reading:
            return await asyncio.to_thread(_subdir_in, path, name)

    def _prepared(self, channel: str, wanted: SetRequest, arrived: Path) -> Job:
        """The job of the set, with its file."""
        job = self._context.store.open("publish", channel, wanted)
        path = job.file(wanted.files[0])
        path.parent.mkdir(parents=True, exist_ok=True)
        arrived.rename(path)
        return job

    async def _published(self, job: Job, connection: Connection) -> Response:
        await asyncio.to_thread(self._context.runner.start, job)
        ended = await self._context.runner.wait(job, wait_s=_JOB_LIMIT_S, connection=connection)
        if ended.error is not None:
            raise from_error_response(ended.error)
        if ended.report is None:
            message = f"the package was not published within {_JOB_LIMIT_S:.0f} s"
            raise ChannelToolsError(message, hint="upload it again")
        return json_response(ended.report, 201)

    async def _receive(self, request: Request, path: Path, descriptor: int) -> _Arrived:
        digest, size = hashlib.sha256(), 0
        with disk_full_reported(path.parent):
            async for piece in pieces(request.receive):
                self._check_size(size + len(piece))
                await asyncio.to_thread(_hash_and_write, descriptor, digest, piece, size)
                size += len(piece)
            await asyncio.to_thread(os.fsync, descriptor)
        return _Arrived(sha256=digest.hexdigest(), size_bytes=size)

    def _check_size(self, size_bytes: int) -> None:
        limit = self._context.limits.file_bytes
        if size_bytes > limit:
            raise UsageError(f"the package has more than the {limit} bytes that this server takes")


def _announced_bytes(request: Request) -> int:
    """How much is to come, as far as the request says so."""
    length = request.headers.get("content-length", "")
    return int(length) if length.isdigit() else 0


def _hash_and_write(descriptor: int, digest: hashlib._Hash, piece: bytes, position: int) -> None:
    digest.update(piece)
    write_all(descriptor, piece, position)


def _subdir_in(path: Path, name: str) -> str:
    """The subdir that a package names. Raises IntegrityError, with the name that its client gave, for a damaged one."""
    try:
        subdir = read_index_json(path).get("subdir")
    except IntegrityError as err:
        raise IntegrityError(err.message.replace(str(path), name), hint="upload a conda package") from None
    if not isinstance(subdir, str):
        raise IntegrityError(f"{name}: its index.json names no subdir", hint="upload a conda package")
    return subdir
