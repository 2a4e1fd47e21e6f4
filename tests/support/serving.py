# SPDX-License-Identifier: BSD-3-Clause
"""Real servers on loopback: ours as users start it, and nginx with the configurations of docs/how-to/serve.md."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from channel_tools.serve.access.tokens import Access, create_token, default_tokens_file
from tests.support.command_line import ToolProcess, has_server
from tests.support.ports import free_port
from tests.support.processes import TEST_TIMEOUT_S

_ROOT = Path(__file__).parents[2]
_PROGRAM = ("-m", "channel_tools")


@dataclass(frozen=True, kw_only=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, kw_only=True)
class Server:
    root: Path
    address: str
    process: subprocess.Popen[str] | ToolProcess
    log_file: Path
    error_file: Path = Path()

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def ask(
        self, path: str, *, method: str = "GET", headers: Mapping[str, str] | None = None, body: bytes | None = None
    ) -> Answer:
        """One request, its path sent as it is."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TEST_TIMEOUT_S)
        try:
            connection.putrequest(method, path, skip_accept_encoding=True)
            for name, value in (headers or {}).items():
                connection.putheader(name, value)
            if body is not None:
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            response = connection.getresponse()
            answer = {name.lower(): value for name, value in response.getheaders()}
            return Answer(status=response.status, headers=answer, body=response.read())
        finally:
            connection.close()

    def statuses(self, *parts: str, count: int) -> list[object]:
        """How requests whose lines in the log hold all of ``parts`` were answered, in their order, once all are there.

        Each process writes its lines once a second, so that those of several stand out of order.
        """
        deadline_s = time.monotonic() + TEST_TIMEOUT_S
        while True:
            lines = self.log_file.read_text().splitlines()
            found = [json.loads(line) for line in lines if all(part in line for part in parts)]
            if len(found) >= count:
                return [row["status"] for row in sorted(found, key=lambda row: str(row["time"]))]
            assert time.monotonic() < deadline_s, found
            select_briefly()

    def answers_again(self) -> None:
        """Ask until it answers, after a worker was killed; until another is there, connections are refused."""
        while self.process.poll() is None:
            with contextlib.suppress(ConnectionError, http.client.RemoteDisconnected):
                assert self.ask("/health").status == 200
                return
            select_briefly()
        raise AssertionError(f"the server ended: {self.errors_said()}")

    def workers(self) -> list[int]:
        """The processes that answer, by their ids: granian's workers."""
        return [worker for child in self.children() for worker in _children_of(child)]

    def children(self) -> list[int]:
        """granian's main process, and the jobs under way, by their ids."""
        return _children_of(self.process.pid)

    def errors_said(self) -> str:
        """What it said on standard error so far."""
        return self.error_file.read_text()

    def log(self) -> list[dict[str, object]]:
        """The access log; complete once the server has ended."""
        return [json.loads(line) for line in self.log_file.read_text().splitlines()]


