# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from channel_tools.requests.serve import ServeRequest
from channel_tools.serve.server import check_request
from channel_tools.system.errors import UsageError


@pytest.fixture
def request_(tmp_path: Path) -> ServeRequest:
    root = tmp_path / "channels"
    root.mkdir()
    return ServeRequest(folder=root, port=0, workers=1)


def test_what_is_right_is_taken(request_: ServeRequest) -> None:
    check_request(request_)
    check_request(replace(request_, public=("ours", "ours/testing"), tokens=request_.root.parent / "tokens.json"))


def test_a_folder_that_is_not_there_is_named(request_: ServeRequest) -> None:
    with pytest.raises(UsageError, match="no such folder"):
        check_request(replace(request_, folder=request_.root / "none"))


def test_a_channel_itself_is_no_folder_of_channels(request_: ServeRequest) -> None:
    record = request_.root / ".channel_tools" / "channel.json"
    record.parent.mkdir()
    record.write_text("{}")
    with pytest.raises(UsageError, match="is a channel; expected the folder that contains channels") as caught:
        check_request(request_)
    assert caught.value.hint == f"serve {request_.root.parent} instead; this channel is then at /{request_.root.name}/"


@pytest.mark.parametrize("public", ["", "/x", "../x", "a/b/c", "api", ".hidden"])
def test_public_names_a_channel(request_: ServeRequest, public: str) -> None:
    with pytest.raises(UsageError, match="--public"):
        check_request(replace(request_, public=(public,)))


@pytest.mark.parametrize("place", ["tokens.json", "ours/tokens.json", "ours/linux-64/tokens.json"])
def test_tokens_are_not_kept_among_what_is_served(request_: ServeRequest, place: str) -> None:
    with pytest.raises(UsageError, match="the token file is in a folder that would be served"):
        check_request(replace(request_, tokens=request_.root / place))


_ASKED_TO_END_IN_A_CALLBACK = """
import os, signal, sys, weakref
from pathlib import Path
from channel_tools.requests.serve import ServeRequest
from channel_tools.serve import server
from channel_tools.serve.uploads.jobs import JobQueue
from channel_tools.system.errors import signals_raised

class Dropped:
    pass

class Queue(JobQueue):
    def handle(self, ready):
        super().handle(ready)
        dropped = Dropped()
        weakref.finalize(dropped, os.kill, os.getpid(), signal.SIGTERM)
        del dropped  # what a handler raises in the callback is lost

server.JobQueue = Queue
root = Path(sys.argv[1])
request = ServeRequest(folder=root, port=0, workers=1)
with signals_raised():
    server.serve(request, ready=lambda _address: None)
"""


def test_a_signal_that_arrives_while_python_runs_a_callback_ends_the_server(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _ASKED_TO_END_IN_A_CALLBACK, str(tmp_path)]
    done = subprocess.run(command, timeout=60, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
