# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

from channel_tools.system import remote
from channel_tools.system.processes import start_command
from channel_tools.system.remote import run_on_hosts

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest


def test_a_host_that_does_not_answer_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(words: Sequence[str], **options: object) -> subprocess.Popen[bytes]:
        process = start_command(words, **options)  # type: ignore[arg-type]
        if words[0] != "sleep":  # the others have answered when the time begins
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        return process

    monkeypatch.setattr(remote, "start_command", start)
    commands = {
        "stuck": ["sleep", "600"],
        "quick": ["echo", "here"],
        "failing": ["sh", "-c", "echo first >&2; echo 'no such user' >&2; exit 255"],
        "silent": ["false"],
    }
    answers = run_on_hosts(commands, env=os.environ, limit_s=0.5)
    assert {host: (answer.output, answer.error) for host, answer in answers.items()} == {
        "stuck": ("", "no response within 0.5 s"),
        "quick": ("here\n", ""),
        "failing": ("", "no such user"),
        "silent": ("", "exit status 1"),
    }
