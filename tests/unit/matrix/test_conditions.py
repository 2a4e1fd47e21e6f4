# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from channel_tools.matrix import expand_stacks, find_stack, load_tree
from channel_tools.system.errors import ConfigError
from tests.unit.matrix.toytree import write_tree

if TYPE_CHECKING:
    from pathlib import Path

_STACKS = """\
default_stack: s
stacks:
  s: {description: d, variants: [v.yaml], packages: [a], install: [a]}
"""
_RECIPE = """\
context: {v: "1"}
package: {name: a, version: "1"}
build:
  noarch: generic
  script: echo ${{ flavour }}
  skip: SKIP
"""


def _built(root: Path, recipe: str, *, platform: str = "linux-64", values: str = "[small, large]") -> list[str]:
    """The name and flavour of each package that the recipe gives."""
    changes: dict[str, str | None] = {
        "variants/stacks.yaml": _STACKS,
        "variants/pins.yaml": None,
        "variants/foundation-registry.yaml": None,
        "variants/foundation-conda-forge.yaml": None,
        "variants/v.yaml": f"flavour: {values}\n",
        "recipes/a/recipe.yaml": recipe,
    }
    loaded = load_tree(write_tree(root, changes))
    packages = expand_stacks(loaded, [find_stack(loaded, None)], foundation_kind="registry", platform=platform)
    return sorted(f"{package.name} {package.variant['flavour']}" for package in packages)


@pytest.mark.parametrize(
    ("skip", "flavours"),
    [
        ("flavour == 'small'", "large"),
        ("${{ 'true' if flavour == 'small' else 'false' }}", "large"),
        ("${{ flavour == 'small' }}", "large"),
        ("${{ 'linux' if flavour == 'small' }}", "large"),
        ("${{ 'win' if flavour == 'small' else 'linux' }}", "small"),
        ("['${{ flavour == \"small\" }}']", "large"),
        ("[win, '${{ flavour == \"large\" }}']", "small"),
        ("[{if: linux, then: \"flavour == 'small'\"}]", "large"),
        ("[{if: win, then: \"flavour == 'small'\"}]", "small large"),
        ('[{if: win, then: "true", else: "flavour == \'small\'"}]', "large"),
        ("[{if: linux, then: [win, \"${{ flavour == 'small' }}\"]}]", "large"),
        ("[{if: linux, then: [{if: \"flavour == 'large'\", then: unix}]}]", "small"),
        ("{if: flavour == 'large', then: true}", "small"),
        ("[{if: flavour == 'large', then: false, else: true}]", "large"),
        ("[win, flavour == v, flavour == 'small' and v == '1']", "large"),
        ("match(flavour, '>3')", "small large"),
        ("target_platform == 'noarch'", "small large"),
        ("target_platform == 'linux-64' and flavour == 'small'", "large"),
        ("true", ""),
        ("false", "small large"),
        ("[]", "small large"),
    ],
)
def test_a_combination_is_skipped_as_the_engine_skips_it(tmp_path: Path, skip: str, flavours: str) -> None:
    recipe = _RECIPE.replace("SKIP", skip if skip[0] in "[{tf" and "==" not in skip[:12] else f'"{skip}"')
    if "'>3'" in skip:
        assert _built(tmp_path, recipe, values='["2", "4"]') == ["a 2"]
    else:
        assert _built(tmp_path, recipe) == sorted(f"a {one}" for one in flavours.split())


_OUTPUTS = """\
context: {name: a}
recipe: {name: a, version: "1"}
build: {noarch: generic, script: "echo ${{ flavour }}"}
outputs:
  - package: {name: a}
  - package:
      name: ${{ name }}-docs
    build:
      skip: ${{ 'true' if flavour == 'small' else 'false' }}
  - package: {name: a-linux}
    build:
      skip:
        - win
        - flavour == "large"
"""


def test_each_output_has_its_own_conditions(tmp_path: Path) -> None:
    assert _built(tmp_path, _OUTPUTS) == ["a large", "a small", "a-docs large", "a-linux small"]
    whole = _OUTPUTS.replace("build: {noarch", "build: {skip: flavour == 'large', noarch")
    assert _built(tmp_path, whole) == ["a small", "a-linux small"]


@pytest.mark.parametrize(
    ("written", "broken", "line"),
    [
        ("${{ 'true' if flavour == 'small' else 'false' }}", "${{ undefined_name }}", 9),
        ("${{ 'true' if flavour == 'small' else 'false' }}", "flavour ==", 9),
        ("${{ 'true' if flavour == 'small' else 'false' }}", "${{ 'flavour ==' }}", 9),
        ('flavour == "large"', "flavour == == 2", 14),
        ('flavour == "large"', "{if: flavour ==, then: win}", 14),
    ],
)
def test_an_error_names_the_line_of_the_condition(tmp_path: Path, written: str, broken: str, line: int) -> None:
    with pytest.raises(ConfigError) as caught:
        _built(tmp_path, _OUTPUTS.replace(written, broken))
    assert caught.value.line == line


def test_outputs_of_one_name_with_a_skip_each_are_refused(tmp_path: Path) -> None:
    recipe = """\
recipe: {name: a, version: "1"}
outputs:
  - package: {name: a}
    build: {noarch: generic, string: x_0, script: "echo ${{ flavour }}", skip: "flavour == 'small'"}
  - package: {name: a}
    build: {noarch: generic, string: y_0, script: "echo ${{ flavour }}", skip: "flavour == 'large'"}
"""
    with pytest.raises(ConfigError, match=r"several outputs are named 'a' and have a build\.skip each") as caught:
        _built(tmp_path, recipe)
    assert caught.value.line == 6
