# SPDX-License-Identifier: BSD-3-Clause
"""Waits for what rattler reads from servers, as long as these send something.

rattler (0.28) waits for minutes for a server that sends nothing, tries four times, and asks for each form of an index
in turn: an installation from one had not ended after nine minutes. To be removed when its client has a time limit for
servers that send nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import threading
import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeVar

from channel_tools.conda.addresses import is_web, without_credentials
from channel_tools.conda.package import NOARCH
from channel_tools.conda.repodata import REPODATA, REPODATA_ZST, SHARD_INDEX
from channel_tools.system.errors import ChannelToolsError, NetworkError
from channel_tools.system.http.pace import Timeouts, TransientError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

_Result = TypeVar("_Result")
_ASK_AFTER_S = 30.0
_ASKED_BYTES = 1 << 16
_TIMEOUTS = Timeouts()


async def while_answered(work: Awaitable[_Result], addresses: Iterable[str]) -> _Result:
    """The result of ``work``, for which rattler asks servers.

    If it takes long, our own client asks for those of the ``addresses`` that are of the web, again and again. Raises
    NetworkError for one whose server sends nothing, or almost nothing.
    """
    asked = [address for address in addresses if is_web(address)]
    task = asyncio.ensure_future(work)
    try:
        while asked and not task.done():
            await asyncio.wait({task}, timeout=_ASK_AFTER_S)
            if not task.done():
                answers = _in_background(functools.partial(_check_answers, asked))
                both: set[asyncio.Future[Any]] = {task, answers}
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
                if not task.done() and (error := answers.result()) is not None:
                    raise error
        return await task
    finally:
        task.cancel()


def index_addresses(channels: Iterable[str]) -> list[str]:
    """Where channels have their indexes of noarch, in each form: one of them is what clients ask for first."""
    forms = (SHARD_INDEX, REPODATA_ZST, REPODATA)
    return [f"{channel.rstrip('/')}/{NOARCH}/{name}" for channel in channels for name in forms]


def _in_background(check: Callable[[], None]) -> asyncio.Future[ChannelToolsError | None]:
    """The error of a check that nobody waits for once it is of no interest, as asyncio would for its own threads."""
    loop = asyncio.get_running_loop()
    found: asyncio.Future[ChannelToolsError | None] = loop.create_future()

    def run() -> None:
        error = None
        try:
            check()
        except ChannelToolsError as err:
            error = err
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(found.set_result, error)

    threading.Thread(target=run, name="answers", daemon=True).start()
    return found


def _check_answers(addresses: Sequence[str]) -> None:
    from channel_tools.conda.clients import make_http_client  # noqa: PLC0415 - slow to import, and most servers answer

    client = make_http_client(dict(os.environ), timeouts=_TIMEOUTS)
    for address in addresses:
        started = time.monotonic()
        try:
            with client.open("GET", address) as response:
                received = 0
                while response.status == HTTPStatus.OK and received < _ASKED_BYTES and (chunk := response.read1()):
                    received += len(chunk)
        except TransientError as err:
            # what is refused at once, rattler is told as well
            if time.monotonic() - started >= min(_TIMEOUTS.connect_s, _TIMEOUTS.read_s):
                message = f"{without_credentials(address)}: its server sends nothing, or almost nothing: {err}"
                hint = "check the address and the network, then run the same command again"
                raise NetworkError(message, hint=hint) from None
