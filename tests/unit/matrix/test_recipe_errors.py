# SPDX-License-Identifier: BSD-3-Clause
"""The engine's errors name no line; ours do, wherever the refused text stands."""

from __future__ import annotations

from pathlib import Path

import pytest

from channel_tools.matrix import load_tree
from channel_tools.matrix.engine import RecipeEngine
from channel_tools.matrix.load import files_of_stack
from channel_tools.matrix.variants import merge_variant_files
from channel_tools.system.errors import ConfigError
from tests.unit.matrix.toytree import PLATFORM, write_tree

META = "recipes/toy-meta/recipe.yaml"
HEAD = "package:\n  name: a\n  version: '1'\n"


@pytest.mark.parametrize(
    ("recipe", "line", "words"),
    [
        pytest.param(HEAD + "foo: 1\n", 4, "unknown top-level field 'foo'", id="key"),
        pytest.param(HEAD + "build:\n  number: x\n", 5, "invalid value for 'build.number'", id="value of a dotted key"),
        pytest.param(HEAD + "source:\n  path: a\n  sha256: abc\n", 6, "Invalid SHA256 checksum", id="value"),
        pytest.param(
            HEAD + "about:\n  homepage: https://a.example/1\n  summary: ${{ nokey }}\n",
            6,
            "uses 'nokey'",
            id="template",
        ),
        pytest.param(
            HEAD + "about:\n  summary: ${{ nokey }}\n  license: ${{ nokey }}\n", 5, "uses 'nokey'", id="template twice"
        ),
        pytest.param(
            HEAD + "requirements:\n  run:\n    - if: linux and and\n      then: x\n", 6, "linux and and", id="condition"
        ),
        pytest.param(
            "context:\n  bad: '>>>>'\n" + HEAD + "requirements:\n  host: [b]\n  run:\n    - a ${{ bad }}\n",
            9,
            "Invalid match spec 'a >>>>'",
            id="requirement by its value",
        ),
        pytest.param(
            HEAD + "requirements:\n  run:\n    - if: linux\n      then: [b, 'a ${{ \">>>>\" }}']\n",
            7,
            "Invalid match spec 'a >>>>'",
            id="requirement in a list of a condition",
        ),
        pytest.param(
            HEAD + "about:\n  summary: ${{ wrong }}\ncontext:\n  wrong: ${{ 1 + }}\n",
            7,
            "syntax error",
            id="context last",
        ),
        pytest.param("package:\n  version: '1'\n", None, "missing required field 'name'", id="about no place"),
    ],
)
def test_an_error_names_the_line_that_the_engine_refuses(
    tmp_path: Path, recipe: str, line: int | None, words: str
) -> None:
    tree = load_tree(write_tree(tmp_path / "tree", {META: recipe}))
    matrix = merge_variant_files(files_of_stack(tree, tree.stacks["udp"], "registry", PLATFORM))
    (tmp_path / "engine").mkdir()
    with pytest.raises(ConfigError) as caught:
        RecipeEngine(PLATFORM, tmp_path / "engine").evaluate(tree.recipes["toy-meta"], matrix)
    assert caught.value.line == line
    assert words in caught.value.message
    # the text alone, of messages that describe an error by its parts
    assert "Marker" not in caught.value.message
    assert "\\" not in caught.value.message
