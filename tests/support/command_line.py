# SPDX-License-Identifier: BSD-3-Clause
"""The command line in processes of their own, without the second that each would take to start.

A server process imports the command line once and forks for every call: each runs ``main`` with its own arguments,
folder, environment and streams, and ends as it would from a shell.
"""

from __future__ import annotations

import atexit
import functools
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

_LIMIT_S = 600


def run_tool(
    *arguments: str | Path, cwd: Path, environ: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """``channel_tools ARGUMENTS``, without what the caller's environment says to it; the kernel ends it in the end."""
    words = list(map(str, arguments))
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CHANNEL_TOOLS_")}
    with tempfile.TemporaryDirectory() as folder:
        streams = [Path(folder) / "stdout", Path(folder) / "stderr"]
        call = [words, str(cwd), {**kept, **(environ or {})}, list(map(str, streams))]
        server = _server()
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(json.dumps(call) + "\n")
        server.stdin.flush()
        status = int(server.stdout.readline())
        stdout, stderr = (path.read_text() for path in streams)
    return subprocess.CompletedProcess(["channel_tools", *words], status, stdout, stderr)


@functools.cache
def _server() -> subprocess.Popen[str]:
    """One for the whole run; it ends when its standard input does."""
    command = [sys.executable, "-m", "tests.support.command_line"]
    root = Path(__file__).parents[2]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root)
    atexit.register(server.__exit__, None, None, None)
    return server


def _serve() -> None:
    from channel_tools.cli.entry import main  # noqa: PLC0415

    # what most commands use; none of them starts a thread when it is imported
    for name in ("channel_tools.cli.app", "channel_tools.matrix", "channel_tools.audit", "rattler"):
        importlib.import_module(name)
    for line in sys.stdin:
        arguments, folder, environ, streams = json.loads(line)
        child = os.fork()
        if child == 0:
            _become(arguments, folder, environ, streams)
            signal.alarm(_LIMIT_S)
            main()
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


def _become(arguments: list[str], folder: str, environ: dict[str, str], streams: list[str]) -> None:
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environ)
    sys.argv = ["channel_tools", *arguments]
    for number, path in enumerate(["/dev/null", *streams]):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        os.dup2(descriptor, number)
        os.close(descriptor)


if __name__ == "__main__":
    _serve()
