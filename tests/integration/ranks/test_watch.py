# SPDX-License-Identifier: BSD-3-Clause
"""``launch --watch`` of jobs of four ranks over gloo, SwitchML and MPI, each with one rank that goes astray."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from channel_tools.system.settings import Settings
from tests.integration.conftest import ROOT, build_into_output
from tests.support.command_line import run_tool
from tests.support.stacks import install

pytestmark = [pytest.mark.integration, pytest.mark.slow]

SECONDS = 6
JOB = """\
import os, signal, sys, threading, torch, torch.distributed as dist
dist.init_process_group(sys.argv[1])
rank, tensor = dist.get_rank(), torch.ones(1000)
for _ in range(3):
    dist.all_reduce(tensor)
def collect():
    dist.all_reduce(tensor)
def load_batch():
    if sys.argv[2] == "sleeps":
        threading.Event().wait()
    if sys.argv[2] == "is_stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    if sys.argv[2] == "is_elsewhere":
        dist.broadcast(torch.ones(7), 0)
    if sys.argv[2] == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
if rank == 2:
    load_batch()
collect()
"""
WAIT = "ranks 0, 1 and 3 wait in all_reduce number 4 of default_pg, 1000 of Float, for rank 2:"


@pytest.fixture(scope="module")
def switchml(own_settings: Settings, stack_channel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    prefix = tmp_path_factory.mktemp("switchml") / "env"
    return install(own_settings, stack_channel, prefix, ["pytorch-switchml", "libswitchml=*=udp*", "py-spy"])


@pytest.fixture(scope="module")
def mpi(own_settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Path:
    result = build_into_output("build", "--variant", "cray-mpich")
    assert result.returncode == 0, result.stderr
    prefix = tmp_path_factory.mktemp("mpi") / "env"
    return install(own_settings, own_settings.channel, prefix, ["pytorch-cray-mpich=*=plugin*", "mpich", "py-spy"])


def watched(prefix: Path, stack: str, folder: Path, *words: str, **variables: str) -> tuple[int, str, str]:
    """The exit code, what was said, and the report."""
    (folder / "job.py").write_text(JOB)
    options = ("--stack", stack, "--prefix", str(prefix), "--ranks", "4", "--watch", str(SECONDS), "--watch-end")
    result = run_tool("launch", "--root", str(ROOT), *options, "job.py", *words, cwd=folder, environ=variables)
    reports = [path.read_text() for path in folder.glob("channel_tools-watch-*/report-1.txt")]
    return result.returncode, result.stderr, "".join(reports)


def check(said: str, how: str, *, all_in_one: bool = True) -> None:
    """That the report names the rank and its place."""
    if how == "is_elsewhere" and all_in_one:
        assert "default_pg: the ranks do not make the same call, number 4:" in said
        assert "rank 2: broadcast of 7 of Float" in said
    else:
        assert WAIT in said
    state = r"stopped by a signal \(SIGSTOP\); " if how == "is_stopped" else ""
    assert re.search(rf"rank 2 on \S+, pid \d+: {state}at load_batch \(.*job.py:\d+\)", said), said


@pytest.mark.parametrize("how", ["sleeps", "is_stopped", "is_elsewhere"])
def test_over_gloo(switchml: Path, tmp_path: Path, how: str) -> None:
    code, said, report = watched(switchml, "udp", tmp_path, "gloo", how, SWITCHML_ENABLE="0")
    assert code == 10, said
    check(said, how)
    assert "by PyTorch's flight recorder" in report or "(PyTorch's flight recorder)" in report
    assert "c10d::Work::wait" in report  # py-spy's, of compiled code


@pytest.mark.parametrize("how", ["sleeps", "is_stopped", "is_elsewhere"])
def test_over_switchml_in_host_memory(switchml: Path, tmp_path: Path, how: str) -> None:
    code, said, report = watched(switchml, "udp", tmp_path, "gloo", how)
    assert code == 10, said
    check(said, how, all_in_one=False)  # the broadcast is gloo's, and counted there
    assert "(SwitchML): came to collective number 4" in report


@pytest.mark.parametrize("how", ["sleeps", "is_stopped", "is_elsewhere"])
def test_over_mpi(mpi: Path, tmp_path: Path, how: str) -> None:
    code, said, report = watched(mpi, "cray-mpich", tmp_path, "mpi", how)
    assert code == 10, said
    check(said, how)
    assert "(MPI): came to collective number 4" in report


@pytest.mark.parametrize("enable", ["0", "1"])
def test_a_rank_that_dies_ends_the_job_or_is_named(switchml: Path, tmp_path: Path, enable: str) -> None:
    code, said, _ = watched(switchml, "udp", tmp_path, "gloo", "dies", SWITCHML_ENABLE=enable)
    assert code == 137, said  # torchrun's: it has seen SIGKILL
