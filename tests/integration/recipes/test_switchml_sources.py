# SPDX-License-Identifier: BSD-3-Clause
"""The tests that the switch's sources have of their own, in an environment made from the channel.

A recipe's build runs only those that give the same answer every time; those that run real clients against the real
switch, drop packets, inject faults and kill processes run here.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from channel_tools.environments import activated_environment
from channel_tools.system.processes import run_command
from channel_tools.system.settings import Settings
from tests.integration.conftest import ROOT
from tests.support.programs import program
from tests.support.switch import SWITCH_IPV6_ADDRESS, cluster_of, running_switch, worker_ipv6_address
from tests.support.switchml_sources import LIBRARIES, QUICK, TOOLCHAIN, compile_switch, compiling_environment

pytestmark = pytest.mark.integration

TEST_LIMIT_S = 1200
CLIENTS = ("test_access", "test_end_to_end", "test_limits", "test_service", "test_sessions", "test_trouble")
TESTS = {"simulate": "switch.simulation", **{name: f"switch.{name}" for name in CLIENTS}}
"""CTest's names of what a recipe's build leaves out, by the program that they run."""


@pytest.fixture(scope="module")
def prefix(own_settings: Settings, stack_channel: Path) -> Iterator[Path]:
    """The udp transport's package, the switch's, and what their sources compile with."""
    specs = [*TOOLCHAIN, *LIBRARIES, "libswitchml * udp*", "switchml-switch"]
    with compiling_environment(own_settings, stack_channel, "sources", specs) as prefix:
        yield prefix


@pytest.mark.slow
def test_clients_and_switch_agree_under_loss_and_trouble(prefix: Path) -> None:
    """The clients are those of the installed libswitchml, the switch the installed one, as their packages have them."""
    toolchain = {**activated_environment(prefix, environ=os.environ), "CXXFLAGS": "-O1 -pipe", "CFLAGS": "-O1"}
    build = prefix.with_name("build")
    options = [*QUICK, f"-DSWITCHML_TESTED_SWITCH={prefix / 'bin' / 'switchml-switch'}"]
    compile_switch(build, prefix=prefix, toolchain=toolchain, options=options, targets=list(TESTS))
    wanted = "|".join(TESTS.values())
    result = run_command(
        ["ctest", "--test-dir", build, "--output-on-failure", "-R", f"^({wanted})$"],
        env=toolchain,
        check=False,
        timeout_s=TEST_LIMIT_S,
    )
    assert result.returncode == 0, result.stdout
    assert all(re.search(rf"{re.escape(test)} \.+ +Passed", result.stdout) for test in TESTS.values())


@pytest.mark.slow
def test_hosts_reduce_over_ipv6(prefix: Path) -> None:
    """Two of them and a switch, with a network of their own; each worker finds its address by the route."""
    with (
        cluster_of(2) as cluster,
        running_switch(prefix, address=SWITCH_IPV6_ADDRESS, before=cluster.inside(cluster.switch)) as switch,
    ):
        environment = {**os.environ, "SWITCHML_CONTROLLER": switch.controller}
        command = [str(prefix / "bin" / "switchml-bench"), "--workers", "2", "--numel", "300001", "--rank"]
        workers = [
            subprocess.Popen(
                [*cluster.inside(namespace), *command, str(rank)],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank, namespace in enumerate(cluster.workers)
        ]
        for worker in workers:
            report, errors = worker.communicate(timeout=TEST_LIMIT_S)
            assert worker.returncode == 0, errors
            assert json.loads(report)["wrong"] == 0
    assert [worker["address"] for worker in switch.stats["workers"]] == [worker_ipv6_address(rank) for rank in range(2)]


def test_systemd_accepts_the_switchs_unit(tmp_path: Path) -> None:
    systemd_analyze = program("systemd-analyze")
    template = ROOT / "recipes" / "switchml-switch" / "src" / "service" / "switchml-switch.service.in"
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "switchml-switch").symlink_to(sys.executable)
    unit = tmp_path / "switchml-switch.service"
    unit.write_text(template.read_text().replace("@prefix@", str(tmp_path)))
    result = run_command([systemd_analyze, "verify", "--man=no", unit], check=False, timeout_s=TEST_LIMIT_S)
    assert result.returncode == 0, result.stderr
    assert unit.name not in result.stderr
