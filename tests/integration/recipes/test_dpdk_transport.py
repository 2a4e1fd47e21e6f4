# SPDX-License-Identifier: BSD-3-Clause
"""libswitchml's dpdk transport against the software switch: two workers over DPDK's af_packet driver and veth pairs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from channel_tools.environments import activated_environment
from channel_tools.system.processes import run_command
from channel_tools.system.settings import Settings
from tests.support.processes import TEST_TIMEOUT_S
from tests.support.stacks import build_from_upstream, install_stack
from tests.support.switch import SWITCH_ADDRESS, Cluster, cluster_of, dropping, worker_address, worker_interface

pytestmark = [pytest.mark.integration, pytest.mark.slow]

STACK = "dpdk"
PACKAGES = ["libswitchml", "switchml-switch", "pytorch-switchml"]
TIMED_OUT = 6  # SWITCHML_ETIMEDOUT
WORKER = Path(__file__).with_name("switchml_worker.py")
_REDUCES_IN_PYTORCH = """
import json, sys
import torch, torch.distributed as dist
dist.init_process_group("gloo")
report = {}
for dtype in (torch.float32, torch.int32):
    values = torch.arange(1, int(sys.argv[1]) + 1, dtype=dtype)
    sums = values * (dist.get_rank() + 1)
    dist.all_reduce(sums)
    report[str(dtype)] = torch.allclose(sums, values * 3, rtol=1e-4, atol=0)
