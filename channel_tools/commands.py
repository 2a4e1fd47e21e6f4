# SPDX-License-Identifier: BSD-3-Clause
"""The only place that runs external programs.

Each command is logged shell-quoted before it runs, gets no terminal input, and runs in its own process group so that
an interrupt or a deadline ends its children too.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shlex
import signal
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from channel_tools.errors import CommandError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_log = logging.getLogger(__name__)
_TERMINATE_GRACE_S = 5.0
_TAIL_LINES = 20


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandResult:
    """What a finished command left: its exit status and its output as text."""

    command: tuple[str, ...]
    returncode: int
    stdout: str
    stderr: str

    def tail(self) -> str:
        """The last lines the command printed, for an error message."""
        lines = (self.stderr.strip() or self.stdout.strip()).splitlines()
        return "\n".join(lines[-_TAIL_LINES:])


def run_command(
    command: Sequence[str | Path],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout_s: float | None = None,
    check: bool = True,
) -> CommandResult:
    """Run ``command`` to its end and return what it printed.

    ``env`` replaces the environment (None: inherit). Raises CommandError when the program is not installed, when it
    outruns ``timeout_s`` and, with ``check``, when it exits non-zero; the message holds the command and its last lines.
    """
    words = tuple(str(word) for word in command)
    _log.info("$ %s", shlex.join(words))
    process = start_command(words, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        stdout, stderr = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        end_process_group(process)
        raise CommandError(f"{shlex.join(words)}: did not end within {timeout_s:g} s") from None
    except BaseException:
        end_process_group(process)
        raise
    result = CommandResult(
        command=words,
        returncode=process.returncode,
        stdout=stdout.decode(errors="replace"),
        stderr=stderr.decode(errors="replace"),
    )
    if check and result.returncode != 0:
        raise CommandError(f"{shlex.join(words)}: exit status {result.returncode}\n{result.tail()}")
    return result


def start_command(
    command: Sequence[str],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: int = subprocess.DEVNULL,
    stdout: int | None = None,
    stderr: int | None = None,
) -> subprocess.Popen[bytes]:
    """Start ``command`` in a process group of its own, by default without standard input.

    Raises CommandError if it cannot.
    """
    try:
        return subprocess.Popen(
            command,
            cwd=cwd,
            env=None if env is None else dict(env),
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )
    except FileNotFoundError as err:
        if cwd is not None and not cwd.is_dir():
            raise CommandError(f"{cwd}: the folder to run {command[0]} in does not exist") from None
        hint = f"install {command[0]} or put it on the PATH"
        raise CommandError(f"{err.filename}: the program was not found", hint=hint) from None
    except OSError as err:
        raise CommandError(f"{command[0]}: cannot be started: {err.strerror}") from None


def end_process_group(process: subprocess.Popen[bytes], *, grace_s: float = _TERMINATE_GRACE_S) -> None:
    """Terminate the group that start_command made, and kill what is left of it after ``grace_s``."""
    _signal_group(process, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=grace_s)
    _signal_group(process, signal.SIGKILL)
    process.wait()
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)
