# SPDX-License-Identifier: BSD-3-Clause
"""``launch --watch`` of jobs of four ranks over gloo, SwitchML and MPI, each with ranks that go astray."""

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
import glob, os, signal, sys, threading, torch, torch.distributed as dist
dist.init_process_group(sys.argv[1])
rank, tensor = dist.get_rank(), torch.ones(1000)
def is_seen():
    return any("load_batch" in open(file).read() for file in glob.glob("channel_tools-watch-*/rank-2.json"))
def beats():
    while not threading.Event().wait(0.5):
        os.write(1, b".")
for _ in range(3):
    dist.all_reduce(tensor)
def collect():
    dist.all_reduce(tensor)
def load_batch():
    if sys.argv[2].startswith("sleeps"):
        threading.Event().wait()
    if sys.argv[2] == "is_stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    if sys.argv[2] == "is_elsewhere":
        dist.broadcast(torch.ones(7), 0)
    if sys.argv[2] == "dies":
        while not is_seen():
            threading.Event().wait(0.1)
        os.kill(os.getpid(), signal.SIGKILL)
    while sys.argv[2] == "goes_round" and not glob.glob("channel_tools-watch-*/report-1.txt"):
        sorted(range(1000), key=str)
if sys.argv[2] == "sleeps_beside_threads_that_write" and rank != 2:
    threading.Thread(target=beats, daemon=True).start()
if sys.argv[2] == "crosswise":
    first, second = dist.new_group([0, 1]), dist.new_group([0, 1])
    if rank < 2:
        dist.all_reduce(tensor, group=(first, second)[rank])
if sys.argv[2] == "messages" and rank < 2:
    dist.recv(tensor, src=1 - rank)
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


# the second where the others' scripts have failed before that is seen, since the connection to it is closed
DIED = (
    r"rank 2( on \S+, pid \d+: its process was killed, or ended without Python's ending it|: ended with the job)"
    r"; last seen at load_batch \("
)


@pytest.mark.parametrize("enable", ["0", "1"], ids=["gloo", "switchml"])
def test_a_rank_that_dies_is_named_with_its_place(switchml: Path, tmp_path: Path, enable: str) -> None:
    code, said, _ = watched(switchml, "udp", tmp_path, "gloo", "dies", SWITCHML_ENABLE=enable)
    assert code == 137, said  # torchrun's: it has seen SIGKILL
    assert re.search(DIED, said), said


def test_a_rank_that_dies_under_mpiexec_is_named_with_its_place(mpi: Path, tmp_path: Path) -> None:
    code, said, _ = watched(mpi, "cray-mpich", tmp_path, "mpi", "dies")
    assert code not in {0, 10}, said
    assert re.search(DIED, said), said


def test_what_other_threads_of_waiting_ranks_write_hides_nothing(switchml: Path, tmp_path: Path) -> None:
    how = "sleeps_beside_threads_that_write"
    code, said, _ = watched(switchml, "udp", tmp_path, "gloo", how, SWITCHML_ENABLE="0")
    assert code == 10, said
    check(said, how)


def test_groups_that_wait_crosswise_are_told_apart_by_ranks_that_are_in_neither(switchml: Path, tmp_path: Path) -> None:
    code, said, _ = watched(switchml, "udp", tmp_path, "gloo", "crosswise", SWITCHML_ENABLE="0")
    assert code == 10, said
    for rank in (0, 1):
        what = f"all_reduce number 1 of group {rank + 1} of ranks 0 and 1, 1000 of Float"
        assert f"rank {rank} waits in {what}, for rank {1 - rank}:" in said
    assert "ranks 2 and 3 wait in all_reduce number 4 of default_pg, 1000 of Float, for ranks 0 and 1:" in said


def test_ranks_that_wait_for_each_others_messages_are_named(switchml: Path, tmp_path: Path) -> None:
    code, said, _ = watched(switchml, "udp", tmp_path, "gloo", "messages", SWITCHML_ENABLE="0")
    assert code == 10, said
    assert "ranks 2 and 3 wait in all_reduce number 4 of default_pg, 1000 of Float, for ranks 0 and 1:" in said
    for rank in (0, 1):
        assert re.search(rf"^  rank {rank}: at <module> \(.*job.py:\d+\), in recv$", said, re.MULTILINE), said


def test_a_rank_that_goes_round_in_circles_is_named_and_ends_no_job(switchml: Path, tmp_path: Path) -> None:
    """It may be at work: what it does is stopped here once the report is there."""
    code, said, _ = watched(switchml, "udp", tmp_path, "gloo", "goes_round", SWITCHML_ENABLE="0")
    assert code == 0, said
    alone = r"^no collective has begun for \d+ s: the others stand still, and rank 2 has only got from place to place"
    assert re.search(alone, said, re.MULTILINE), said
    assert WAIT in said
    assert re.search(r"^  rank 2: at load_batch \(.*job.py:\d+\)", said, re.MULTILINE), said
