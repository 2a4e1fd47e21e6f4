# SPDX-License-Identifier: BSD-3-Clause
"""The runner of recipes/accl-emulator, around programs that stand in for the emulator."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import TEST_TIMEOUT_S, assert_ended

SCRIPT = Path(__file__).parents[3] / "recipes/accl-emulator/src/accl_emulator.py"
READY = 'echo "ZMQ Context established for rank"\n'
# as a process that ends with its standard input open: nothing else wakes it
FOR_EVER = "exec tail -f /dev/null\n"


def installed(prefix: Path, emulator: str) -> Path:
    script = prefix / "libexec/accl-emulator/accl_emulator.py"
    script.parent.mkdir(parents=True)
    shutil.copy(SCRIPT, script)
    program = prefix / "bin/cclo_emu"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho $$ >> {prefix}/pids\n{emulator}")
    program.chmod(0o755)
    return script


def run(script: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(script), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=TEST_TIMEOUT_S)


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    # an orphan that nobody waits for stays as an entry
    return state not in {"Z", "X"}


def started(prefix: Path) -> list[int]:
    return [int(line) for line in (prefix / "pids").read_text().split()]


def test_the_command_runs_when_all_are_ready_and_its_exit_code_comes_back(tmp_path: Path) -> None:
    script = installed(tmp_path, READY + FOR_EVER)
    done = run(script, "--ranks", "2", "--", "sh", "-c", 'echo "$ACCL_EMULATOR_RANKS"; exit 7')
    assert (done.returncode, done.stdout) == (7, "2\n")
    assert "2 ranks ready" in done.stderr
    assert len(started(tmp_path)) == 2
    assert not any(is_running(pid) for pid in started(tmp_path))


def test_a_rank_that_ends_before_it_is_ready_is_an_error(tmp_path: Path) -> None:
    done = run(installed(tmp_path, "exit 3\n"), "--ranks", "1", "--", "true")
    assert done.returncode == 1
    assert "rank 0 ended with exit code 3" in done.stderr


def test_a_rank_that_ends_ends_the_command_and_what_it_started(tmp_path: Path) -> None:
    script = installed(tmp_path, f"{READY}while [ ! -e {tmp_path}/go ]; do :; done\nexit 5\n")
    inner = f"tail -f /dev/null & echo $! > {tmp_path}/child; touch {tmp_path}/go; wait"
    done = run(script, "--ranks", "1", "--", "sh", "-c", inner)
    assert done.returncode == 1
    assert "rank 0 ended with exit code 5" in done.stderr
    # nobody waits for it: it was killed when the command ended, and is gone soon after
    assert_ended([int((tmp_path / "child").read_text())])


def test_ranks_that_never_get_ready_are_named_and_ended(tmp_path: Path) -> None:
    done = run(installed(tmp_path, FOR_EVER), "--ranks", "2", "--timeout", "0.5", "--", "true")
    assert done.returncode == 1
    assert "not ready: ranks [0, 1]" in done.stderr
    assert not any(is_running(pid) for pid in started(tmp_path))


def test_taken_ports_are_passed_over(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = server.getsockname()[1]
        script = installed(tmp_path, READY + FOR_EVER)
        shown = run(script, "--ranks", "1", "--port", str(taken), "--", "sh", "-c", 'echo "$ACCL_EMULATOR_PORT"')
    assert shown.returncode == 0
    assert int(shown.stdout) > taken


def test_emulators_that_begin_at_once_have_ports_of_their_own(tmp_path: Path) -> None:
    """The stand-in takes no ports, as an emulator that has only just been started."""
    script = installed(tmp_path, READY + FOR_EVER)
    show = 'echo "$ACCL_EMULATOR_PORT"'
    inner = f"{show}; {sys.executable} {script} --ranks 2 -- sh -c '{show}'"
    shown = run(script, "--ranks", "2", "--", "sh", "-c", inner)
    assert shown.returncode == 0
    outer_port, inner_port = map(int, shown.stdout.split())
    assert abs(inner_port - outer_port) >= 8  # the lower one may have become free between the two


@pytest.mark.parametrize("arguments", [[], ["--ranks", "0"], ["--ranks", "x"], ["--ranks", "1", "--protocol", "ib"]])
def test_wrong_usage(tmp_path: Path, arguments: list[str]) -> None:
    assert run(installed(tmp_path, FOR_EVER), *arguments).returncode == 2


def test_a_missing_emulator_or_command_is_named(tmp_path: Path) -> None:
    script = installed(tmp_path, READY + FOR_EVER)
    assert "cannot start no-such-program" in run(script, "--ranks", "1", "--", "no-such-program").stderr
    (tmp_path / "bin/cclo_emu").unlink()
    assert "cclo_emu is missing" in run(script, "--ranks", "1").stderr
