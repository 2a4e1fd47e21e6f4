# SPDX-License-Identifier: BSD-3-Clause
"""The lines of the workflows that ``init --ci`` writes, run by a shell as the services run them.

Left out are those that install the program. The commands of docs/how-to/week.md, in such a tree.
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
from tests.integration.conftest import BUILD_LIMIT_S, ROOT
from tests.support.command_line import run_tool
from tests.support.shell_blocks import shell_blocks

pytestmark = [pytest.mark.integration, pytest.mark.slow]
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


def environment(folder: Path) -> dict[str, str]:
    return {
        **os.environ, "HOME": str(folder), "TARGET": str(folder / "srv"), "NETRC": "",
        "CHANNEL_TOOLS_CACHE": str(folder / "cache"), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }  # fmt: skip


def make_tree(tmp_path: Path, own_settings: Settings, service: str) -> Path:
    """A new tree with the program in C and a stack that has it beside PyTorch."""
    if not own_settings.foundation.is_dir():
        pytest.skip("there is no output/foundation: make channel first")
    environ = environment(tmp_path)
    made = run_tool("init", "mysite", "--ci", service, cwd=tmp_path, environ=environ)
    assert made.returncode == 0, made.stderr
    tree = tmp_path / "mysite"
    file = tree / "variants/stacks.yaml"
    stacks = yaml.safe_load(file.read_text())
    stacks["stacks"]["mysite"] |= {"packages": ["hello"], "install": ["hello", "pytorch"]}
    file.write_text(yaml.safe_dump(stacks))
    (tree / "variants/pins.yaml").write_text(PINS)
    (tree / "variants/foundation-conda-forge.yaml").write_text('c_stdlib_version: ["2.36"]\n')
    # it stands for a mirror of conda-forge, with Debian's compilers
    foundation = Foundation(kind="conda-forge", address=own_settings.foundation.as_uri())
    create_channel(tree / "output" / "channel", foundation)
    return tree


def typed(script: str, tree: Path, own_settings: Settings) -> str:
    """What the lines print; those that validate take PyTorch from the foundation, as from a channel of their user's."""
    words = "channel_tools validate --channel"
    script = script.replace(words, f"{words} '{own_settings.foundation}' --channel")
    done = subprocess.run(
        ["bash", "-eo", "pipefail", "-c", script], cwd=tree, env=environment(tree.parent), capture_output=True,
        text=True, check=False, timeout=BUILD_LIMIT_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("service", ["github", "gitlab"])
def test_a_new_trees_workflow_builds_publishes_validates_and_promotes(
    tmp_path: Path, own_settings: Settings, service: str
) -> None:
    tree = make_tree(tmp_path, own_settings, service)
    lines = [line for line in lines_of(tree, service) if "pip install" not in line]
    said = typed("\n".join(lines), tree, own_settings)
    assert [line for line in said.splitlines() if line.startswith("PASSED ")]
    for label in ("", "label/testing/"):
        assert [*(tmp_path / "srv").glob(f"{label}*/hello-1.0.0-*.conda")]


def test_a_week_as_the_page_has_it(tmp_path: Path, own_settings: Settings) -> None:
    tree = make_tree(tmp_path, own_settings, "github")
    published = 'channel_tools publish --to "$TARGET" --label testing'
    typed(f'channel_tools build\n{published}\nchannel_tools promote testing main --at "$TARGET"', tree, own_settings)
    page = (ROOT / "docs/how-to/week.md").read_text(encoding="utf-8")
    said = typed("".join(block.text for block in shell_blocks(page)), tree, own_settings)
    assert [line for line in said.splitlines() if line.startswith("PASSED ")]
    assert {path.name.rpartition("-")[0] for path in (tmp_path / "srv").glob("*/hello-*.conda")} == {
        "hello-1.0.0",
        "hello-1.1",
    }
