# SPDX-License-Identifier: BSD-3-Clause
"""SwitchML inside PyTorch 1.7.1: the session that the recipe adds, alone, over the software switch."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from channel_tools.environments import activated_environment
from channel_tools.system.processes import run_command
from channel_tools.system.settings import Settings
from tests.integration.conftest import ROOT
from tests.support.ports import free_port
from tests.support.processes import TEST_TIMEOUT_S
from tests.support.stacks import install
from tests.support.switch import running_switch
from tests.support.switchml_sources import by_the_link, compiling_environment

pytestmark = [pytest.mark.integration, pytest.mark.slow]

RECIPE = ROOT / "recipes" / "pytorch-switchml-patched"
TESTS = RECIPE / "src" / "tests"
TOOLCHAIN = ["gcc_linux-64", "gxx_linux-64", "sysroot_linux-64", "cmake", "ninja"]
JOBS = 40
REFUSED = "SwitchML was asked for but cannot be used: "
QUICK = {"SWITCHML_JOB_TIMEOUT_MS": "1000", "SWITCHML_CONNECT_TIMEOUT_MS": "1000"}


@pytest.fixture(scope="module")
def prefix(own_settings: Settings, stack_channel: Path) -> Iterator[Path]:
    """libswitchml, the switch and a compiler, installed from the channel."""
    specs = [*TOOLCHAIN, "libswitchml * udp*", "switchml-switch"]
    with compiling_environment(own_settings, stack_channel, "patched", specs) as prefix:
        yield prefix


@pytest.fixture(scope="module")
def ranks(prefix: Path) -> Path:
    """The program, compiled as c10d compiles the session: C++14, the header found by CMake in the prefix."""
    variables = activated_environment(prefix, environ=os.environ)
    build = prefix.parent / "build"
    run_command(
        ["cmake", "-G", "Ninja", "-S", by_the_link(prefix, TESTS), "-B", build, f"-DCMAKE_PREFIX_PATH={prefix}"],
        env=variables,
        timeout_s=TEST_TIMEOUT_S,
    )
    run_command(["cmake", "--build", build], env=variables, timeout_s=TEST_TIMEOUT_S)
    return build / "ranks"


def _run(
    ranks: Path, prefix: Path, scenario: str, settings: Mapping[str, str], *assignments: str, size: int = 2
) -> dict[int, list[str]]:
    """What each rank said."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("SWITCHML_")}
    variables |= {
        "SWITCHML_LIBRARY": str(prefix / "lib" / "libswitchml.so.1"),
        "SWITCHML_WORKER_PORT": str(free_port(socket.SOCK_DGRAM)),
        **settings,
    }
    result = run_command([ranks, str(size), scenario, *assignments], env=variables, timeout_s=TEST_TIMEOUT_S)
    said: dict[int, list[str]] = {rank: [] for rank in range(size)}
    for line in result.stdout.splitlines():
        rank, _, text = line.partition(" ")
        said[int(rank)].append(text)
    return said


