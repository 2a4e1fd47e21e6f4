# SPDX-License-Identifier: BSD-3-Clause
"""A large response to a client that leaves is no defect of the server."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from starlette.requests import Request
from starlette.routing import Route
from starlette.types import Message

from channel_tools.serve.application import make_routes
from channel_tools.serve.reads import ResponseCutError, SpooledResponse


class _Connection:
    """Of a client that has left."""

    async def send_file(self, *_arguments: object) -> None:
        raise ConnectionError("Connection reset by peer")


async def _large(_request: Request) -> SpooledResponse:
    return SpooledResponse(bytes(100_000), 200, {}, "application/json")


def test_a_client_that_leaves_gets_no_second_response(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The routes have a response to what the system refuses, for which it is too late by then."""
    monkeypatch.setattr("channel_tools.serve.reads.connection_of", lambda _scope: _Connection())
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    routes = make_routes(root=tmp_path, guard=None, metrics=None, uploads=[Route("/large", _large)])  # type: ignore[arg-type]  # neither is asked
    scope = {"type": "http", "method": "GET", "path": "/large", "headers": [], "query_string": b"", "root_path": ""}
    with pytest.raises(ResponseCutError, match="reset by peer"):
        asyncio.run(routes(scope, receive, send))
    assert [message["type"] for message in sent] == ["http.response.start"]
