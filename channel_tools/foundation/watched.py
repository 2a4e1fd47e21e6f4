# SPDX-License-Identifier: BSD-3-Clause
"""Running a program that downloads, and reporting how far it is by the growth of its files.

apt and pip draw their own progress in their own ways; the sizes of the files that they write are the same for both.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import IO, TYPE_CHECKING

from channel_tools.commands import CommandResult, end_process_group, start_command
from channel_tools.errors import CommandError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from channel_tools.progress import Task

_POLL_S = 0.2
# Between fork and exec of the program: have the kernel kill it when this process ends, however it ends. A download that
# went on alone would write into the same files as that of the next run.
_ENDS_WITH_PARENT = """\
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() != int(sys.argv[1]):
    sys.exit("the process that asked for this has ended")
os.execvp(sys.argv[2], sys.argv[2:])
"""


class GrowthReport:
    """Tells a task how many bytes of the wanted files have come, never counting a file twice."""

    def __init__(self, task: Task, folders: Sequence[Path], wanted: Iterable[str]) -> None:
        self._task = task
        self._folders = folders
        self._wanted = frozenset(wanted)
        self._reported = 0

    def poll(self) -> None:
        """Look at the folders and report what is new."""
        sizes: dict[str, int] = {}
        for folder in self._folders:
            for here, _, names in os.walk(folder):  # which, unlike glob, bears folders that go away meanwhile
                for name in self._wanted.intersection(names):
                    sizes[name] = max(sizes.get(name, 0), _size(Path(here, name)))
        total = sum(sizes.values())
        if total > self._reported:
            self._task.advance(total - self._reported)
            self._reported = total


def run_watched(
    command: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    poll: Callable[[], None],
    on_line: Callable[[str], None] | None = None,
    stdin: int = subprocess.DEVNULL,
) -> CommandResult:
    """Run ``command`` to its end, calling ``poll`` a few times a second and ``on_line`` for each line it prints.

    The exit status is the caller's to judge. An interrupt, or what ``poll`` raises, ends the program and its children.
    Raises CommandError when the program cannot be started.
    """
    if shutil.which(command[0], path=env.get("PATH")) is None:
        raise CommandError(
            f"{command[0]}: the program was not found", hint=f"install {command[0]} or put it on the PATH"
        )
    launcher = [sys.executable, "-S", "-c", _ENDS_WITH_PARENT, str(os.getpid()), *command]
    lines: list[str] = []
    with tempfile.TemporaryFile() as errors:
        process = start_command(launcher, cwd=cwd, env=env, stdin=stdin, stdout=subprocess.PIPE, stderr=errors.fileno())
        if process.stdout is None:
            raise RuntimeError("a process started with a pipe has one")
        reader = threading.Thread(target=_read_lines, args=(process.stdout, lines, on_line), daemon=True)
        reader.start()
        try:
            _wait(process, poll)
        except BaseException:
            end_process_group(process)
            raise
        reader.join()
        process.stdout.close()
        errors.seek(0)
        stderr = errors.read().decode(errors="replace")
    return CommandResult(command=tuple(command), returncode=process.returncode, stdout="".join(lines), stderr=stderr)


def _wait(process: subprocess.Popen[bytes], poll: Callable[[], None]) -> None:
    while True:
        try:
            process.wait(timeout=_POLL_S)
        except subprocess.TimeoutExpired:
            poll()
        else:
            poll()
            return


def _read_lines(stream: IO[bytes], lines: list[str], on_line: Callable[[str], None] | None) -> None:
    for raw in stream:
        line = raw.decode(errors="replace")
        lines.append(line)
        if on_line is not None:
            on_line(line.rstrip("\n"))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:  # renamed since it was listed
        return 0
