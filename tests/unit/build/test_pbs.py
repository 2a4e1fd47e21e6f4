# SPDX-License-Identifier: BSD-3-Clause
"""What Snakemake's plugin cluster-generic runs for PBS, with clients that print what PBS's would."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from channel_tools.build.pbs import command_of, state_of
from channel_tools.system.schedulers import PBS_JOBS, scheduler_of


def client(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def submit(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [*command_of("submit"), *words]
    environ = {**os.environ, "PATH": f"{folder}:/usr/bin:/bin"}
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False)


def test_a_submitted_job_is_noted_by_its_name(tmp_path: Path) -> None:
    client(tmp_path, "qsub", 'echo "$@" > given; echo a notice of the site; echo 7.server')
    made = submit(tmp_path, "a-1.0", "-l", "walltime=5:00", "job.sh")
    assert (made.returncode, made.stdout) == (0, "7.server\n")
    assert (tmp_path / "given").read_text() == "-l walltime=5:00 job.sh\n"
    assert (tmp_path / PBS_JOBS / "a-1.0").read_text() == "7.server"


def test_why_a_job_was_rejected_is_printed_where_the_plugin_reads_it(tmp_path: Path) -> None:
    client(tmp_path, "qsub", "echo qsub: Job exceeds queue resource limits >&2; exit 188")
    made = submit(tmp_path, "a-1.0", "job.sh")
    assert made.returncode != 0
    assert "qsub: Job exceeds queue resource limits" in made.stdout
    assert not (tmp_path / PBS_JOBS / "a-1.0").exists()


@pytest.mark.parametrize(
    ("says", "state"),
    [
        ("echo 'Job Id: 7.server'; echo '    job_state = Q'", "running"),
        ("echo 'Job Id: 7.server'; echo '    job_state = R'", "running"),
        ("echo 'Job Id: 7.server'; echo '    job_state = F'; echo '    Exit_status = 1'", "success"),
        ("echo 'Job Id: 7.server'; echo '    job_state = F'; echo '    Exit_status = -29'", "failed"),
        ("echo qstat: Unknown Job Id 7.server >&2; exit 153", "success"),
        ("echo no answer >&2; exit 1", "running"),
    ],
    ids=["waits", "runs", "its script ended", "out of time", "forgotten", "no answer"],
)
def test_the_plugin_is_told_what_became_of_a_job(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], says: str, state: str
) -> None:
    client(tmp_path, "qstat", says)
    assert state_of(scheduler_of("pbs", {"PATH": f"{tmp_path}:/usr/bin:/bin"}), "7.server") == state
    assert ("no answer" in capsys.readouterr().err) is ("no answer" in says)
