# SPDX-License-Identifier: BSD-3-Clause
"""``channel_tools build PATH/recipe.yaml``, where there is no tree."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from channel_tools.conda.archive import read_index_json
from tests.support.command_line import run_tool

if TYPE_CHECKING:
    from pathlib import Path

    from channel_tools.system.settings import Settings

pytestmark = [pytest.mark.integration, pytest.mark.slow]

RECIPE = """\
package: {name: toy, version: "1.0"}
build: {noarch: generic, string: "${{ flavour }}_h${{ hash }}_0", script: 'echo hello > "$PREFIX/hello.txt"'}
about: {license: MIT}
"""


def test_a_recipe_is_built_by_its_path(tmp_path: Path, own_settings: Settings, stack_channel: Path) -> None:
    assert stack_channel.is_dir()
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy" / "recipe.yaml").write_text(RECIPE)
    (tmp_path / "toy" / "variants.yaml").write_text("flavour: [sweet]\n")

    def build(*words: str | Path) -> tuple[int, str]:
        environ = os.environ | {"CHANNEL_TOOLS_CACHE": str(tmp_path / "cache")}
        foundation = ("--foundation", "conda-forge", "--foundation-channel", own_settings.foundation.as_uri())
        result = run_tool("build", *words, *foundation, "--no-attest", cwd=tmp_path, environ=environ)
        return result.returncode, result.stderr

    assert build("toy/recipe.yaml")[0] == 0
    (package,) = (tmp_path / "output" / "channel" / "noarch").glob("toy-1.0-sweet_*.conda")
    assert read_index_json(package)["name"] == "toy"
    assert sorted(path.name for path in (tmp_path / "toy").iterdir()) == ["recipe.yaml", "variants.yaml"]
    assert "0 to build, 1 in the channel already" in build("toy")[1]
    for words in (("--variant", "x"), ("--all",), ("--package", "toy"), ("--root", "."), ("--on", "slurm")):
        code, said = build("toy", *words)
        assert (code, words[0] in said, "Traceback" in said) == (2, True, False)
