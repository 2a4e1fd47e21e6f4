# SPDX-License-Identifier: BSD-3-Clause
"""What a connection may keep the server waiting for: uvicorn's protocol behind ours, time given by the test."""

from __future__ import annotations

import asyncio

import pytest
from starlette.types import Receive, Scope, Send

from channel_tools.serve.connection import HEADER_TIME_S, STALL_S, Connection
from channel_tools.serve.framing import HEADER_LIMIT_BYTES
from tests.unit.serve.wires import REQUEST, Wire, answer, feed, settle, talk

UPLOAD = b"PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n"


async def take(_scope: Scope, receive: Receive, send: Send) -> None:
    while (await receive()).get("more_body"):
        pass
    await answer(_scope, receive, send)


async def never(_scope: Scope, _receive: Receive, _send: Send) -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize("sent", [b"", b"GET / HTT", b"GET / HTTP/1.1\r\nHost: x\r\n"], ids=["nothing", "line", "half"])
def test_headers_that_do_not_come_are_not_waited_for(sent: bytes) -> None:
    async def story(protocol: Connection, wire: Wire, now_s: float) -> None:
        if sent:
            feed(protocol, sent)
        protocol.sweep(now_s + HEADER_TIME_S - 1)
        assert wire.end == ""
        protocol.sweep(now_s + HEADER_TIME_S + 1)

    wire = talk(answer, story)
    assert wire.end == "closed"
    assert wire.sent.startswith(b"HTTP/1.1 408")


def test_headers_that_trickle_get_no_more_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(protocol: Connection, wire: Wire, now_s: float) -> None:
        for second in range(0, 30, 2):
            monkeypatch.setattr(protocol.loop, "time", lambda later=now_s + second: later)
            if not wire.end:
                feed(protocol, b"GET / HTTP/1.1\r\n" if second == 0 else b"X: y\r\n")
                protocol.sweep(now_s + second)

    assert talk(answer, story).end == "closed"


def test_a_kept_connection_may_be_idle() -> None:
    async def story(protocol: Connection, wire: Wire, now_s: float) -> None:
        feed(protocol, REQUEST)
        await settle()
        protocol.sweep(now_s + HEADER_TIME_S + 1)
        assert wire.end == ""
        assert wire.sent.endswith(b"\r\n\r\nok")

    talk(answer, story)


@pytest.mark.parametrize("pieces", [1, 2000], ids=["at-once", "in-pieces"])
def test_headers_of_any_length_are_refused(pieces: int) -> None:
    headers = b"GET / HTTP/1.1\r\nHost: x\r\n" + b"X-Long: " + b"y" * HEADER_LIMIT_BYTES + b"\r\n\r\n"

    async def story(protocol: Connection, wire: Wire, _now_s: float) -> None:
        size = len(headers) // pieces + 1
        for start in range(0, len(headers), size):
            if not wire.end:
                feed(protocol, headers[start : start + size])
        await settle()

    wire = talk(answer, story)
    assert wire.sent.startswith(b"HTTP/1.1 431")
    assert wire.end == "closed"


def test_a_body_that_does_not_come_is_not_waited_for() -> None:
    async def story(protocol: Connection, wire: Wire, now_s: float) -> None:
        feed(protocol, UPLOAD + b"x" * 100)
        await settle()
        protocol.sweep(now_s + STALL_S - 1)
        assert wire.end == ""
        protocol.sweep(now_s + STALL_S + 1)

    assert talk(take, story).end == "aborted"


def test_a_body_that_trickles_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(protocol: Connection, wire: Wire, now_s: float) -> None:
        feed(protocol, UPLOAD)
        for second in range(0, 600, 10):
            monkeypatch.setattr(protocol.loop, "time", lambda later=now_s + second: later)
            if not wire.end:
                feed(protocol, b"x")
                await settle()
                protocol.sweep(now_s + second)

    assert talk(take, story).end == "aborted"


def test_a_body_after_its_answer_is_not_taken_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(protocol: Connection, wire: Wire, now_s: float) -> None:
        feed(protocol, UPLOAD)
        await settle()
        assert wire.sent.endswith(b"ok")
        for second in range(0, 600, 10):
            monkeypatch.setattr(protocol.loop, "time", lambda later=now_s + second: later)
            if not wire.end:
                feed(protocol, b"x")
                protocol.sweep(now_s + second)

    assert talk(answer, story).end == "aborted"


def test_headers_behind_a_request_without_a_response_are_bounded_too() -> None:
    async def story(protocol: Connection, wire: Wire, _now_s: float) -> None:
        feed(protocol, REQUEST)
        await settle()
        for piece in [b"GET / HTTP/1.1\r\n", *[b"X-Long: " + b"y" * 1000 + b"\r\n"] * 20]:
            if not wire.end:
                feed(protocol, piece)

    wire = talk(never, story)
    assert wire.end == "closed"
    assert wire.sent == b""  # it would be taken for the response to the first request


