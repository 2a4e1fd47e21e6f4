# SPDX-License-Identifier: BSD-3-Clause
"""The tests that the switch's sources have of their own, in an environment made from the channel.

A recipe's build runs only those that give the same answer every time; those that run real clients against the real
switch, drop packets, inject faults and kill processes run here.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from channel_tools.environments import activated_environment
from channel_tools.system.processes import run_command
from channel_tools.system.settings import Settings
from tests.integration.conftest import ROOT
from tests.support.programs import program
from tests.support.stacks import install
from tests.support.switchml_sources import LIBRARIES, QUICK, TOOLCHAIN, compile_switch

pytestmark = pytest.mark.integration

TEST_LIMIT_S = 1200
CLIENTS = ("test_access", "test_end_to_end", "test_limits", "test_service", "test_sessions", "test_trouble")
TESTS = {"simulate": "switch.simulation", **{name: f"switch.{name}" for name in CLIENTS}}
"""CTest's names of what a recipe's build leaves out, by the program that they run."""


def test_clients_and_switch_agree_under_loss_and_trouble(
    own_settings: Settings, stack_channel: Path, tmp_path: Path
) -> None:
    """The clients are those of the installed libswitchml, the switch the installed one, as their packages have them."""
    prefix = tmp_path / "env"
    specs = [*TOOLCHAIN, *LIBRARIES, "libswitchml * udp*", "switchml-switch"]
    install(own_settings, stack_channel, prefix, specs)
    toolchain = {**activated_environment(prefix, environ=os.environ), "CXXFLAGS": "-O1 -pipe", "CFLAGS": "-O1"}
    build = tmp_path / "build"
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
