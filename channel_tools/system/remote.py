# SPDX-License-Identifier: BSD-3-Clause
"""Runs commands on other hosts over ssh, on many at once."""

from __future__ import annotations

import re
import subprocess
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from channel_tools.system.processes import CommandTimeoutError, end_process_group, output_of, start_command

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_SSH_CONNECT_S = 10
_SSH_LIMIT_S = 30.0
_DRAIN_S = 1.0
_SRUNS_END = re.compile(r"srun: (error: .*: tasks? .*: Exited with exit code |Terminating )")


def ssh_command(host: str) -> tuple[str, ...]:
    """The ssh command to run another command on a host; it never asks for a password."""
    return ("ssh", "-o", "BatchMode=yes", "-o", f"ConnectTimeout={_SSH_CONNECT_S}", host, "--")


@dataclass(frozen=True, kw_only=True, slots=True)
class HostOutput:
    """What a command printed on a host, and when that was read; ``error`` is the last line if it failed."""

    output: str
    error: str
    read_at: float


def run_on_hosts(
    commands: Mapping[str, Sequence[str]], *, env: Mapping[str, str], limit_s: float = _SSH_LIMIT_S
) -> dict[str, HostOutput]:
    """Run a command for each host, by its name, in parallel; a command that exceeds ``limit_s`` is ended."""
    pipe = subprocess.PIPE
    started = {host: start_command(words, env=env, stdout=pipe, stderr=pipe) for host, words in commands.items()}
    until = time.monotonic() + limit_s
    outputs = {}
    try:
        for host, process in started.items():
            try:
                left_s = max(until - time.monotonic(), _DRAIN_S)
                printed, errors = output_of(process, commands[host], timeout_s=left_s)
            except CommandTimeoutError:
                outputs[host] = HostOutput(output="", error=f"no response within {limit_s:g} s", read_at=time.time())
                continue
            error = _last_words(errors, process.returncode) if process.returncode else ""
            outputs[host] = HostOutput(output=printed.decode(errors="replace"), error=error, read_at=time.time())
    finally:
        end_process_group(*started.values())
    return outputs


def _last_words(stderr: bytes, status: int) -> str:
    """The last line of a command that failed; what srun adds about its end is used only if there is nothing else."""
    lines = stderr.decode(errors="replace").strip().splitlines()
    own = [line for line in lines if not _SRUNS_END.match(line)]
    return [f"exit status {status}", *lines[-1:], *own[-1:]][-1]
