# SPDX-License-Identifier: BSD-3-Clause
"""A process that has imported what its children need, and is forked for each of them: none pays for an interpreter.

The children are as separate as if each had been started as a program: they are forked from a process that never runs
anything else, and each gets its own session, environment and output. multiprocessing's forkserver gives its children
the environment that the caller has when it starts, imports the caller's main module in each, and keeps them in the
caller's session, so it is not used here.

Server and client share a socket, whose messages carry what to run with two descriptors: the child's output, and a
socket of its own. There the server writes the child's process id, and its wait status when it has ended. It leaves the
child a zombie until the client closes that socket, so that the id of the process and of its group stays its own. The
server ends when the client does, however that happens; its children must ask the kernel to end them with it.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn, Self

from channel_tools.system.errors import CommandError
from channel_tools.system.processes import end_process_group, start_command, wait_for_any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

_NUMBER = struct.Struct("q")
_MESSAGE_BYTES = 1 << 16
"""More than any message: it has a path and the few variables of an environment."""
_DESCRIPTORS = 2
_GRACE_S = 10.0
_FIRST_OWN = 3
"""The first descriptor after the standard streams."""


class ForkedProcess:
    """A child of the server, seen by the client; it leads a session and a group (see GroupLeader)."""

    def __init__(self, pid: int, link: socket.socket) -> None:
        self.pid = pid
        self._status: int | None = None
        self._link = link

    def end_descriptor(self) -> int:
        """A new descriptor that can be read from when the process has ended."""
        return os.dup(self._link.fileno())

    def wait(self, timeout: float | None = None) -> int:
        """Wait as GroupLeader says.

        If the server was killed, the kernel has ended the process with it: that counts as SIGKILL.
        """
        if self._status is None:
            limit_ms = None if timeout is None else timeout * 1000
            waiting = select.poll()
            waiting.register(self._link, select.POLLIN)
            if not waiting.poll(limit_ms):
                raise subprocess.TimeoutExpired(["process", str(self.pid)], timeout or 0)
            status = _received_number(self._link)
            self._status = -signal.SIGKILL if status is None else os.waitstatus_to_exitcode(status)
        return self._status

    def close(self) -> None:
        """Give the process id back: the server, unless it has ended, collects the process before this returns."""
        with self._link, contextlib.suppress(OSError):  # the server has ended
            self._link.shutdown(socket.SHUT_WR)
            self._link.recv(1)


class ForkServer:
    """The client's side: forks children from the server, the module that it starts, which ends in ``serve_forks``."""

    def __init__(self, module: str, *, env: Mapping[str, str]) -> None:
        """``env`` is the server's whole environment. It starts with ``prepare`` or the first child."""
        self._module, self._env = module, env
        self._started: tuple[socket.socket, subprocess.Popen[bytes]] | None = None
        self._has_forked = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self, argument: str, *, env: Mapping[str, str], output: int) -> ForkedProcess:
        """Fork a child that runs the server's function with ``argument``, and wait until it exists.

        ``env`` is its whole environment; ``output`` gets what it prints to stdout and stderr. A server that was killed
        is started again. Raises CommandError if it cannot be started.
        """
        message = json.dumps({"argument": argument, "env": dict(env)}).encode()
        forked = self._fork(message, output)
        if forked is None and self._has_forked:
            self.close()
            forked = self._fork(message, output)
        if forked is None:
            raise self._ended_error()
        self._has_forked = True
        return forked

    def _fork(self, message: bytes, output: int) -> ForkedProcess | None:
        """The new child; None if the server has ended."""
        own, theirs = socket.socketpair()
        try:
            with theirs, contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the server has ended
                socket.send_fds(self._running()[0], [message], [theirs.fileno(), output])
            pid = _received_number(own)
        except BaseException:
            own.close()
            raise
        if pid is None:
            own.close()
            return None
        return ForkedProcess(pid, own)

    def prepare(self) -> None:
        """Start the server, unless it is running, without waiting for its imports."""
        self._running()

    def close(self) -> None:
        """End the server, which first ends its children; none is left when this returns."""
        if self._started is None:
            return
        control, process = self._started
        control.close()
        if self._has_forked:  # otherwise it may still be importing, and has no children
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=_GRACE_S)
        end_process_group(process)
        self._started, self._has_forked = None, False

    def _running(self) -> tuple[socket.socket, subprocess.Popen[bytes]]:
        if self._started is None:
            control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            command = [sys.executable, "-P", "-m", self._module]
            with theirs:
                self._started = (
                    control,
                    start_command(
                        command, env=self._env, stdin=theirs.fileno(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT
                    ),
                )
        return self._started

    def _ended_error(self) -> CommandError:
        output = self._running()[1].communicate()[0]
        words = f"{self._module}: the process that starts others has ended"
        return CommandError(f"{words}\n{output.decode(errors='replace')}".rstrip())


@dataclass(frozen=True, kw_only=True, slots=True)
class _Forked:
    """A child as the server sees it: its id, a descriptor of the process and one of the socket to its client."""

    pid: int
    process: int
    link: int


def serve_forks(run: Callable[[str, int], int]) -> NoReturn:
    """Serve the client whose socket is this process's standard input, until it ends.

    Call it last, in a process with one thread: ``run`` is called in the children, with the
    argument and this process's id, and returns the exit status.
    """
    gc.freeze()  # collecting would copy the pages that the children share with this process
    control = socket.socket(fileno=0)
    running: dict[int, _Forked] = {}
    """By both of their descriptors: that of the process until it has ended, that of the link afterwards."""
    while True:
        for descriptor in wait_for_any([control.fileno(), *running]):
            if descriptor == control.fileno():
                message, descriptors, _flags, _address = socket.recv_fds(control, _MESSAGE_BYTES, _DESCRIPTORS)
                if not message:
                    _end_all(running.values())
                child = _fork(run, message, *descriptors)
                running[child.process] = child
            else:
                child = running.pop(descriptor)
                if descriptor == child.process:
                    _report_end(child)
                    running[child.link] = child
                else:
                    os.waitpid(child.pid, 0)
                    os.close(child.link)


def _fork(run: Callable[[str, int], int], message: bytes, link: int, output: int) -> _Forked:
    sys.stdout.flush()
    server = os.getpid()
    pid = os.fork()
    if pid == 0:
        _run_child(run, message, output=output, server=server)
    os.close(output)
    _send_number(link, pid)
    return _Forked(pid=pid, process=os.pidfd_open(pid), link=link)


def _run_child(run: Callable[[str, int], int], message: bytes, *, output: int, server: int) -> NoReturn:
    """Run the child: it ends here, so that no frame of the server runs twice."""
    status = 1
    try:
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        _close_all_but_streams()
        request = json.loads(message)
        os.environ.clear()
        os.environ.update(request["env"])
        status = run(request["argument"], server)
    except BaseException:  # noqa: BLE001 - whatever it is, it ends the child and belongs in its output
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _close_all_but_streams() -> None:
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - names are all that is needed
        if int(name) >= _FIRST_OWN:
            with contextlib.suppress(OSError):  # that of the listing
                os.close(int(name))


def _report_end(child: _Forked) -> None:
    """Send the client the wait status of a child that has ended, and leave the child a zombie."""
    os.close(child.process)
    result = os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    if result is None:  # not without WNOHANG
        return
    status = result.si_status << 8 if result.si_code == os.CLD_EXITED else result.si_status
    with contextlib.suppress(BrokenPipeError):  # the client no longer wants to know
        _send_number(child.link, status)


def _end_all(children: Iterable[_Forked]) -> NoReturn:
    """End the children, then this process."""
    for child in children:
        os.kill(child.pid, signal.SIGTERM)
    for child in children:
        os.waitpid(child.pid, 0)
    os._exit(0)


def _send_number(descriptor: int, number: int) -> None:
    os.write(descriptor, _NUMBER.pack(number))


def _received_number(link: socket.socket) -> int | None:
    """The next number; None if the other side was closed."""
    content = link.recv(_NUMBER.size, socket.MSG_WAITALL)
    return _NUMBER.unpack(content)[0] if len(content) == _NUMBER.size else None
