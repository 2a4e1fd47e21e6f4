# SPDX-License-Identifier: BSD-3-Clause
"""The addresses that are no files: health and metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from channel_tools.serve.access import TooManyGuesses, credentials_of
from channel_tools.serve.asgi import CHALLENGE

if TYPE_CHECKING:
    from pathlib import Path

    from starlette.requests import Request

    from channel_tools.serve.access import Gatekeeper
    from channel_tools.serve.metrics import Metrics

_NOT_KEPT = {"cache-control": "no-store"}


def make_routes(*, root: Path, gate: Gatekeeper, metrics: Metrics) -> Starlette:
    """The application behind the one that answers reads."""

    async def health(_request: Request) -> Response:
        if root.is_dir():
            return JSONResponse({"status": "ok"}, headers=_NOT_KEPT)
        return JSONResponse({"status": "the folder of the channels is not there"}, status_code=503, headers=_NOT_KEPT)

    async def exposition(request: Request) -> Response:
        refusal = _refusal_unless_all_channels(gate, request)
        if refusal is not None:
            return refusal
        body, content_type = metrics.exposition()
        return Response(body, media_type=content_type, headers=_NOT_KEPT)

    return Starlette(routes=[Route("/health", health), Route("/metrics", exposition)])


def _refusal_unless_all_channels(gate: Gatekeeper, request: Request) -> Response | None:
    headers = dict(request.scope["headers"])
    credentials = credentials_of(None, headers.get(b"authorization"), headers.get(b"x-api-key"))
    try:
        record = gate.identify(credentials, request.client.host if request.client else "")
    except TooManyGuesses as err:
        return PlainTextResponse("too many wrong tokens\n", 429, headers={"retry-after": str(int(err.wait_s) + 1)})
    if record is not None and record.channels is None:
        return None
    response = PlainTextResponse("a valid token for all channels is needed\n", 401, headers=_NOT_KEPT)
    response.raw_headers.extend(CHALLENGE)
    return response
