# SPDX-License-Identifier: BSD-3-Clause
"""The lines of the workflows that ``init --ci`` writes, run by a shell as the services run them.

Left out are those that install the program, and the validation, whose stack has PyTorch.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from channel_tools.channel import Foundation, create_channel
from channel_tools.system.settings import Settings
from tests.integration.conftest import BUILD_LIMIT_S
from tests.support.command_line import run_tool

pytestmark = [pytest.mark.integration, pytest.mark.slow]
STACKS = """\
default_stack: mysite
stacks:
  mysite: {description: a program, packages: [hello], install: [hello]}
"""
PINS = 'c_compiler: [gcc]\nc_compiler_version: ["12"]\nc_stdlib: [sysroot]\n'


def lines_of(tree: Path, service: str) -> Iterator[str]:
    """The shell lines of both jobs, in order."""
    if service == "github":
        workflow = yaml.safe_load((tree / ".github/workflows/channel.yml").read_text())
        for job in ("plan", "build"):
            yield from (step["run"] for step in workflow["jobs"][job]["steps"] if "run" in step)
    else:
        workflow = yaml.safe_load((tree / ".gitlab-ci.yml").read_text())
        for job in ("plan", "build"):
            yield from workflow[job]["script"]


@pytest.mark.parametrize("service", ["github", "gitlab"])
def test_a_new_trees_workflow_builds_publishes_and_promotes(
    tmp_path: Path, own_settings: Settings, service: str
) -> None:
    if not own_settings.foundation.is_dir():
        pytest.skip("there is no output/foundation: make channel first")
    environ = {
        **os.environ, "HOME": str(tmp_path), "TARGET": str(tmp_path / "srv"), "NETRC": "",
        "CHANNEL_TOOLS_CACHE": str(tmp_path / "cache"), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }  # fmt: skip
    made = run_tool("init", "mysite", "--ci", service, cwd=tmp_path, environ=environ)
    assert made.returncode == 0, made.stderr
    tree = tmp_path / "mysite"
    lines = [line for line in lines_of(tree, service) if "pip install" not in line]
    assert [line for line in lines if "validate --channel" in line]
    (tree / "variants/stacks.yaml").write_text(STACKS)
    (tree / "variants/pins.yaml").write_text(PINS)
    (tree / "variants/foundation-conda-forge.yaml").write_text('c_stdlib_version: ["2.36"]\n')
    # it stands for a mirror of conda-forge, with Debian's compilers
    foundation = Foundation(kind="conda-forge", address=own_settings.foundation.as_uri())
    create_channel(tree / "output" / "channel", foundation)
    script = "\n".join(line for line in lines if "channel_tools validate" not in line)
    done = subprocess.run(
        ["bash", "-eo", "pipefail", "-c", script], cwd=tree, env=environ, capture_output=True, text=True, check=False,
        timeout=BUILD_LIMIT_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    for label in ("", "label/testing/"):
        assert [*(tmp_path / "srv").glob(f"{label}*/hello-1.0.0-*.conda")]
