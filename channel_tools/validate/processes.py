# SPDX-License-Identifier: BSD-3-Clause
"""Programs that run beside this process for a while: watched without polling, ended with it whatever ends it.

Each is started through a few lines of Python that ask the kernel to signal it when this process dies, so that not even
kill -9 leaves one behind; waiting is on process descriptors (Linux 5.3 and later).
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from channel_tools.commands import end_process_group, start_command

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

# The kernel's signal comes when the thread that started the child ends: start programs from the main thread.
_DIE_WITH_PARENT = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, int(sys.argv[2]))
if os.getppid() != int(sys.argv[1]):
    sys.exit("the process that started this one has ended")
try:
    os.execvpe(sys.argv[3], sys.argv[3:], os.environ)
except OSError as err:
    sys.exit(f"{sys.argv[3]}: cannot be started: {err.strerror}")
"""
_TAIL_LINES = 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Deadline:
    """A point in time by the monotonic clock, and the limit it came from."""

    limit_s: float
    at: float

    @classmethod
    def after(cls, limit_s: float) -> Deadline:
        """The deadline ``limit_s`` seconds from now."""
        return cls(limit_s=limit_s, at=time.monotonic() + limit_s)

    def left_s(self) -> float:
        """Seconds left, not below 0."""
        return max(0.0, self.at - time.monotonic())

    def capped(self, limit_s: float) -> Deadline:
        """The earlier of this one and ``limit_s`` from now."""
        other = Deadline.after(limit_s)
        return other if other.at < self.at else self


@dataclass(frozen=True, kw_only=True, slots=True)
class Program:
    """A running program; what it prints to stderr, and to stdout unless that is a pipe, goes to ``log``."""

    name: str
    process: subprocess.Popen[bytes]
    descriptor: int
    log: Path

    def has_ended(self) -> bool:
        """Whether it ended by now."""
        return self.process.poll() is not None

    def end_in_words(self) -> str:
        """How it ended; waits for it."""
        code = self.process.wait()
        return f"exit status {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"

    def tail(self) -> str:
        """The last lines of its log."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return "\n".join(lines[-_TAIL_LINES:])


@contextlib.contextmanager
def running_program(
    name: str,
    command: Sequence[str | Path],
    *,
    env: Mapping[str, str],
    cwd: Path,
    log: Path,
    stdout: int | None = None,
    death_signal: signal.Signals = signal.SIGTERM,
) -> Iterator[Program]:
    """Run ``command`` while the block does; its process group is ended when the block is left, however.

    ``stdout`` None sends it to the log. ``death_signal`` is what the program gets when this process is killed.
    """
    launcher = [sys.executable, "-I", "-S", "-c", _DIE_WITH_PARENT, str(os.getpid()), str(int(death_signal))]
    with log.open("wb") as stream:
        process = start_command(
            [*launcher, *(str(word) for word in command)],
            cwd=cwd,
            env=env,
            stdout=stream.fileno() if stdout is None else stdout,
            stderr=stream.fileno(),
        )
    try:
        descriptor = os.pidfd_open(process.pid)
        try:
            yield Program(name=name, process=process, descriptor=descriptor, log=log)
        finally:
            os.close(descriptor)
    finally:
        end_process_group(process)


def wait_for_any(descriptors: Sequence[int], deadline: Deadline) -> tuple[int, ...]:
    """The descriptors (of processes that ended, of pipes with input) that are ready; none when time ran out."""
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return tuple(descriptor for descriptor, _ in poll.poll(deadline.left_s() * 1000))
