# SPDX-License-Identifier: BSD-3-Clause
"""The ACCL stack from upstream's sources: built, installed from the channel alone, ranks on the emulator."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from channel_tools.environments import activated_environment, create_environment
from channel_tools.matrix import find_stack, load_tree
from channel_tools.progress import SilentProgress
from channel_tools.settings import Settings
from tests.integration.conftest import ROOT
from tests.integration.upstream import build_from_upstream

pytestmark = pytest.mark.integration

STACK = "accl"
LIMIT_S = 900


@pytest.fixture(scope="module")
def prefix(own_settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Path:
    channel = build_from_upstream(own_settings, STACK, "torch-accl", heavy=True)
    build_from_upstream(own_settings, STACK, "accl-emulator", heavy=True)
    return create_environment(
        tmp_path_factory.mktemp("accl") / "env",
        find_stack(load_tree(own_settings.tree), STACK).install,
        [channel.as_uri()],
        package_cache=own_settings.package_cache,
        subdir="linux-64",
        progress=SilentProgress(),
    ).prefix


def test_the_process_group_reduces_over_the_emulator(prefix: Path) -> None:
    script = ROOT / "recipes/torch-accl/tests/collectives.py"
    command = [str(prefix / "bin/accl-emulator"), "--ranks", "2", "--timeout", "300", "--"]
    command += [str(prefix / "bin/python"), "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*command, str(script)],
        env=activated_environment(prefix, environ=os.environ),
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stderr
    assert {f"rank {rank} of 2: all right" for rank in range(2)} <= set(done.stdout.splitlines())
