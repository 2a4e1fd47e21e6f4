# SPDX-License-Identifier: BSD-3-Clause
"""Allreduces of a device's tensors: the slow device that is compiled here, and a GPU where there is one."""

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from ranks import Launcher, RankResult, on_hosts, values
from test_operations import check_names

TESTS = Path(__file__).resolve().parent
QUICK = {"SWITCHML_JOB_TIMEOUT_MS": "1500"}


@pytest.fixture(scope="session")
def slow_device(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The slow device's library: what SLOW_DEVICE_LIBRARY names, else compiled against the PyTorch installed."""
    if named := os.environ.get("SLOW_DEVICE_LIBRARY"):
        return Path(named)
    compiler = shutil.which(os.environ.get("CXX", "g++")) or shutil.which("c++")
    if compiler is None:
        pytest.skip("the slow device needs a C++ compiler")
    found = find_spec("torch")
    assert found is not None
    assert found.origin is not None
    torch = Path(found.origin).parent
    headers = [torch / "include", Path(sys.prefix, "include")]  # in a wheel, and where a distribution splits it
    library = tmp_path_factory.mktemp("device") / "libslow_device.so"
    flags = [
        "-std=c++20",
        "-O0",
        "-shared",
        "-fPIC",
        "-pthread",
        "-Wall",
        "-Wextra",
        "-Wno-unused-parameter",
        "-Werror",
    ]
    includes = [f"-isystem{path}" for path in headers if (path / "ATen").is_dir()]
    libraries = [f"-L{torch / 'lib'}", f"-L{Path(sys.prefix, 'lib')}", "-ltorch_cpu", "-lc10"]
    source = TESTS / "device" / "slow_device.cpp"
    subprocess.run([compiler, *flags, *includes, "-o", library, source, *libraries], check=True)
    return library


@pytest.fixture(scope="module", params=["slow", "cuda"])
def results(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[RankResult]:
    transport = request.getfixturevalue("transport")
    server = request.getfixturevalue("rank_server")
    launcher = Launcher(folder=tmp_path_factory.mktemp("devices"), environment=transport.environment, server=server)
    environment = {"SCENARIO_DEVICE": request.param}
    if request.param == "slow":
        environment["SCENARIO_DEVICE_LIBRARY"] = str(request.getfixturevalue("slow_device"))
    elif not launcher.run("cuda_available", ranks=1)[0].value:
        pytest.skip("torch.cuda.is_available() says no")
    return launcher.run("device_operations", environment=environment)


@pytest.mark.parametrize("name", check_names("device_operations.py"))
def test_operation(name: str, results: list[RankResult]) -> None:
    for result in results:
        assert result.value is not None, result.stderr
        assert name in result.value["passed"], f"rank {result.rank}:\n{result.stderr}"


def test_all_ranks_end_well(results: list[RankResult]) -> None:
    assert [result.code for result in results] == [0] * len(results), [result.stderr for result in results]


@pytest.mark.parametrize("copies", [0, 1, 4], ids=["the first to the host", "one between", "one back"])
def test_device_that_is_lost_fails_all_ranks(launcher: Launcher, slow_device: Path, copies: int) -> None:
    environment = {**QUICK, "SCENARIO_DEVICE_LIBRARY": str(slow_device), "SCENARIO_COPIES": str(copies)}
    failing, waiting = values(launcher.run("lost_device", environment=environment))
    assert "elements failed: the device is lost" in failing["error"][1]
    assert "the session of the process group failed before" in failing["after"][1]
    for value in (failing, waiting):
        assert value["error"][0] == "DistBackendError"
        assert value["error"][2] < 10
        assert value["stats"]["failed_jobs"] >= 1


def test_tensors_that_do_not_match_fail_on_all_ranks(launcher: Launcher, slow_device: Path) -> None:
    """The longer one has the shorter one's elements and one chunk more."""
    environment = {**QUICK, "SCENARIO_DEVICE_LIBRARY": str(slow_device)}
    for value in values(launcher.run("other_numel_of_device", environment=environment)):
        assert value["error"][0] == "DistBackendError"


def test_ranks_of_a_host_reduce_device_tensors_as_one_worker(launcher: Launcher, slow_device: Path) -> None:
    """By a backend that is asked for by name, in a session with a token."""
    token = launcher.folder / "token"
    token.write_text("0123456789abcdef\n")
    environment = {
        "SCENARIO_DEVICE_LIBRARY": str(slow_device),
        "SWITCHML_HOST_REDUCTION": "on",
        "SWITCHML_SESSION_TOKEN_FILE": str(token),
    }
    hosts = on_hosts("aab")
    results = launcher.run("device_operations_of_hosts", ranks=3, environment=environment, rank_environment=hosts)
    for rank, value in enumerate(values(results)):
        stats = value["stats"]
        assert stats["sessions"] == 1
        assert stats["host"] == {"ranks": [0, 1] if rank < 2 else [2], "workers": 2}
        assert (stats["transport"] is None) is (rank == 1)
        assert stats["device_jobs"] > 0
        carried = {what: sum(row[what] for row in stats["delegated"].values()) for what in ("jobs", "elements")}
        assert stats["reduced_in_host"] == (carried if rank < 2 else {"jobs": 0, "elements": 0})
