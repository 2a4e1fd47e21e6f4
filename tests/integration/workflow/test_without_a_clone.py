# SPDX-License-Identifier: BSD-3-Clause
"""A researcher's way: channel_tools installed from a channel alone examines and validates a stack, without a clone."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import pytest

from channel_tools.environments import create_environment
from channel_tools.system.progress import SilentProgress
from channel_tools.system.settings import Settings
from tests.integration.conftest import build_into_output
from tests.support.stacks import SUBDIR

pytestmark = [pytest.mark.integration, pytest.mark.slow]
_LIMIT_S = 900


def test_the_installed_program_needs_nothing_but_the_channel(
    tmp_path: Path, own_settings: Settings, stack_channel: Path
) -> None:
    result = build_into_output("build", "--variant", "tools", limit_s=_LIMIT_S)
    assert result.returncode == 0, result.stderr
    channel = str(stack_channel)
    asyncio.run(create_environment(
        tmp_path / "tool", ["channel_tools"], [channel],
        package_cache=own_settings.package_cache, subdir=SUBDIR, progress=SilentProgress(),
    ))  # fmt: skip
    here = tmp_path / "here"
    here.mkdir()

    def tool(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [tmp_path / "tool" / "bin" / "channel_tools", *words],
            cwd=here, env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}, timeout=_LIMIT_S,
            capture_output=True, text=True, check=False,
        )  # fmt: skip

    created = tool("env", "create", "job", "--variant", "udp", "--channel", channel)
    assert created.returncode == 0, created.stderr
    assert "examined as the stack udp" in tool("doctor", "job").stdout
    planned = tool("launch", "--prefix", "job", "--dry-run", "train.py")
    assert planned.stdout.splitlines()[-1].endswith("train.py"), planned.stderr
    validated = tool("validate", "--prefix", "job")
    assert (validated.returncode, validated.stdout[:6]) == (0, "PASSED"), validated.stderr
    measured = tool("bench", "job")
    # three sizes, through the switch and as users get them on one host
    assert (measured.returncode, measured.stdout.count("float32")) == (0, 6), measured.stderr
    assert sorted(path.name for path in here.iterdir()) == ["job", "output"]
