# SPDX-License-Identifier: BSD-3-Clause
"""A real server as users start it, with tokens from the command line, and plain requests to it."""

from __future__ import annotations

import http.client
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from channel_tools.serve.settings import default_tokens_file
from channel_tools.serve.tokens import Access, TokenRequest, create_token

_ROOT = Path(__file__).parents[2]
_PATIENCE_S = 120.0


@dataclass(frozen=True, kw_only=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, kw_only=True)
class Server:
    root: Path
    address: str
    process: subprocess.Popen[str]
    log_file: Path
    errors: list[str] = field(default_factory=list)

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def ask(
        self, path: str, *, method: str = "GET", headers: Mapping[str, str] | None = None, body: bytes | None = None
    ) -> Answer:
        """One request, its path sent as it is."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_PATIENCE_S)
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
        deadline_s = time.monotonic() + _PATIENCE_S
        while True:
            lines = self.log_file.read_text().splitlines()
            found = [json.loads(line) for line in lines if all(part in line for part in parts)]
            if len(found) >= count:
                return [row["status"] for row in sorted(found, key=lambda row: str(row["time"]))]
            assert time.monotonic() < deadline_s, found
            select_briefly()

    def log(self) -> list[dict[str, object]]:
        """The access log; complete once the server has ended."""
        return [json.loads(line) for line in self.log_file.read_text().splitlines()]


@contextmanager
def running(root: Path, *options: str, work: Path, workers: int = 1, quiet: bool = True) -> Iterator[Server]:
    """A server of the channels in ``root`` on a free port of the loopback, ended in order by SIGTERM.

    Unless it may tell of something (``quiet`` False), it must have said nothing but where it is.
    """
    log_file, error_file = work / "access.log", work / "server.err"
    command = [sys.executable, "-m", "channel_tools", "serve", str(root), "--port", "0"]
    command += ["--workers", str(workers), "--access-log", str(log_file), *options]
    with error_file.open("w") as errors:
        process = subprocess.Popen(command, cwd=_ROOT, stderr=errors, text=True)
    try:
        address = _address_of(process, error_file)
        yield Server(root=root, address=address, process=process, log_file=log_file)
        process.send_signal(signal.SIGTERM)
        assert process.wait(_PATIENCE_S) == 0, f"{process.returncode}: {error_file.read_text()}"
        assert not quiet or error_file.read_text().splitlines() == [f"serving {root} at {address}"]
    finally:
        process.kill()
        process.wait()


def _address_of(process: subprocess.Popen[str], error_file: Path) -> str:
    while process.poll() is None:
        found = re.search(r"^serving .* at (\S+)$", error_file.read_text(), re.MULTILINE)
        if found:
            return found[1]
        select_briefly()
    raise AssertionError(error_file.read_text())


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
    request = TokenRequest(name="test", channels=channels or None, labels=labels, access=access, expires_s=expires_s)
    return create_token(default_tokens_file(root), request, clock=time.time)[0]
