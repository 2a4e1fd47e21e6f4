# SPDX-License-Identifier: BSD-3-Clause
"""The commands of docs/how-to/recipe.md as they stand, over the clone's own foundation."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from channel_tools.channel import Foundation, create_channel
from channel_tools.system.settings import Settings
from tests.integration.conftest import BUILD_LIMIT_S, ROOT
from tests.support.shell_blocks import shell_blocks

pytestmark = [pytest.mark.integration, pytest.mark.slow]


def test_a_recipe_is_written_built_published_and_installed(tmp_path: Path, own_settings: Settings) -> None:
    if not own_settings.foundation.is_dir():
        pytest.skip("there is no output/foundation: make channel first")
    # it stands for a mirror of conda-forge, with Debian's compilers
    foundation = Foundation(kind="conda-forge", address=own_settings.foundation.as_uri())
    create_channel(tmp_path / "output" / "channel", foundation)
    (tmp_path / "greet").mkdir()
    pins = 'c_compiler: [gcc]\nc_compiler_version: ["12"]\nc_stdlib: [sysroot]\nc_stdlib_version: ["2.36"]\n'
    (tmp_path / "greet" / "variants.yaml").write_text(pins)
    page = (ROOT / "docs/how-to/recipe.md").read_text(encoding="utf-8")
    lines = "".join(block.text for block in shell_blocks(page))
    lines = lines.replace("-c srv", f"-c srv -c {own_settings.foundation}")
    environ = {
        **os.environ,
        "CHANNEL_TOOLS_CACHE": str(tmp_path / "cache"),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    typed = subprocess.run(
        ["bash", "-euc", lines], cwd=tmp_path, env=environ, capture_output=True, text=True, check=False,
        timeout=BUILD_LIMIT_S,
    )  # fmt: skip
    assert typed.returncode == 0, typed.stderr
    assert typed.stdout.splitlines()[-1] == "greetings"
