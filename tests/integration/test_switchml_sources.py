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

from channel_tools.commands import run_command
from channel_tools.environments import activated_environment, create_environment
from channel_tools.progress import SilentProgress
from channel_tools.settings import Settings
from tests.integration.conftest import ROOT

pytestmark = pytest.mark.integration

TOOLCHAIN = ["gcc_linux-64", "gxx_linux-64", "sysroot_linux-64", "cmake", "ninja"]
LIBRARIES = ["libabseil", "libgrpc", "libprotobuf", "c-ares", "openssl", "re2", "zlib"]
COMPILE_LIMIT_S = 600
TEST_LIMIT_S = 600


class MakeEnvironment(Protocol):
    """Installs specs from the built channel into a new prefix; gives the variables of its activation."""

    def __call__(self, prefix: Path, specs: list[str]) -> dict[str, str]: ...


@pytest.fixture
def make_environment(own_settings: Settings, stack_channel: Path) -> MakeEnvironment:
    def make(prefix: Path, specs: list[str]) -> dict[str, str]:
        create_environment(
            prefix,
            specs,
            [stack_channel.as_uri()],
            package_cache=own_settings.package_cache,
            subdir="linux-64",
            progress=SilentProgress(),
        )
        return activated_environment(prefix, environ=os.environ)

    return make


def test_clients_and_switch_agree_under_loss_and_trouble(make_environment: MakeEnvironment, tmp_path: Path) -> None:
    toolchain = make_environment(tmp_path / "env", [*TOOLCHAIN, *LIBRARIES])
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


def test_the_plugin_keeps_gloos_promises_over_the_real_switch(
    make_environment: MakeEnvironment, tmp_path: Path
) -> None:
    """The compiler builds the stand-in for libswitchml, which injects the faults that the real one does not have."""
    prefix = tmp_path / "env"
    variables = make_environment(
        prefix, [*TOOLCHAIN, "pytorch-switchml", "libswitchml * udp*", "switchml-switch", "pip"]
    )
    installed = run_command(
        [prefix / "bin" / "python", "-m", "pip", "install", "--quiet", f"pytest=={pytest.__version__}"],
        env=variables,
        check=False,
        timeout_s=COMPILE_LIMIT_S,
    )
    if installed.returncode != 0:
        pytest.skip(f"pytest cannot be installed into the environment: {installed.tail()}")
    result = run_command(
        [prefix / "bin" / "pytest", "-q", "-p", "no:cacheprovider", "--switchml", "real"],
        cwd=ROOT / "recipes" / "torch-switchml" / "src",
        env={**variables, "PYTHONPYCACHEPREFIX": str(tmp_path / "compiled")},
        timeout_s=TEST_LIMIT_S,
    )
    assert re.search(r"\d+ passed", result.stdout)
    assert "failed" not in result.stdout