def _children_of(process: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
    except FileNotFoundError:
        return []


@contextmanager
def running(
    root: Path,
    *options: str,
    work: Path,
    workers: int = 1,
    quiet: bool = True,
    launcher: Sequence[str] = (),
    variables: Mapping[str, str] | None = None,
    program: Sequence[str] = _PROGRAM,
) -> Iterator[Server]:
    """A server of the channels in ``root`` on a free port of the loopback, ended in order by SIGTERM.

    Unless it may tell of something (``quiet`` False), it must have said nothing but where it is. ``launcher`` is a
    command that becomes the one it is given, ``variables`` are added to the environment, ``program`` is what Python
    runs. Without these it is a fork of what has imported the program (tests/support/command_line.py).
    """
    log_file, error_file = work / "access.log", work / "server.err"
    words = ["serve", str(root), "--port", "0", "--workers", str(workers), "--access-log", str(log_file), *options]
    environ = {**os.environ, **(variables or {})}
    process: subprocess.Popen[str] | ToolProcess
    with error_file.open("w") as errors:
        if launcher or program != _PROGRAM or not has_server():
            command = [*launcher, sys.executable, *program, *words]
            process = subprocess.Popen(command, cwd=_ROOT, stderr=errors, text=True, env=environ)
        else:
            process = ToolProcess(words, _ROOT, environ, [Path(os.devnull), error_file])
    try:
        address = _address_of(process, error_file)
        yield Server(root=root, address=address, process=process, log_file=log_file, error_file=error_file)
        process.send_signal(signal.SIGTERM)
        assert process.wait(TEST_TIMEOUT_S) == 0, f"{process.returncode}: {error_file.read_text()}"
        assert not quiet or error_file.read_text().splitlines() == [f"serving {root} at {address}"]
    finally:
        process.kill()
        process.wait()


def _address_of(process: subprocess.Popen[str] | ToolProcess, error_file: Path) -> str:
    deadline_s = time.monotonic() + TEST_TIMEOUT_S
    while process.poll() is None and time.monotonic() < deadline_s:
        found = re.search(r"^serving .* at (\S+)$", error_file.read_text(), re.MULTILINE)
        if found:
            return found[1]
        select_briefly()
    raise AssertionError(f"not serving, exit code {process.poll()}: {error_file.read_text()}")


def select_briefly() -> None:
    signal.sigtimedwait([], 0.02)


def make_token(
    root: Path,
    *channels: str,
    labels: tuple[str, ...] | None = ("main",),
    access: Access = "read",
    expires_s: float | None = None,
) -> str:
    """A new token for channels (none named: all), put where the server looks."""
    return create_token(
        default_tokens_file(root),
        name="test",
        channels=channels or None,
        labels=labels,
        access=access,
        expires_s=expires_s,
        clock=time.time,
    )[0]


_HOW_TO = Path(__file__).parents[2] / "docs" / "how-to" / "serve.md"
_PROXY, _STATIC = re.findall(r"```nginx\n(.*?)```", _HOW_TO.read_text(), re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class Front:
    """A running nginx."""

    server: Server
    log_file: Path


def nginx_before(server: Server, program: str, work: Path) -> AbstractContextManager[Front]:
    """As a proxy of ``server``, which was started with ``--proxy 127.0.0.1``."""
    return _running(program, work, _PROXY.replace("127.0.0.1:8734", f"127.0.0.1:{server.port}"), server.root)


def nginx_alone(root: Path, program: str, work: Path) -> AbstractContextManager[Front]:
    """As a server of the static files below ``root``."""
    return _running(program, work, _STATIC, root)


@contextmanager
def _running(program: str, work: Path, configuration: str, root: Path) -> Iterator[Front]:
    port = free_port()
    log_file = work / "nginx.log"
    lines = re.sub(r"listen \S+( ssl)?;", f"listen 127.0.0.1:{port};", configuration)
    lines = re.sub(r"^\s*ssl_certificate.*\n", "", lines, flags=re.MULTILINE)
    lines = re.sub(r"access_log \S+", f"access_log {log_file}", lines)
    lines = re.sub(r"error_log \S+", f"error_log {work / 'nginx-site.err'}", lines)
    lines = lines.replace("root /srv/channels;", f"root {root};")
    temporary = "".join(
        f"{kind}_temp_path {work / kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    file, error_file = work / "nginx.conf", work / "nginx.err"
    file.write_text(
        f"daemon off;\nuser root;\npid {work / 'nginx.pid'};\nerror_log {error_file};\n"
        f"events {{}}\nhttp {{\naccess_log off;\n{temporary}{lines}}}\n"
    )
    process = subprocess.Popen([program, "-c", str(file), "-e", str(error_file)], text=True)
    try:
        while process.poll() is None and not _answers(port):
            select_briefly()
        assert process.poll() is None, error_file.read_text()
        server = Server(root=root, address=f"http://127.0.0.1:{port}", process=process, log_file=log_file)
        yield Front(server=server, log_file=log_file)
    finally:
        process.send_signal(signal.SIGQUIT)
        process.wait(TEST_TIMEOUT_S)


def _answers(port: int) -> bool:
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0
