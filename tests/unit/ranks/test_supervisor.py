# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from channel_tools.ranks import supervisor
from tests.support.processes import TEST_TIMEOUT_S, beyond_kill

# starts a process, says both ids, and ends when it is told to
_COMMAND = """
import os, signal, subprocess, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
left = subprocess.Popen(["sleep", "1000"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
print(os.getpid(), left.pid, flush=True)
signal.sigwait([signal.SIGUSR1])
sys.exit(7)
"""


def test_what_even_sigkill_does_not_end_is_named_and_left(tmp_path: Path) -> None:
    document = json.dumps(
        {"folder": str(tmp_path), "variables": {}, "words": [sys.executable, "-c", _COMMAND], "stdin": None}
    )
    text = (
        Path(supervisor.__file__).read_text(encoding="utf-8").replace(f"KILL_S = {supervisor.KILL_S}", "KILL_S = 0.5")
    )
    words = [sys.executable, "-I", "-S", "-c", text, document]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        command, left = map(int, process.stdout.readline().split())
        with beyond_kill(left):
            os.kill(command, signal.SIGUSR1)
            assert process.wait(timeout=TEST_TIMEOUT_S) == 7
            said = process.stderr.read()
    assert f": process {left} (sleep, state " in said
    assert "did not end within 0.5 s of SIGKILL and is left behind" in said
