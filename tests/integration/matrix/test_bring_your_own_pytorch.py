# SPDX-License-Identifier: BSD-3-Clause
"""docs/how-to/bring-your-own-pytorch.md as it stands, up to rendering: the build itself takes hours."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from channel_tools.conda.platforms import current_platform
from channel_tools.matrix import expand_stacks, load_tree
from channel_tools.system.settings import Tree
from tests.support.command_line import run_tool
from tests.support.made_up_foundation import write_made_up_foundation

pytestmark = [pytest.mark.integration, pytest.mark.slow]

_ROOT = Path(__file__).parents[3]
_PAGE = (_ROOT / "docs" / "how-to" / "bring-your-own-pytorch.md").read_text()
_VARIANTS, _STACK = re.findall(r"```yaml\n(.*?)```", _PAGE, re.DOTALL)
_COMMANDS = [shlex.split(line) for line in re.findall(r"^    channel_tools (.*)$", _PAGE, re.MULTILINE)]
_UPSTREAM = "HOST/channel_tools.git@v0.2.0"
_PATCH = """\
From: A site <torch@site.example>
Subject: [PATCH] Say who built it

--- a/CITATION.cff
+++ b/CITATION.cff
@@ -1,3 +1,4 @@
+# built by our site
 cff-version: 1.2.0
 message: If you use this software, please cite it as below.
 title: PyTorch
"""


def command(name: str) -> list[str]:
    """The page's command of this name."""
    [found] = [words for words in _COMMANDS if words[0] == name]
    return found


def typed(words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return run_tool(*words, cwd=folder, environ={"CHANNEL_TOOLS_CACHE": str(folder.parent / "cache")})


@pytest.fixture
def mysite(tmp_path: Path) -> Path:
    """What the page has its reader write."""
    assert _UPSTREAM in command("init")[-1]
    started = typed([*command("init")[:-1], str(_ROOT)], tmp_path)
    assert started.returncode == 0, started.stderr
    folder = tmp_path / "mysite"
    [place] = re.findall(r'-o "\$PWD/(\S+)"', _PAGE)
    (folder / place).mkdir(parents=True)
    (folder / place / "0001-say-who-built-it.patch").write_text(_PATCH)
    (folder / "variants" / "ourtorch.yaml").write_text(_VARIANTS)
    with (folder / "variants" / "stacks.yaml").open("a") as stream:
        stream.write(_STACK)
    return folder


def test_the_page_leads_to_a_recipe_with_the_patch(mysite: Path, tmp_path: Path) -> None:
    listed = typed([*command("list"), "--json"], mysite)
    assert listed.returncode == 0, listed.stderr
    loaded = load_tree(Tree(root=mysite))
    platform = current_platform()
    packages = expand_stacks(loaded, [loaded.stacks["ourtorch"]], foundation_kind="conda-forge", platform=platform)
    index = write_made_up_foundation(tmp_path / "conda-forge", packages, platform)
    foundation = ["--foundation", "conda-forge", "--foundation-channel", str(index)]
    plan = [word for word in command("plan") if word != "--make-foundation"]
    planned = typed([*plan, *foundation], mysite)
    assert planned.returncode == 0, planned.stderr
    assert re.search(r"pytorch-cray-mpich +2\.6\.0 +patched_cpu_py3\d+_h\w+_0 +\S+ +build", planned.stdout)
    assert "cannot serve" not in planned.stdout
    rendered = typed([*command("render"), *foundation], mysite)
    assert rendered.returncode == 0, rendered.stderr
    [recipe] = (mysite / "rendered").glob("*/recipe.yaml")
    [patch] = (mysite / "rendered").rglob("0001-say-who-built-it.patch")
    assert patch.read_text() == _PATCH
    assert patch.relative_to(recipe.parent).as_posix() in recipe.read_text()


def test_a_patch_for_another_version_is_named(mysite: Path) -> None:
    place = mysite / "patches" / "pytorch-cray-mpich-patched"
    (place / "2.6.0").rename(place / "2.4.1")
    said = typed(command("list"), mysite)
    assert said.returncode == 3
    assert "has patches for 2.4.1, but the version is now 2.6.0" in said.stderr
