# SPDX-License-Identifier: BSD-3-Clause
"""Ranks of one host as one worker: the sums and ends of the C++ class alone, then under PyTorch beside other hosts."""

import re
import subprocess
from pathlib import Path

import pytest
from compiling import compile_once
from ranks import Launcher, free_port, on_hosts

TESTS = Path(__file__).resolve().parent
SOURCES = TESTS.parent / "csrc"
PROGRAM = TESTS / "host" / "test_host_reduction.cpp"
COMPILED_WITH_IT = (
    "counters.cpp",
    "host_board.cpp",
    "host_memory.cpp",
    "host_plan.cpp",
    "host_reduction.cpp",
    "host_sum.cpp",
)
LIMIT_S = 60

SHARED = {"SWITCHML_HOST_REDUCTION": "on"}
QUICK = {"SWITCHML_JOB_TIMEOUT_MS": "5000"}


@pytest.fixture(scope="module")
def program(request: pytest.FixtureRequest) -> Path:
    """The class with ranks that are processes and a wire that ends in the leader; needs no PyTorch."""
    sources = [SOURCES / name for name in COMPILED_WITH_IT]
    return compile_once(request, "test_host_reduction", [*sources, PROGRAM], f"-I{SOURCES}")


@pytest.mark.parametrize("name", re.findall(r'^\s+\{"(\w+)",', PROGRAM.read_text(), flags=re.MULTILINE))
def test_host_reduction(program: Path, name: str) -> None:
    result = subprocess.run([program, name], check=False, capture_output=True, text=True, timeout=LIMIT_S)
    assert result.returncode == 0, result.stderr


def test_rank_that_dies_fails_its_host_and_the_others(short_lease_launcher: Launcher) -> None:
    environment = {"SCENARIO_SIGNAL": "SIGKILL"}
    results = short_lease_launcher.run(
        "dying_rank", ranks=4, environment=environment, rank_environment=on_hosts("aabb")
    )
    assert results[3].code < 0
    for result in results[:3]:
        kind, _, seconds = result.value["error"]
        assert kind == "DistBackendError"
        assert seconds < 5
        assert "rank 3: its process ended" in result.value["error"][1]


def test_ranks_of_a_host_that_differ_fail_all_hosts(launcher: Launcher) -> None:
    results = launcher.run("other_numel", ranks=3, environment=QUICK, rank_environment=on_hosts("aab"))
    errors = [result.value["error"][1] for result in results]
    for error in errors[:2]:
        assert "rank 0: 1000 float32 elements as job 0; rank 1: 10000 float32 elements as job 0" in error
    if "timed out" not in errors[2]:  # the stand-in's workers do not compare their jobs
        assert "rank 0: 1048833 float32 elements" in errors[2]
        assert "1048833 elements stand for ranks of one host that differ" in errors[2]


def test_hosts_that_differ_fail_all_ranks(launcher: Launcher) -> None:
    for result in launcher.run("other_numel", ranks=3, environment=QUICK, rank_environment=on_hosts("abb")):
        assert result.value["error"][0] == "DistBackendError"


def test_ranks_that_cannot_share_memory_are_workers_of_their_own(launcher: Launcher) -> None:
    for result in launcher.run("no_memory_to_share", environment=SHARED):
        assert result.code == 0, result.stderr
        assert result.value["sum"] == 2
        assert result.value["stats"]["host"] == {"ranks": [result.rank], "workers": 2}
        assert result.value["stats"]["reduced_in_host"]["jobs"] == 0
        assert "each of ranks 0, 1 is a worker of its own: rank 0: cannot reserve" in result.stderr


def test_a_rank_without_a_thread_to_reduce_stops_all(launcher: Launcher) -> None:
    rank_environment = {1: {"SCENARIO_FAILURE": "threads"}}
    results = launcher.run("failure_of_one_rank", environment=SHARED, rank_environment=rank_environment)
    assert re.search(r"rank 1: .*the system gives no thread .*ulimit -u", results[0].value["text"])
    assert results[0].value["seconds"] < 5


def test_shared_memory_has_no_name_that_could_remain(launcher: Launcher) -> None:
    for result in launcher.run("memory_in_use", environment=SHARED):
        assert result.code == 0, result.stderr
        assert result.value == {"files": [], "mapped": True, "descriptors": []}


def test_ranks_of_one_host_alone_need_no_switch(launcher: Launcher) -> None:
    nobody_listens = {**SHARED, "SWITCHML_CONTROLLER": f"127.0.0.1:{free_port()}"}
    for result in launcher.run("one_allreduce", ranks=3, environment=nobody_listens):
        assert result.code == 0, result.stderr
        stats = result.value["stats"]
        assert result.value["sum"] == 3
        assert stats["host"] == {"ranks": [0, 1, 2], "workers": 0}
        assert stats["reduced_in_host"]["jobs"] == stats["delegated"]["float32"]["jobs"] == 1
        assert stats["transport"] is None
