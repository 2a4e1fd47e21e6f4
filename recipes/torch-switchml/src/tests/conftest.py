# SPDX-License-Identifier: BSD-3-Clause
"""The transports the tests run over: a stand-in built here, or the real library and switch."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from compiling import compile_once
from rank_server import RankServer, start_server
from ranks import Launcher, free_port

TESTS = Path(__file__).resolve().parent


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--switchml",
        choices=("fake", "real"),
        default="real" if shutil.which("switchml-switch") else "fake",
        help="the transport: a stand-in compiled here, or the installed libswitchml and switchml-switch "
        "(default: real where the switch is on the PATH)",
    )
    parser.addoption(
        "--endings", type=int, default=0, help="how many ranks to have end in any way (default: 0; 100 take minutes)"
    )
    parser.addoption(
        "--pytorch-tests",
        choices=("chosen", "all"),
        default="chosen",
        help="of PyTorch's own tests of process groups (default: chosen; all take several minutes)",
    )


EACH_ON_THE_WIRE = {"SWITCHML_HOST_REDUCTION": "off"}
"""All ranks of a test are on one host, which by itself would not use the switch."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Transport:
    """What reaches a switch: its kind and the environment its users need."""

    kind: str
    environment: dict[str, str]


@pytest.fixture(scope="session")
def fake_library(request: pytest.FixtureRequest) -> Path:
    """The stand-in for libswitchml, compiled from this folder."""
    sources = [TESTS / "fake" / "switchml_fake.cpp"]
    return compile_once(request, "libswitchml_fake.so", sources, "-shared", "-fPIC")


@pytest.fixture(scope="session")
def fake_transport(fake_library: Path) -> Transport:
    return Transport(
        kind="fake",
        environment={
            "SWITCHML_LIBRARY": str(fake_library),
            "SWITCHML_CONTROLLER": f"127.0.0.1:{free_port()}",
            **EACH_ON_THE_WIRE,
        },
    )


@contextmanager
def running_switch(*options: str) -> Iterator[Transport]:
    """The software switch with these options, from when it serves until it has ended well."""
    command = ["switchml-switch", "--address", "127.0.0.1", "--port", "0", "--controller-port", "0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as switch:
        assert switch.stdout is not None
        ready = json.loads(switch.stdout.readline())
        environment = {
            "SWITCHML_CONTROLLER": ready["controller"],
            "SWITCHML_WORKER_PORT": str(free_port()),
            **EACH_ON_THE_WIRE,
        }
        yield Transport(kind="real", environment=environment)
        switch.terminate()
        switch.communicate(timeout=20)
        assert switch.returncode == 0


@pytest.fixture(scope="session")
def transport(request: pytest.FixtureRequest) -> Iterator[Transport]:
    """The transport chosen by --switchml, with its switch running."""
    if request.config.getoption("--switchml") == "fake":
        yield request.getfixturevalue("fake_transport")
        return
    with running_switch() as transport:
        yield transport


@contextmanager
def launcher_at_switch(request: pytest.FixtureRequest, *options: str, skip: str | None = None) -> Iterator[Launcher]:
    """Starts ranks at a software switch with these options.

    `skip`: why the tests are skipped where the stand-in is asked for.
    """
    if skip is not None and request.config.getoption("--switchml") == "fake":
        pytest.skip(skip)
    folder, server = request.getfixturevalue("tmp_path"), request.getfixturevalue("rank_server")
    with running_switch(*options) as transport:
        yield Launcher(folder=folder, environment=transport.environment, server=server)


@pytest.fixture
def short_lease_launcher(request: pytest.FixtureRequest) -> Iterator[Launcher]:
    """Starts ranks at a switch that soon sees one die; with the default lease a loaded machine may stall for long."""
    with launcher_at_switch(
        request, "--lease-ms", "3000", skip="the stand-in has no switch that knows which ranks live"
    ) as launcher:
        yield launcher


@pytest.fixture
def deaf_switch_launcher(request: pytest.FixtureRequest) -> Iterator[Launcher]:
    """Starts ranks at a switch that no packet reaches, while its controller answers: as behind a firewall."""
    with launcher_at_switch(request, "--drop-rate", "0.999999", skip="the stand-in sends no packets") as launcher:
        yield launcher


@pytest.fixture(scope="session")
def rank_server() -> Iterator[RankServer]:
    """Has imported PyTorch, which takes more than most scenarios do."""
    with start_server() as process:
        yield RankServer(process)
        process.communicate()
    assert process.returncode == 0


@pytest.fixture
def launcher(tmp_path: Path, transport: Transport, rank_server: RankServer) -> Launcher:
    """Starts ranks over the chosen transport."""
    return Launcher(folder=tmp_path, environment=transport.environment, server=rank_server)


@pytest.fixture
def fake_launcher(tmp_path: Path, fake_transport: Transport, rank_server: RankServer) -> Launcher:
    """Starts ranks over the stand-in, whose faults a test can ask for."""
    return Launcher(folder=tmp_path, environment=fake_transport.environment, server=rank_server)
