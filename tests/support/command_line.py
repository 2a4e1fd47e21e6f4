# SPDX-License-Identifier: BSD-3-Clause
"""The command line in processes of their own, without the second that each would take to start.

A server process imports all that commands use, once for all workers of a run, and forks for every call: each runs
``main`` with its own arguments, folder, environment and streams, and ends as it would from a shell. The server answers
a call with the number of the process, and with its exit code when it has ended.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

_LIMIT_S = 3600
"""After which a process that a killed run left behind ends; a server that many tests share lives as long as they do."""
_DESCRIPTORS = 1024
"""More than the server has open: one per worker for its call, one for the process that runs it."""
_ADDRESS = "CHANNEL_TOOLS_TEST_COMMANDS"
"""The variable that tells a run's workers where the server listens."""
_PID_BYTES = 10


class ToolProcess:
    """``channel_tools WORDS`` while it runs, with what tests use of subprocess.Popen.

    ``environ`` is all of its environment; stdout and stderr are written to the two files ``streams``. Where it is not
    waited for, it goes on. Raises KeyError outside of a run of tests, which alone have the server.
    """

    def __init__(self, words: Sequence[str], cwd: Path, environ: Mapping[str, str], streams: Sequence[Path]) -> None:
        self.returncode: int | None = None
        self._connection = socket.socket(socket.AF_UNIX)
        self._connection.connect(os.environ[_ADDRESS])
        call = [list(words), str(cwd), dict(environ), list(map(str, streams))]
        self._connection.sendall(json.dumps(call).encode() + b"\n")
        self.pid = int(self._connection.recv(_PID_BYTES, socket.MSG_WAITALL))

    def poll(self) -> int | None:
        """Its exit code, None while it runs."""
        return self._ended_within(0)

    def wait(self, timeout_s: float | None = None) -> int:
        """Its exit code once it has ended; raises subprocess.TimeoutExpired where it has not by then."""
        code = self._ended_within(timeout_s)
        if code is None:
            raise subprocess.TimeoutExpired(["channel_tools"], timeout_s or 0)
        return code

    def send_signal(self, number: int) -> None:
        """Nothing where it has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _ended_within(self, timeout_s: float | None) -> int | None:
        if self.returncode is None and select.select([self._connection], [], [], timeout_s)[0]:
            with self._connection, self._connection.makefile() as answer:
                self.returncode = int(answer.readline())
        return self.returncode


def run_tool(
    *arguments: str | Path, cwd: Path, environ: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """``channel_tools ARGUMENTS``, without what the caller's environment says to it; the kernel ends it in the end.

    Nor are the files of the caller's settings for conda and rattler read, unless ``environ`` says so.
    """
    words = list(map(str, arguments))
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CHANNEL_TOOLS_")}
    kept["CHANNEL_TOOLS_USER_SETTINGS"] = "no"
    with tempfile.TemporaryDirectory() as folder:
        streams = [Path(folder) / "stdout", Path(folder) / "stderr"]
        status = ToolProcess(words, cwd, {**kept, **(environ or {})}, streams).wait()
        stdout, stderr = (path.read_text() for path in streams)
    return subprocess.CompletedProcess(["channel_tools", *words], status, stdout, stderr)


def output_of(folder: Path, *arguments: str, code: int = 0) -> str:
    """What a command prints that has to end with this code: its result, or its errors where that is not 0.

    It is run in the folder, and its cache is beside that.
    """
    result = run_tool(*arguments, cwd=folder, environ={"CHANNEL_TOOLS_CACHE": str(folder.parent / "cache")})
    assert (result.returncode, "Traceback" in result.stderr) == (code, False), result.stderr
    return result.stdout if code == 0 else result.stderr


def has_server() -> bool:
    """Whether this is part of a run of tests."""
    return _ADDRESS in os.environ


def start_server() -> None:
    """Have a server listen for the workers of this run; it ends with this process, whose pipe it holds."""
    folder = tempfile.TemporaryDirectory()
    address = str(Path(folder.name) / "commands")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        command = [sys.executable, "-m", "tests.support.command_line", str(listener.fileno())]
        root = Path(__file__).parents[2]
        server = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[listener.fileno()], cwd=root)
    os.environ[_ADDRESS] = address
    atexit.register(folder.cleanup)
    atexit.register(server.__exit__, None, None, None)


def _serve(listener: socket.socket) -> None:
    """Answer until the run ends; the first call waits for the imports, as a run without calls needs none of them."""
    prepared = False
    running: dict[int, tuple[int, socket.socket]] = {}
    while True:
        ready, _, _ = select.select([sys.stdin, listener, *running], [], [])
        if sys.stdin in ready:
            return
        for ended in running.keys() & ready:
            child, connection = running.pop(ended)
            _report(child, connection)
            os.close(ended)
        if listener in ready:
            prepared = prepared or prepare()
            connection = listener.accept()[0]
            child = _start(connection)
            with contextlib.suppress(BrokenPipeError):  # its caller may have ended before
                connection.sendall(f"{child:<{_PID_BYTES}}".encode())
            running[os.pidfd_open(child)] = child, connection


def prepare() -> bool:
    """Import what commands import, none of which starts a thread, and fix it in memory for the copies to share."""
    from typer.main import get_command  # noqa: PLC0415

    import channel_tools.workflow  # noqa: PLC0415
    from channel_tools.cli.app import app_for  # noqa: PLC0415

    used = [f"channel_tools.workflow.{module.name}" for module in pkgutil.iter_modules(channel_tools.workflow.__path__)]
    others = ("rich.progress", "rich.table", "typer.rich_utils", "multiprocessing.popen_spawn_posix")
    for name in (*used, *others, "channel_tools.serve.server"):
        importlib.import_module(name)
    get_command(app_for(["list"])).make_context("channel_tools", ["list"])  # reading options imports a good deal more
    assert len(list(Path("/proc/self/task").iterdir())) == 1
    gc.collect()
    gc.freeze()
    return True


def _start(connection: socket.socket) -> int:
    """A process that runs the one command that the caller sends."""
    child = os.fork()
    if child == 0:
        with connection.makefile() as call:
            arguments, folder, environ, streams = json.loads(call.readline())
        os.closerange(3, _DESCRIPTORS)  # the listener, and the connections and processes of other calls
        _become(arguments, folder, environ, streams)
        signal.alarm(_LIMIT_S)
        from channel_tools.cli.entry import main  # noqa: PLC0415

        main()
    return child


def _report(child: int, connection: socket.socket) -> None:
    """Say the exit code of a process that has ended."""
    _, status = os.waitpid(child, 0)
    with connection, contextlib.suppress(BrokenPipeError):  # its caller may have ended before
        connection.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())


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
    _serve(socket.socket(fileno=int(sys.argv[1])))