@pytest.mark.parametrize("size", [2, 3])
def test_jobs_of_all_sizes_keep_their_order_and_the_counters_agree(
    ranks: Path, prefix: Path, tmp_path: Path, size: int
) -> None:
    with running_switch(prefix) as switch:
        settings = {
            "SWITCHML_CONTROLLER": switch.controller,
            "SWITCHML_STATS_FILE": str(tmp_path / "rank{rank}.json"),
        }
        said = _run(ranks, prefix, "sums", settings, size=size)
    assert all("is closed in this process" in lines[0] for lines in said.values())
    elements = sum(job * 97 for job in range(0, JOBS, 2)), sum(job * 97 for job in range(1, JOBS, 2))
    for rank in range(size):
        report = json.loads((tmp_path / f"rank{rank}.json").read_text())
        for dtype, numel in zip(("float32", "int32"), elements, strict=True):
            assert report["delegated"][dtype] == {"jobs": JOBS // 2, "elements": numel, "bytes": 4 * numel}
        assert report["fallbacks"]["reduce_op"] == 1
        assert sum(report["fallbacks"].values()) == 1
        assert (report["rank"], report["world_size"], report["active"]) == (rank, size, True)
        assert (report["failed_jobs"], report["copied_jobs"], report["failure"]) == (0, 1, None)
        assert report["library"]["transport"] == "udp"
        assert report["library"]["path"] == str(prefix / "lib" / "libswitchml.so.1")
        assert report["transport"]["elements_reduced"] == sum(elements)
        assert report["transport"]["receive_buffer_granted"] > 0
    assert switch.stats["sessions_opened"] == 1
    assert switch.stats["elements_aggregated"] >= sum(elements)


@pytest.mark.parametrize(
    ("settings", "assignments", "reason"),
    [
        (
            {},
            ["1:SWITCHML_LIBRARY=/nowhere/libswitchml.so.1"],
            (
                "rank 1: cannot load the SwitchML library /nowhere/libswitchml.so.1: /nowhere/libswitchml.so.1: "
                "cannot open shared object file: No such file or directory"
            ),
        ),
        (
            {},
            ["1:SWITCHML_PACKET_NUMEL=64"],
            "SWITCHML_PACKET_NUMEL must be the same on all ranks, but is '256' on rank 0, '64' on rank 1",
        ),
        (
            {"SWITCHML_ENABLE": "maybe"},
            ["0:SWITCHML_ENABLE=1", "0:SWITCHML_JOB_TIMEOUT_MS=1e3"],
            (
                "rank 0: the configuration is missing, malformed or contradictory: SWITCHML_JOB_TIMEOUT_MS='1e3', "
                "expected a whole number from 1 to 86400000; rank 1: SWITCHML_ENABLE='maybe': expected 1 or 0; "
                "correct it, or unset it for the default"
            ),
        ),
    ],
    ids=["a library that is not there", "settings that differ", "settings that are none"],
)
def test_what_one_rank_cannot_do_all_ranks_refuse(
    ranks: Path, prefix: Path, settings: dict[str, str], assignments: list[str], reason: str
) -> None:
    with running_switch(prefix) as switch:
        settings = {"SWITCHML_CONTROLLER": switch.controller, **settings}
        said = _run(ranks, prefix, "opens", settings, *assignments)
    assert said == {0: [REFUSED + reason], 1: [REFUSED + reason]}
    assert switch.stats["sessions_opened"] == 0


def test_a_controller_that_does_not_answer_is_named(ranks: Path, prefix: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and never listens
        controller = f"127.0.0.1:{taken.getsockname()[1]}"
        said = _run(ranks, prefix, "opens", {"SWITCHML_CONTROLLER": controller, **QUICK})
    for lines in said.values():
        assert len(lines) == 1
        assert lines[0].startswith(f"{REFUSED}ranks 0, 1: cannot open the SwitchML session: ")
        assert controller in lines[0]


def test_a_rank_that_does_not_take_part_is_named(ranks: Path, prefix: Path) -> None:
    with running_switch(prefix) as switch:
        said = _run(ranks, prefix, "absent", {"SWITCHML_CONTROLLER": switch.controller, **QUICK})
    reason = (
        "rank 1 did not report within 7 s: is SwitchML installed there, and SWITCHML_CONTROLLER set, and has the rank "
        "ended an earlier group on this store?"
    )
    assert said == {0: [REFUSED + reason], 1: []}


def test_a_rank_that_dies_fails_the_others_jobs_from_then_on(ranks: Path, prefix: Path) -> None:
    with running_switch(prefix) as switch:
        settings = {"SWITCHML_CONTROLLER": switch.controller, "SWITCHML_JOB_TIMEOUT_MS": "3000"}
        said = _run(ranks, prefix, "dies", settings)
    assert said[1] == ["reduced"]
    first, second, third = said[0]
    assert first == "reduced"
    assert second.startswith("SwitchML allreduce of 1000 float32 elements failed: ")
    assert third.startswith("SwitchML: the session of the process group failed before (SwitchML allreduce of")


def test_jobs_are_under_way_together(ranks: Path, prefix: Path) -> None:
    with running_switch(prefix) as switch:
        said = _run(ranks, prefix, "overlaps", {"SWITCHML_CONTROLLER": switch.controller})
    assert said == {0: ["all under way"], 1: []}


def test_two_jobs_share_a_switch(ranks: Path, prefix: Path) -> None:
    """They open their sessions at the same time: each meets the ranks of its own alone."""
    with running_switch(prefix) as switch, ThreadPoolExecutor(2) as pool:
        settings = {"SWITCHML_CONTROLLER": switch.controller}
        jobs = [pool.submit(_run, ranks, prefix, "sums", settings, size=size) for size in (2, 3)]
        assert [len(job.result()) for job in jobs] == [2, 3]
    assert switch.stats["sessions_opened"] == 2


def test_a_process_that_ends_takes_its_jobs_and_session_with_it(ranks: Path, prefix: Path, tmp_path: Path) -> None:
    """The limit of a job is the group's own, a minute: what is under way is aborted, not waited for."""
    with running_switch(prefix) as switch:
        settings = {
            "SWITCHML_CONTROLLER": switch.controller,
            "SWITCHML_STATS_FILE": str(tmp_path / "rank{rank}.json"),
        }
        said = _run(ranks, prefix, "leaves", settings)
    assert said == {0: [], 1: ["rank 0 has ended"]}
    reports = [json.loads((tmp_path / f"rank{rank}.json").read_text()) for rank in range(2)]
    assert [report["failed_jobs"] for report in reports] == [1, 0]
    assert "the job was aborted" in reports[0]["failure"]
    assert reports[1]["failure"] is None


def test_only_a_process_that_asks_uses_switchml(ranks: Path, prefix: Path) -> None:
    assignments = ["0:SWITCHML_ENABLE=0", "1:SWITCHML_ENABLE=maybe", "2:SWITCHML_CONTROLLER= "]
    said = _run(ranks, prefix, "asks", {"SWITCHML_CONTROLLER": "switch.example"}, *assignments, size=4)
    assert said == {0: ["not requested"], 1: ["requested"], 2: ["not requested"], 3: ["requested"]}


def test_the_recipes_own_test_tells_what_the_switch_carried(
    own_settings: Settings, stack_channel: Path, tmp_path: Path
) -> None:
    """Where no PyTorch 1.7.1 is: with the plugin, which carries the same and reports it in the same words."""
    specs = ["pytorch-switchml=*=plugin*", "libswitchml=*=udp*", "switchml-switch"]
    prefix = install(own_settings, stack_channel, tmp_path / "env", specs)
    variables = {**activated_environment(prefix, environ=os.environ), "EXPECTED_CUDA": "None"}
    # as in the patched PyTorch, each rank is a worker
    variables["SWITCHML_HOST_REDUCTION"] = "off"
    command: list[str | Path] = [prefix / "bin" / "python", RECIPE / "tests" / "delegated.py"]
    told = json.loads(run_command(command, env=variables, timeout_s=TEST_TIMEOUT_S).stdout)
    assert told["switch"]["sessions_opened"] == 1
