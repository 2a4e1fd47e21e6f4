# SPDX-License-Identifier: BSD-3-Clause
"""The addresses under which what is published is looked after: labels and packages, promote, yank, hotfix, retain."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from starlette.routing import Route

from channel_tools.publish.folder import FolderTarget
from channel_tools.publish.labels import check_label
from channel_tools.publish.wire import (
    API,
    HotfixRequest,
    LabelsAnswer,
    PackagesAnswer,
    PromoteRequest,
    RetainRequest,
    YankRequest,
)
from channel_tools.serve.guard import answered
from channel_tools.serve.uploads.checks import check_hotfix, check_promotion, check_retention, check_yank
from channel_tools.serve.uploads.requests import channel_of, read_document

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from starlette.requests import Request
    from starlette.responses import Response

    from channel_tools.publish.wire import JobKind
    from channel_tools.serve.guard import Guard
    from channel_tools.serve.uploads.checks import Limits
    from channel_tools.serve.uploads.jobs import JobRunner
    from channel_tools.serve.uploads.store import JobStore

    Check = Callable[[Any, Limits], None]

_CHANGES: dict[JobKind, tuple[type[Any], Check]] = {
    "promote": (PromoteRequest, check_promotion),
    "yank": (YankRequest, check_yank),
    "hotfix": (HotfixRequest, check_hotfix),
    "retain": (RetainRequest, check_retention),
}


class ChangeApi:
    """The routes of our own clients that change what new solves see."""

    def __init__(self, root: Path, guard: Guard, runner: JobRunner, store: JobStore, limits: Limits) -> None:
        self._root = root
        self._guard = guard
        self._runner = runner
        self._store = store
        self._limits = limits

    def routes(self) -> list[Route]:
        """For Starlette."""
        channel = API + "/{channel}"
        return [
            Route(channel + "/labels", self.labels, methods=["GET"]),
            Route(channel + "/labels/{label}/packages", self.packages, methods=["GET"]),
            *(Route(f"{channel}/{kind}", self._changing(kind), methods=["POST"]) for kind in _CHANGES),
        ]

    async def labels(self, request: Request) -> Response:
        """The labels of a channel, as far as the token may write to them."""
        channel = channel_of(request)
        record = self._guard.may_write_somewhere(request, channel)
        names = await asyncio.to_thread(FolderTarget(root=self._root / channel).labels)
        return answered(LabelsAnswer(labels=tuple(name for name in names if record.covers(channel, name))))

    async def packages(self, request: Request) -> Response:
        """Everything that a label holds."""
        channel, label = channel_of(request), check_label(request.path_params["label"])
        self._guard.may_write(request, channel, label)
        packages = await asyncio.to_thread(FolderTarget(root=self._root / channel).packages, label)
        return answered(PackagesAnswer(packages=packages))

    def _changing(self, kind: JobKind) -> Callable[[Request], Awaitable[Response]]:
        """What begins a job of a kind."""
        wire_type, check = _CHANGES[kind]

        async def change(request: Request) -> Response:
            channel = channel_of(request)
            self._guard.may_write_somewhere(request, channel)
            wanted = await read_document(request, wire_type, self._limits)
            check(wanted, self._limits)
            labels = {wanted.label, wanted.source} if isinstance(wanted, PromoteRequest) else {wanted.label}
            self._guard.may_write(request, channel, *labels)
            job = await asyncio.to_thread(self._store.open, kind, channel, wanted)
            await asyncio.to_thread(self._runner.start, job)
            return answered(job.answer(), 202)

        return change
