# SPDX-License-Identifier: BSD-3-Clause
"""The server as a process: how it starts, keeps going, and ends."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from channel_tools.channel import Foundation, channel_writer, create_channel
from channel_tools.publish.server.protocol import API
from tests.support.processes import TEST_TIMEOUT_S, assert_ended
from tests.support.serving import Server, make_token, running, select_briefly

pytestmark = pytest.mark.integration

_ROOT = Path(__file__).parents[3]
_SIZE = 40 << 20


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "channels" / "ours" / "noarch"
    folder.mkdir(parents=True)
    with (folder / "big-1-0.conda").open("wb") as stream:
        stream.truncate(_SIZE)
    return tmp_path / "channels"


@pytest.fixture
def server(root: Path, tmp_path: Path) -> Iterator[Server]:
    with running(root, "--public", "ours", work=tmp_path, workers=2, quiet=False) as running_server:
        yield running_server


def test_a_worker_that_dies_is_replaced(server: Server) -> None:
    for _round in range(3):
        before = server.workers()
        os.kill(before[0], signal.SIGKILL)
        assert_ended([before[0]])
        while len(found := server.workers()) < 2 or before[0] in found:
            select_briefly()
        server.answers_again()


_SHORT = (
    "from channel_tools.serve import server; server._JOBS_S = 0.2; from channel_tools.cli.entry import main; main()"
)
"""The program, with less patience at its end than the 20 seconds that jobs have."""


def test_a_server_told_to_end_ends_although_a_job_hangs(tmp_path: Path) -> None:
    root = tmp_path / "channels"
    channel = create_channel(root / "ours", Foundation(kind="registry"))
    headers = {"Authorization": f"Bearer {make_token(root, labels=None, access='write')}"}
    yank = json.dumps({"schema": 1, "label": "main", "keys": ["noarch/a-1-0.conda"], "reason": "x"}).encode()
    with (
        channel_writer(channel),  # the job waits for it
        running(root, work=tmp_path, quiet=False, program=("-c", _SHORT)) as server,
    ):
        begun = json.loads(server.ask(f"{API}/ours/yank", method="POST", headers=headers, body=yank).body)
        while json.loads(server.ask(f"{API}/ours/jobs/{begun['id']}", headers=headers).body)["state"] != "running":
            select_briefly()
        processes = [*server.children(), *server.workers()]  # the job is one of them
    assert f"job {begun['id']} of channel ours: killed" in server.errors_said()
    assert_ended(processes)


def test_nobody_is_left_when_the_first_process_is_killed(root: Path, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="-9"):
        kill_the_first(root, tmp_path)


def kill_the_first(root: Path, work: Path) -> None:
    with running(root, work=work, workers=2) as server:
        left = [*server.children(), *server.workers()]
        server.process.kill()
        assert_ended(left)


def test_when_granian_is_killed_its_workers_end_and_others_are_started(server: Server) -> None:
    (granian,), workers = server.children(), server.workers()
    os.kill(granian, signal.SIGKILL)
    assert_ended([granian, *workers])
    server.answers_again()
    assert "the web server ended with exit code -9 and is started again" in server.errors_said()


def test_workers_that_die_again_and_again_do_not_end_the_server(server: Server) -> None:
    for _round in range(4):
        for worker in server.workers():
            os.kill(worker, signal.SIGKILL)
        server.answers_again()


def test_a_download_under_way_is_finished_when_the_server_ends(root: Path, tmp_path: Path) -> None:
    with running(root, "--public", "ours", work=tmp_path, workers=1) as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=TEST_TIMEOUT_S) as connection:
            connection.sendall(b"GET /ours/noarch/big-1-0.conda HTTP/1.1\r\nHost: x\r\n\r\n")
            received = connection.recv(1000)
            server.process.send_signal(signal.SIGTERM)
            while True:  # until nobody new is taken
                with socket.socket() as another:
                    if another.connect_ex(("127.0.0.1", server.port)):
                        break
                select_briefly()
            size = len(received)
            while chunk := connection.recv(1 << 20):
                size += len(chunk)
        assert size == _SIZE + received.index(b"\r\n\r\n") + 4


def serve(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "channel_tools", "serve", *options]
    return subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False, timeout=TEST_TIMEOUT_S)


def test_what_cannot_be_served_is_one_error(root: Path, server: Server, tmp_path: Path) -> None:
    cases = {
        "cannot listen on this address": (str(root), "--port", str(server.port)),
        "cannot be written": (str(root), "--port", "0", "--access-log", str(tmp_path / "no" / "log")),
    }
    for words, options in cases.items():
        done = serve(*options)
        assert done.returncode == 2, words
        assert words in done.stderr
        assert "Traceback" not in done.stderr


def test_the_log_goes_to_stderr_where_no_file_is_named(root: Path, tmp_path: Path) -> None:
    error_file = tmp_path / "errors"
    command = [sys.executable, "-m", "channel_tools", "serve", str(root), "--port", "0", "--workers", "1"]
    with error_file.open("w") as errors:
        process = subprocess.Popen(command, cwd=_ROOT, stderr=errors, text=True)
    try:
        while " at " not in error_file.read_text():
            assert process.poll() is None
            select_briefly()
        address = error_file.read_text().split()[-1]
        log = Server(root=root, address=address, process=process, log_file=error_file)
        token = make_token(root, "ours")
        assert log.ask(f"/t/{token}/ours/noarch/none.conda").status == 404
        assert token not in "".join(
            Path(f"/proc/{pid}/cmdline").read_text() for pid in (process.pid, *log.children(), *log.workers())
        )
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(TEST_TIMEOUT_S) == 0
    lines = error_file.read_text().splitlines()
    assert json.loads(lines[1])["path"] == "/t/***/ours/noarch/none.conda"
    assert len(lines) == 2
    assert token not in error_file.read_text()