print(json.dumps({"right": report, "stats": sys.modules["torch_switchml"].stats()}))
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def prefix(own_settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Path:
    for package in PACKAGES:
        build_from_upstream(own_settings, STACK, package)
    return install_stack(own_settings, own_settings.channel, tmp_path_factory.mktemp(STACK) / "env", STACK)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with cluster_of(2) as cluster:
        yield cluster


@contextmanager
def running_switch(prefix: Path, cluster: Cluster, *options: str) -> Iterator[dict[str, Any]]:
    """Fills the dictionary with the switch's counters when the block has ended."""
    command = [*cluster.inside(cluster.switch), str(prefix / "bin" / "switchml-switch"), "--address", SWITCH_ADDRESS]
    stats: dict[str, Any] = {}
    with subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["event"] == "ready"
        try:
            yield stats
        finally:
            process.terminate()
            stopped, _ = process.communicate(timeout=TEST_TIMEOUT_S)
    stats.update(json.loads(stopped)["stats"])


def environment_of(rank: int, **settings: str) -> dict[str, str]:
    processors = sorted(os.sched_getaffinity(0))
    return {
        **os.environ,
        "SWITCHML_CONTROLLER": SWITCH_ADDRESS,
        "SWITCHML_DPDK_CORES": str(processors[rank % len(processors)]),
        "SWITCHML_DPDK_EAL_OPTIONS": f"--no-huge --no-pci -m 256 --vdev=net_af_packet0,iface={worker_interface(rank)}",
        **settings,
    }


def run_workers(cluster: Cluster, commands: list[list[str]], **settings: str) -> list[str]:
    """What each worker printed; all must succeed."""
    results = try_workers(cluster, commands, **settings)
    for result in results:
        assert result.returncode == 0, result.stderr
    return [result.stdout for result in results]


def try_workers(cluster: Cluster, commands: list[list[str]], **settings: str) -> list[subprocess.CompletedProcess[str]]:
    """How each worker ended."""
    processes = [
        subprocess.Popen(
            [*cluster.inside(cluster.workers[rank]), *command],
            env=environment_of(rank, **settings),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank, command in enumerate(commands)
    ]
    outputs = [process.communicate(timeout=TEST_TIMEOUT_S) for process in processes]
    return [
        subprocess.CompletedProcess(process.args, process.returncode, *output)
        for process, output in zip(processes, outputs, strict=True)
    ]


def bench(prefix: Path, rank: int, *options: str) -> list[str]:
    return [str(prefix / "bin" / "switchml-bench"), "--rank", str(rank), "--workers", "2", *options]


def reports_of(prefix: Path, cluster: Cluster, *options: str, **settings: str) -> list[dict[str, Any]]:
    outputs = run_workers(cluster, [bench(prefix, rank, *options) for rank in range(2)], **settings)
    return [json.loads(output) for output in outputs]


@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_two_workers_reduce_through_the_switch(prefix: Path, cluster: Cluster, dtype: str) -> None:
    numel, iterations, window = 200_000, 3, 256
    packets = -(-numel // 256)
    with running_switch(prefix, cluster) as stats:
        options = ("--numel", str(numel), "--iterations", str(iterations), "--dtype", dtype)
        reports = reports_of(prefix, cluster, *options)
    units = iterations * (packets + (window if dtype == "float32" else 0))
    for report in reports:
        assert report["transport"] == "dpdk"
        assert report["wrong"] == 0
        assert report["elements_reduced"] == iterations * numel
        assert report["packets_sent"] == report["packets_received"] == units
    assert stats["slots_completed"] == units
    assert stats["packets_dropped"] == {"malformed": 0, "unknown_worker": 0, "bad_slot": 0, "stale": 0, "injected": 0}


def test_smaller_packets_and_windows_work(prefix: Path, cluster: Cluster) -> None:
    settings = {"SWITCHML_PACKET_NUMEL": "64", "SWITCHML_MAX_OUTSTANDING_PACKETS": "16"}
    with running_switch(prefix, cluster):
        reports = reports_of(prefix, cluster, "--numel", "20001", "--iterations", "3", "--in-place", **settings)
    assert [report["wrong"] for report in reports] == [0, 0]


def test_a_stock_pytorch_reduces_over_it(prefix: Path, cluster: Cluster) -> None:
    """With the torch-switchml that was built over ``udp``: the transport changes, and nothing of PyTorch."""
    numel, window = 300_000, 256
    python = [str(prefix / "bin" / "python"), "-c", _REDUCES_IN_PYTORCH, str(numel)]
    commands = [["env", f"RANK={rank}", f"GLOO_SOCKET_IFNAME={worker_interface(rank)}", *python] for rank in range(2)]
    settings = {"WORLD_SIZE": "2", "MASTER_ADDR": worker_address(0), "MASTER_PORT": "29500", "SWITCHML_REQUIRE": "1"}
    with running_switch(prefix, cluster) as stats:
        reports = [json.loads(output) for output in run_workers(cluster, commands, **settings)]
    packets = -(-numel // 256)
    for report in reports:
        assert report["right"] == {"torch.float32": True, "torch.int32": True}
        assert report["stats"]["library"]["transport"] == "dpdk"
        jobs = {dtype: sums["jobs"] for dtype, sums in report["stats"]["delegated"].items()}
        assert jobs == {"float32": 1, "int32": 1}
    assert stats["slots_completed"] == 2 * packets + window


# Around the window of 256 packets: fewer, not a divisor of it, as many, more.
@pytest.mark.parametrize("numel", [1000, 51_200, 65_536, 300_000])
@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_what_is_lost_is_sent_again(prefix: Path, cluster: Cluster, dtype: str, numel: int) -> None:
    with running_switch(prefix, cluster, "--drop-rate", "0.03", "--drop-result-rate", "0.03") as stats:
        options = ("--numel", str(numel), "--iterations", "10", "--dtype", dtype)
        reports = reports_of(prefix, cluster, *options)
    assert [report["wrong"] for report in reports] == [0, 0]
    if numel > 1000:
        assert stats["results_dropped_injected"] != 0
        assert sum(report["packets_retransmitted"] for report in reports) > 0


def test_tokens_and_certificates_reach_the_controller(prefix: Path, cluster: Cluster, tmp_path: Path) -> None:
    certificate, key, token, session_token = (tmp_path / name for name in ("cert.pem", "key.pem", "token", "session"))
    token.write_text("a-token-of-the-switch-0123456789\n")
    session_token.write_text("a-token-of-the-session-0123456789\n")
    request = ["req", "-x509", "-nodes", "-newkey", "rsa:2048", "-days", "1", "-subj", "/CN=switch"]
    request += ["-addext", f"subjectAltName=IP:{SWITCH_ADDRESS}", "-keyout", str(key), "-out", str(certificate)]
    run_command([prefix / "bin" / "openssl", *request], env=activated_environment(prefix, environ=os.environ))
    options = ("--token-file", str(token), "--tls-cert", str(certificate), "--tls-key", str(key))
    commands = [bench(prefix, rank, "--numel", "1000", "--iterations", "1") for rank in range(2)]
    settings = {"SWITCHML_TLS_CA": str(certificate), "SWITCHML_SESSION_TOKEN_FILE": str(session_token)}
    with running_switch(prefix, cluster, *options) as stats:
        for result in try_workers(cluster, commands, **settings):
            assert "SWITCHML_TOKEN_FILE" in result.stderr
            assert result.returncode != 0
        outputs = run_workers(cluster, commands, SWITCHML_TOKEN_FILE=str(token), **settings)
    assert [json.loads(output)["wrong"] for output in outputs] == [0, 0]
    assert stats["sessions_opened"] == 1


def test_workers_meet_those_of_their_own_job(prefix: Path, cluster: Cluster) -> None:
    limits = {"SWITCHML_CONNECT_TIMEOUT_MS": "500", "SWITCHML_JOB_TIMEOUT_MS": "500"}
    commands = [["env", f"SWITCHML_JOB_NAME=job-{rank}", *bench(prefix, rank)] for rank in range(2)]
    with running_switch(prefix, cluster) as stats:
        for result in try_workers(cluster, commands, **limits):
            assert "not all of 2 workers opened the session" in result.stderr
    assert stats["sessions_opened"] == 0


def test_a_process_has_one_session_after_another(prefix: Path, cluster: Cluster) -> None:
    plan = json.dumps([[1000, 70_000], [3, 1, 9999], [5000]])
    library = str(prefix / "lib" / "libswitchml.so.1")
    commands = [[sys.executable, str(WORKER), library, str(rank), "2", plan] for rank in range(2)]
    with running_switch(prefix, cluster) as stats:
        outputs = run_workers(cluster, commands)
    for output in outputs:
        assert [session["status"] for session in json.loads(output)] == [0, 0, 0], output
        assert [session["right"] for session in json.loads(output)] == [[True] * 2, [True] * 3, [True]]
    assert stats["sessions_opened"] == 3


def test_a_worker_that_stops_is_noticed(prefix: Path, cluster: Cluster) -> None:
    library = str(prefix / "lib" / "libswitchml.so.1")
    with (
        running_switch(prefix, cluster),
        subprocess.Popen(  # opens the session and goes no further
            [*cluster.inside(cluster.workers[1]), sys.executable, str(WORKER), library, "1", "2", "[[-1]]"],
            env=environment_of(1),
            stdin=subprocess.PIPE,
        ) as idle,
    ):
        worker = [sys.executable, str(WORKER), library, "0", "2", "[[1000]]"]
        output = run_workers(cluster, [worker], SWITCHML_JOB_TIMEOUT_MS="1500")[0]
        idle.communicate(timeout=TEST_TIMEOUT_S)
    session = json.loads(output)[0]
    assert session["status"] == TIMED_OUT
    assert "SWITCHML_JOB_TIMEOUT_MS" in session["message"]


def test_packets_that_do_not_pass_are_named_before_the_first_job(prefix: Path, cluster: Cluster) -> None:
    """UDP is dropped on its way to the switch and the controller is not: a job would wait for its whole time limit."""
    commands = [bench(prefix, rank, "--numel", "1000") for rank in range(2)]
    with running_switch(prefix, cluster) as stats, dropping(cluster.switch, "meta l4proto udp"):
        started = time.monotonic()
        results = try_workers(cluster, commands, SWITCHML_JOB_TIMEOUT_MS="600000", SWITCHML_CONNECT_TIMEOUT_MS="3000")
        seconds = time.monotonic() - started
    for rank, result in enumerate(results):
        assert result.returncode == 1, result.stderr
        assert f"no packets (UDP) pass between {worker_address(rank)}:4000 and the switch" in result.stderr
        assert "while its controller answers (TCP); check the firewalls" in result.stderr
    assert seconds < TEST_TIMEOUT_S
    assert stats["slots_completed"] == 0


_ANSWERS_PROBES = """
import socket, struct, sys
probe = bytes([0x23]) + bytes(9 + 4 * 256)
datagram = struct.pack("!HHHH", 48864, 4000, 8 + len(probe), 0) + probe
with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_UDP) as raw:
    print("ready", flush=True)
    while True:
        for worker in sys.argv[1:]:
            raw.sendto(datagram, (worker, 0))
"""
"""Sends what the switch sends back for a probe from the switch's port to that of each worker, again and again."""


def test_a_late_answer_to_a_probe_is_no_result(prefix: Path, cluster: Cluster) -> None:
    """A probe is sent again while none is answered; a late answer would be all zeros for the first job's first packet.

    Results that are lost keep that packet waiting until such an answer has come.
    """
    workers = [worker_address(rank) for rank in range(2)]
    command = [*cluster.inside(cluster.switch), sys.executable, "-c", _ANSWERS_PROBES, *workers]
    with (
        running_switch(prefix, cluster, "--drop-result-rate", "0.9"),
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as answering,
    ):
        try:
            assert answering.stdout is not None
            assert answering.stdout.readline() == "ready\n"
            reports = reports_of(prefix, cluster, "--numel", "1000", "--iterations", "1", "--dtype", "int32")
        finally:
            answering.kill()
    assert [report["wrong"] for report in reports] == [0, 0]


_NO_PORT = "--no-huge --no-pci -m 64"
_AF_PACKET = f"--no-huge --no-pci -m 256 --vdev=net_af_packet0,iface={worker_interface(0)}"


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        pytest.param({"EAL_OPTIONS": _NO_PORT}, "DPDK found no port; bind a network card", id="no-port"),
        pytest.param(
            {"EAL_OPTIONS": f"{_NO_PORT} --vdev=net_af_packet0,iface=absent0"},
            "DPDK could open none of the devices in SWITCHML_DPDK_EAL_OPTIONS",
            id="no-such-interface",
        ),
        pytest.param({"PORT": "3"}, "DPDK has no such port (SWITCHML_DPDK_PORT, counted from 0)", id="other-port"),
        pytest.param({"EAL_OPTIONS": f"{_NO_PORT} --bogus"}, "check the options", id="unknown-option"),
        pytest.param(
            {"EAL_OPTIONS": f"{_NO_PORT.replace('64', '16')} --vdev=net_null0"},
            "raise -m in SWITCHML_DPDK_EAL_OPTIONS",
            id="too-little-memory",
        ),
        pytest.param({"CORES": "a"}, "SWITCHML_DPDK_CORES (backend.dpdk.cores)='a', expected", id="cores-no-number"),
        pytest.param({"CORES": "9999"}, "SWITCHML_DPDK_CORES (backend.dpdk.cores)='9999'", id="cores-beyond"),
        pytest.param({"CORES": "1,0"}, "SWITCHML_NUM_THREADS is 1", id="cores-too-many"),
    ],
)
def test_what_keeps_dpdk_from_starting_is_named(
    prefix: Path, cluster: Cluster, settings: dict[str, str], expected: str
) -> None:
    variables = {f"SWITCHML_DPDK_{name}": value for name, value in ({"EAL_OPTIONS": _AF_PACKET} | settings).items()}
    result = try_workers(cluster, [bench(prefix, 0)], **variables)[0]
    assert result.returncode == 1, result.stderr
    assert expected in result.stderr
    if "--bogus" not in settings.get("EAL_OPTIONS", ""):  # for which DPDK prints its list of options
        assert result.stdout == ""


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="each thread of DPDK takes a processor")
def test_two_threads_need_a_driver_that_serves_them(prefix: Path, cluster: Cluster) -> None:
    variables = {"SWITCHML_NUM_THREADS": "2", "SWITCHML_DPDK_CORES": ""}
    result = try_workers(cluster, [bench(prefix, 0)], **variables)[0]
    assert result.returncode == 1, result.stderr
    assert "set SWITCHML_NUM_THREADS to 1" in result.stderr
    assert result.stdout == ""


@pytest.mark.skipif(
    any(int(path.read_text()) for path in Path("/sys/kernel/mm/hugepages").glob("*/free_hugepages")),
    reason="this host has free huge pages",
)
def test_a_host_without_huge_pages_is_told_so(prefix: Path, cluster: Cluster) -> None:
    options = _AF_PACKET.replace("--no-huge ", "")
    result = try_workers(cluster, [bench(prefix, 0)], SWITCHML_DPDK_EAL_OPTIONS=options)[0]
    assert result.returncode == 1, result.stderr
    assert "no free huge pages" in result.stderr
    assert result.stdout == ""
