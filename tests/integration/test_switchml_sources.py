# SPDX-License-Identifier: BSD-3-Clause
"""libswitchml's and the switch's own C++ tests, end to end under loss, compiled with the foundation's toolchain.

A recipe's build runs only the tests that give the same answer every time; those that run real clients against the real
switch, drop packets and kill processes run here.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from channel_tools.commands import run_command
from channel_tools.environments import activated_environment, create_environment
from channel_tools.progress import SilentProgress
from channel_tools.settings import Settings
from tests.integration.conftest import ROOT

pytestmark = pytest.mark.integration

TOOLCHAIN = ["gcc_linux-64", "gxx_linux-64", "sysroot_linux-64", "cmake", "ninja"]
LIBRARIES = ["libabseil", "libgrpc", "libprotobuf", "c-ares", "openssl", "re2", "zlib"]
COMPILE_LIMIT_S = 600
TEST_LIMIT_S = 300


@pytest.fixture(scope="module")
def toolchain(own_settings: Settings, stack_channel: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The variables of an environment that can compile, made from the channel."""
    prefix = tmp_path_factory.mktemp("toolchain") / "env"
    create_environment(
        prefix,
        [*TOOLCHAIN, *LIBRARIES],
        [stack_channel.as_uri()],
        package_cache=own_settings.package_cache,
        subdir="linux-64",
        progress=SilentProgress(),
    )
    return activated_environment(prefix, environ=os.environ)


def test_clients_and_switch_agree_under_loss_and_trouble(toolchain: dict[str, str], tmp_path: Path) -> None:
    build = tmp_path / "build"
    sources = ROOT / "recipes"
    run_command(
        [
            *("cmake", "-G", "Ninja", "-S", sources / "switchml-switch" / "src", "-B", build),
            f"-DSWITCHML_LIBRARY_SOURCE={sources / 'libswitchml' / 'src'}",
        ],
        env=toolchain,
        timeout_s=COMPILE_LIMIT_S,
    )
    run_command(["cmake", "--build", build], env=toolchain, timeout_s=COMPILE_LIMIT_S)
    result = run_command(["ctest", "--test-dir", build, "--output-on-failure"], env=toolchain, timeout_s=TEST_LIMIT_S)
    assert "100% tests passed" in result.stdout
