# SPDX-License-Identifier: BSD-3-Clause
"""The tests that the sources in ``recipes/<package>/src`` have of their own, in environments made from the channel.

A recipe's build runs only those that give the same answer every time; those that run real clients against the real
switch, drop packets, inject faults and kill processes run here.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Protocol

import pytest

from channel_tools.environments import activated_environment
from channel_tools.system.processes import run_command
from channel_tools.system.settings import Settings
from tests.integration.conftest import ROOT
from tests.support.programs import program
from tests.support.stacks import HEAVY_VARIABLE, install
from tests.support.switchml_sources import COMPILE_LIMIT_S, LIBRARIES, TOOLCHAIN, compile_switch

pytestmark = pytest.mark.integration

TEST_LIMIT_S = 600
LIMIT_OF_ALL_PYTORCH_TESTS_S = 3600


class MakeEnvironment(Protocol):
    """Installs specs from the built channel into a new prefix; gives the variables of its activation."""

    def __call__(self, prefix: Path, specs: list[str]) -> dict[str, str]: ...


@pytest.fixture
def make_environment(own_settings: Settings, stack_channel: Path) -> MakeEnvironment:
    def make(prefix: Path, specs: list[str]) -> dict[str, str]:
        install(own_settings, stack_channel, prefix, specs)
        return activated_environment(prefix, environ=os.environ)

    return make


def test_clients_and_switch_agree_under_loss_and_trouble(make_environment: MakeEnvironment, tmp_path: Path) -> None:
    """The clients are those of the installed libswitchml, whose package was made after its own tests had passed."""
    prefix = tmp_path / "env"
    toolchain = make_environment(prefix, [*TOOLCHAIN, *LIBRARIES, "libswitchml * udp*"])
    build = tmp_path / "build"
    compile_switch(build, prefix=prefix, toolchain=toolchain)
    result = run_command(
        ["ctest", "--test-dir", build, "--output-on-failure"], env=toolchain, check=False, timeout_s=TEST_LIMIT_S
    )
    assert result.returncode == 0, result.stdout
    assert re.search(r"switch\.test_end_to_end \.+ +Passed", result.stdout)
    assert re.search(r"switch\.test_sessions \.+ +Passed", result.stdout)
    assert re.search(r"switch\.test_trouble \.+ +Passed", result.stdout)
    assert re.search(r"switch\.simulation \.+ +Passed", result.stdout)


def test_systemd_accepts_the_switchs_unit(make_environment: MakeEnvironment, tmp_path: Path) -> None:
    systemd_analyze = program("systemd-analyze")
    prefix = tmp_path / "env"
    make_environment(prefix, ["switchml-switch"])
    unit = prefix / "share" / "switchml-switch" / "switchml-switch.service"
    assert f"ExecStart={prefix}/bin/switchml-switch " in unit.read_text()
    result = run_command([systemd_analyze, "verify", "--man=no", unit], check=False, timeout_s=TEST_LIMIT_S)
    assert result.returncode == 0, result.stderr
    assert unit.name not in result.stderr


def test_the_plugin_keeps_gloos_promises_over_the_real_switch(
    make_environment: MakeEnvironment, tmp_path: Path
) -> None:
    """The compiler builds the stand-in for libswitchml, which injects the faults that the real one does not have."""
    prefix = tmp_path / "env"
    variables = make_environment(
        prefix, [*TOOLCHAIN, "pytorch-switchml", "libswitchml * udp*", "switchml-switch", "pip", "numpy"]
    )
    installed = run_command(
        [prefix / "bin" / "python", "-m", "pip", "install", "--quiet", f"pytest=={pytest.__version__}", "expecttest"],
        env=variables,
        check=False,
        timeout_s=COMPILE_LIMIT_S,
    )
    if installed.returncode != 0:
        pytest.skip(f"pytest cannot be installed into the environment: {installed.tail()}")
    heavy = bool(os.environ.get(HEAVY_VARIABLE))  # then all of PyTorch's own tests of process groups too
    result = run_command(
        [
            *(prefix / "bin" / "pytest", "-q", "-p", "no:cacheprovider", "--switchml", "real"),
            *("--pytorch-tests", "all" if heavy else "chosen"),
        ],
        cwd=ROOT / "recipes" / "torch-switchml" / "src",
        env={**variables, "PYTHONPYCACHEPREFIX": str(tmp_path / "compiled")},
        check=False,
        timeout_s=TEST_LIMIT_S + (LIMIT_OF_ALL_PYTORCH_TESTS_S if heavy else 0),
    )
    assert result.returncode == 0, result.stdout
    assert re.search(r"\d+ passed", result.stdout)
