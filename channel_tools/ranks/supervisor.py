# SPDX-License-Identifier: BSD-3-Clause
"""Runs a command, and ends everything that it started when it ends, on a signal, or when standard input closes.

Every command of a launch runs under it, here and on other hosts. There, its text is sent over ssh to the environment's
own Python, so it uses only the standard library. When the caller of ssh ends, the host is not notified, but standard
input closes, even after kill -9.

Usage: python -c TEXT JSON, which has ``folder``, ``variables`` (added to the host's own), ``words``, and ``stdin``, the
descriptor that becomes the command's standard input; null for none.
"""

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36
GRACE_S = 5.0
KILL_S = 30.0
"""SIGKILL ends a process at once, a large one in seconds, and one in which the kernel waits for a device never."""
LOOK_S = 0.1


def descendants() -> list[int]:
    """All processes below this one."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text(encoding="utf-8", errors="replace")
        except OSError:  # it has ended
            continue
        parents[int(stat.parent.name)] = int(text.rpartition(")")[2].split()[1])
    processes = {os.getpid()}
    while more := {process for process, parent in parents.items() if parent in processes} - processes:
        processes |= more
    return sorted(processes - {os.getpid()})


def end_all(grace_s: float) -> None:
    """Send SIGTERM to all descendants, and SIGKILL to those left after ``grace_s``; name what that has not ended."""
    number, until = signal.SIGTERM, time.monotonic() + grace_s
    signalled: set[int] = set()
    while processes := descendants():
        if time.monotonic() > until:
            if number == signal.SIGKILL:
                say_left(processes)
                return
            number, until, signalled = signal.SIGKILL, time.monotonic() + KILL_S, set()
        for process in set(processes) - signalled:
            with contextlib.suppress(ProcessLookupError, PermissionError):  # the second: of another user, by setuid
                os.kill(process, number)
            signalled.add(process)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(LOOK_S)


def say_left(processes: list[int]) -> None:
    """Name on stderr the processes that SIGKILL has not ended."""
    for process in processes:
        try:
            text = Path("/proc", str(process), "stat").read_text(encoding="utf-8", errors="replace")
        except OSError:  # now it has ended
            continue
        name, _, fields = text.partition("(")[2].rpartition(")")
        who = f"{os.uname().nodename}: process {process} ({name}, state {fields.split()[0]})"
        sys.stderr.write(
            f"{who} did not end within {KILL_S:g} s of SIGKILL and is left behind: "
            "another user's, or the kernel waits in it for a device or a file system\n"
        )


def main() -> int:
    """Run the command; returns its exit code as a shell's."""
    request = json.loads(sys.argv[1])
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)  # the wakeup pipe reports it
    try:
        os.chdir(request["folder"])
        stdin = subprocess.DEVNULL if request["stdin"] is None else request["stdin"]
        process = subprocess.Popen(request["words"], env={**os.environ, **request["variables"]}, stdin=stdin)
    except OSError as err:
        sys.stderr.write(f"{err.filename}: {err.strerror}\n")
        return 127
    if request["stdin"] is not None:
        os.close(request["stdin"])  # only the command reads it: who writes there is to notice its end
    ended = os.pidfd_open(process.pid)
    ready, _, _ = select.select([ended, 0, woken], [], [])
    if ended not in ready:
        end_all(GRACE_S)
        return 128 + signal.SIGTERM
    code = process.wait()
    end_all(0.0)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
