# SPDX-License-Identifier: BSD-3-Clause
"""The tests that the plugin's sources have of their own, over the real switch, in an environment from the channel."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from channel_tools.environments import activated_environment
from channel_tools.system.processes import run_command
from channel_tools.system.settings import Settings
from tests.integration.conftest import ROOT
from tests.support.slow_device import VARIABLE, slow_device_library
from tests.support.stacks import install, install_pytest
from tests.support.switchml_sources import TOOLCHAIN

pytestmark = [pytest.mark.integration, pytest.mark.slow]

TEST_LIMIT_S = 1200
LIMIT_OF_ALL_PYTORCH_TESTS_S = 3600


@pytest.mark.parametrize("pytorch_tests", ["chosen", "all"])
def test_the_plugin_keeps_gloos_promises_over_the_real_switch(
    own_settings: Settings, stack_channel: Path, tmp_path: Path, pytorch_tests: str
) -> None:
    """The compiler builds the stand-in for libswitchml, which injects the faults that the real one does not have."""
    prefix = tmp_path / "env"
    specs = [*TOOLCHAIN, "pytorch-switchml", "libswitchml * udp*", "switchml-switch", "pip", "numpy"]
    install(own_settings, stack_channel, prefix, specs)
    variables = activated_environment(prefix, environ=os.environ) | {VARIABLE: str(slow_device_library(prefix))}
    install_pytest(prefix)
    sources = tmp_path / "src"  # with room for byte code, which the clone's own are to be without
    shutil.copytree(
        ROOT / "recipes" / "torch-switchml" / "src", sources, ignore=shutil.ignore_patterns("__pycache__", ".*")
    )
    result = run_command(
        [
            # two at a time: more than half of a test is waiting, and all of them would be the longest of all files
            *(prefix / "bin" / "pytest", "-q", "-n", "2", "-p", "no:cacheprovider", "--switchml", "real"),
            f"--basetemp={tmp_path / 'pytest'}",  # without which pytest removes what earlier runs left
            *("--pytorch-tests", pytorch_tests),
        ],
        cwd=sources,
        env=variables,
        check=False,
        timeout_s=TEST_LIMIT_S + (LIMIT_OF_ALL_PYTORCH_TESTS_S if pytorch_tests == "all" else 0),
    )
    assert result.returncode == 0, result.stdout
    assert re.search(r"\d+ passed", result.stdout)
