# SPDX-License-Identifier: BSD-3-Clause
"""Receiving a file: however its body comes in, it is complete with its last byte, and costs few calls of the system."""

from __future__ import annotations

import asyncio
import hashlib
import sys
from pathlib import Path

import pytest
from starlette.types import Message

from channel_tools.conda.package import PackageKey, PackageRef
from channel_tools.publish.server.protocol import ReceivedBytes, SetRequest
from channel_tools.serve.uploads.receive import ClientGoneError, Span, receive_file
from channel_tools.serve.uploads.store import Job, JobStore, jobs_folder
from channel_tools.system.errors import IntegrityError
from tests.support.packages import CONDA_FORGE

CONTENT = b"a package" * 2000
WANTED = PackageKey("linux-64", "toy-1.0-0.conda").ref(hashlib.sha256(CONTENT).hexdigest(), len(CONTENT))
COMPLETE = ReceivedBytes(received=len(CONTENT), complete=True)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    request = SetRequest(label="main", name="a set", foundation=CONDA_FORGE, files=(WANTED,))
    return JobStore(jobs_folder(tmp_path), clock=lambda: 0.0).open("publish", "ours", request)


def receive(job: Job, *bodies: bytes, ends: bool = True, wanted: PackageRef = WANTED) -> ReceivedBytes:
    """Receive these messages; ``ends``: the last one says so, else the client leaves."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": True} for body in bodies]
    if ends:
        messages[-1]["more_body"] = False
    else:
        messages.append({"type": "http.disconnect"})

    async def next_message() -> Message:
        return messages.pop(0)

    return asyncio.run(receive_file(job, wanted, Span(), next_message))


@pytest.mark.parametrize(
    "bodies", [[CONTENT], [CONTENT, b""], [CONTENT[:7], CONTENT[7:]], [b"", CONTENT[:7], CONTENT[7:], b""]]
)
def test_a_file_is_complete_with_its_last_byte(job: Job, bodies: list[bytes]) -> None:
    assert receive(job, *bodies) == COMPLETE
    assert job.file(WANTED).read_bytes() == CONTENT
    assert job.received(WANTED) == 0


def test_what_came_before_the_client_left_is_kept(job: Job) -> None:
    with pytest.raises(ClientGoneError):
        receive(job, CONTENT[:7], ends=False)
    assert job.received(WANTED) == len(CONTENT[:7])


def test_all_bytes_of_a_client_that_left_are_accepted_later(job: Job) -> None:
    """Whether more would have come is not known."""
    with pytest.raises(ClientGoneError):
        receive(job, CONTENT, ends=False)
    assert not job.is_complete(WANTED)
    assert job.received(WANTED) == len(CONTENT)


@pytest.mark.parametrize("bodies", [[CONTENT + b"more"], [CONTENT[:7], CONTENT[7:] + b"more"], [b"x" * len(CONTENT)]])
def test_other_bytes_than_those_announced_are_refused(job: Job, bodies: list[bytes]) -> None:
    with pytest.raises(IntegrityError):
        receive(job, *bodies)
    assert not job.is_complete(WANTED)


def test_a_small_file_costs_few_calls_of_the_system(job: Job) -> None:
    """Its folder is opened once, and it is hashed and flushed as it was opened to be written."""
    opened: list[object] = []
    is_counting = True

    def count(event: str, given: tuple[object, ...]) -> None:
        if is_counting and event == "open":
            opened.append(given[0])

    sys.addaudithook(count)  # stays, and does nothing later
    assert receive(job, CONTENT) == COMPLETE
    is_counting = False
    assert opened.count(str(job.files.root)) == 1
    assert len(opened) <= 6  # the others are the lock, the part, folders that are made, and the descriptor as a stream
