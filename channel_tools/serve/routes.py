# SPDX-License-Identifier: BSD-3-Clause
"""The addresses that are no files: health, metrics, and what publishes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from channel_tools.errors import ChannelToolsError
from channel_tools.serve.guard import NOT_KEPT, RefusedError, error_response

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from starlette.requests import Request

    from channel_tools.serve.guard import Guard
    from channel_tools.serve.metrics import Metrics


def make_routes(*, root: Path, guard: Guard, metrics: Metrics, uploads: Sequence[Route]) -> Starlette:
    """The application behind the one that answers reads."""

    async def health(_request: Request) -> Response:
        if root.is_dir():
            return JSONResponse({"status": "ok"}, headers=NOT_KEPT)
        return JSONResponse({"status": "the folder of the channels is not there"}, status_code=503, headers=NOT_KEPT)

    async def exposition(request: Request) -> Response:
        guard.may_see_all(request)
        body, content_type = metrics.exposition()
        return Response(body, media_type=content_type, headers=NOT_KEPT)

    async def failed(_request: Request, error: Exception) -> Response:
        if not isinstance(error, ChannelToolsError):
            raise error
        message = str(error).replace(f"{root}/", "").replace(str(root), "the server")
        return error_response(error, message)

    app = Starlette(
        routes=[Route("/health", health), Route("/metrics", exposition), *uploads],
        exception_handlers={RefusedError: _refused, ChannelToolsError: failed},
    )
    app.router.redirect_slashes = False  # no answer of this server leads elsewhere
    return app


async def _refused(_request: Request, error: Exception) -> Response:
    if not isinstance(error, RefusedError):
        raise error
    return error.response