def test_a_client_that_sends_no_more_gets_the_response_to_what_it_sent() -> None:
    async def story(protocol: Connection, wire: Wire, _now_s: float) -> None:
        feed(protocol, REQUEST + REQUEST)
        assert protocol.eof_received()
        await settle()
        assert wire.sent.count(b"\r\n\r\nok") == 2

    assert talk(answer, story).end == "closed"


@pytest.mark.parametrize("sent", [b"", REQUEST[:10], UPLOAD + b"x" * 100], ids=["nothing", "headers", "body"])
def test_a_client_that_ends_before_its_request_does_is_given_up(sent: bytes) -> None:
    async def story(protocol: Connection, _wire: Wire, _now_s: float) -> None:
        if sent:
            feed(protocol, sent)
        await settle()
        assert not protocol.eof_received()  # so that the transport closes

    talk(take, story)


def test_an_answer_that_takes_long_is_not_the_clients_fault() -> None:
    async def story(protocol: Connection, wire: Wire, now_s: float) -> None:
        feed(protocol, REQUEST)
        await settle()
        protocol.sweep(now_s + STALL_S * 10)
        assert wire.end == ""

    talk(never, story)


def test_a_client_that_takes_nothing_is_cut_off() -> None:
    async def story(protocol: Connection, wire: Wire, now_s: float) -> None:
        feed(protocol, REQUEST)
        await settle()
        wire.waiting = 5000
        protocol.sweep(now_s)
        wire.waiting = 4000
        protocol.sweep(now_s + STALL_S)
        protocol.sweep(now_s + STALL_S * 2 - 1)
        assert wire.end == ""
        wire.close()  # as uvicorn does after the last answer: what waits is not given up by that
        protocol.sweep(now_s + STALL_S * 2 + 1)

    assert talk(answer, story).end == "aborted"


def test_requests_at_once_are_answered_one_after_the_other() -> None:
    running: list[int] = []

    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        running.append(1)
        assert len(running) == 1
        await asyncio.sleep(0)
        running.pop()
        await answer(_scope, _receive, send)

    async def story(protocol: Connection, wire: Wire, _now_s: float) -> None:
        taken = feed(protocol, REQUEST * 2000)
        assert taken <= HEADER_LIMIT_BYTES
        assert not wire.is_reading()
        while wire.sent.count(b"ok") < taken // len(REQUEST):
            await asyncio.sleep(0)
        assert wire.is_reading()

    talk(app, story)


def test_nothing_is_read_while_answers_are_not_taken() -> None:
    async def story(protocol: Connection, wire: Wire, _now_s: float) -> None:
        protocol.pause_writing()
        feed(protocol, REQUEST)
        feed(protocol, REQUEST * 2000)
        await settle()
        assert not wire.is_reading()
        assert wire.sent == b""
        protocol.resume_writing()
        await settle()
        assert wire.sent.count(b"ok") >= 1

    talk(answer, story)


def test_a_body_is_read_only_when_the_application_asks_for_it() -> None:
    asked, body = asyncio.Event(), b""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal body
        await asked.wait()
        more = True
        while more:
            message = await receive()
            body += message["body"]
            more = message["more_body"]
        await answer(scope, receive, send)

    async def story(protocol: Connection, wire: Wire, _now_s: float) -> None:
        assert feed(protocol, UPLOAD + b"x" * 100_000) <= HEADER_LIMIT_BYTES
        await settle()
        assert not wire.is_reading()
        asked.set()
        await settle()
        assert wire.is_reading()
        position = len(body)
        while position < 100_000:
            position += feed(protocol, b"x" * (100_000 - position))
            await settle()
        assert wire.sent.endswith(b"ok")
        assert len(body) == 100_000

    talk(app, story)


def test_a_client_that_waits_for_us_is_not_late(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await asked.wait()
        await take(scope, receive, send)

    async def story(protocol: Connection, wire: Wire, now_s: float) -> None:
        feed(protocol, UPLOAD + b"x" * 100)
        await settle()
        later = now_s + STALL_S * 10
        monkeypatch.setattr(protocol.loop, "time", lambda: later)
        protocol.sweep(later)
        asked.set()
        await settle()
        protocol.sweep(later + STALL_S - 1)
        assert wire.end == ""
        protocol.sweep(later + STALL_S + 1)
        assert wire.end == "aborted"

    talk(app, story)


def test_a_body_that_came_whole_before_the_client_closed_its_side_is_read() -> None:
    asked, pieces = asyncio.Event(), []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await asked.wait()
        while (message := await receive())["type"] == "http.request" and message["more_body"]:
            pieces.append(message["body"])
        pieces.append(message["type"])
        await answer(scope, receive, send)

    async def story(protocol: Connection, wire: Wire, _now_s: float) -> None:
        feed(protocol, UPLOAD + b"x" * 100)
        assert protocol.eof_received()
        asked.set()
        await settle()
        assert wire.end == "closed"
        protocol.connection_lost(None)
        await settle()

    talk(app, story)
    assert pieces == [b"x" * 100, "http.disconnect"]
