# SPDX-License-Identifier: BSD-3-Clause
"""A small HTTP server whose manners each test chooses: ranges, lies about length, other bytes, cut connections."""

from __future__ import annotations

import http
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.support.scripted_server import Asked, Reply, ScriptedServer, scripted


@dataclass(kw_only=True, slots=True)
class Served:
    """What one path gives."""

    content: bytes
    status: int = 200
    ranges: bool = True
    announced: int | None = None
    """The Content-Length that is told instead of the true one."""
    cut_after: list[int] = field(default_factory=list)
    """For as many requests: how many bytes come before the connection ends."""


@dataclass(kw_only=True, slots=True)
class Host:
    """A running server: its address, what it serves, and the requests it saw as path and Range."""

    address: str
    paths: dict[str, Served]
    requests: list[tuple[str, str | None]]


@contextmanager
def serving(paths: dict[str, Served]) -> Iterator[Host]:
    """Serve ``paths`` on loopback while the block runs."""
    requests: list[tuple[str, str | None]] = []

    def answer(asked: Asked) -> Reply:
        requests.append((asked.path, asked.headers.get("Range")))
        served = paths.get(asked.path)
        return (http.HTTPStatus.NOT_FOUND, {}, b"") if served is None else _reply(served, requests[-1][1] or "")

    with scripted(ScriptedServer(answer)) as server:
        yield Host(address=server.origin, paths=paths, requests=requests)


def _reply(served: Served, asked_range: str) -> Reply:
    content, start, headers = served.content, 0, {"Connection": "close"}
    asked = re.fullmatch(r"bytes=(\d+)-", asked_range)
    if served.status != http.HTTPStatus.OK:
        return served.status, {}, b""
    if asked and served.ranges:
        start = int(asked[1])
        if start >= len(content):
            return http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, {}, b""
        headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
    rest = content[start:]
    headers["Content-Length"] = str(len(rest) if served.announced is None else served.announced)
    status = http.HTTPStatus.PARTIAL_CONTENT if start else http.HTTPStatus.OK
    return status, headers, rest[: served.cut_after.pop(0)] if served.cut_after else rest
