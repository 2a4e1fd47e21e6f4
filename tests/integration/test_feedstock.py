# SPDX-License-Identifier: BSD-3-Clause
"""conda-smithy itself takes the feedstocks of this tree; without conda-smithy these tests skip."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

from channel_tools.feedstock import FeedstockRequest
from channel_tools.matrix import LoadedTree, Stack, expand_stacks, load_tree
from channel_tools.plan import SUPPORTED_PLATFORMS
from channel_tools.system.settings import Settings, Tree
from channel_tools.workflow.render import export_feedstock
from tests.support.programs import program

pytestmark = pytest.mark.integration

_LIMIT_S = 900
_APART = frozenset({"torchvision-patched"})
_COMMIT = ("-c", "user.name=tests", "-c", "user.email=tests@localhost", "commit", "-q", "-m", "Add recipe")
_REQUEST = FeedstockRequest(maintainers=("octocat",), homepage="https://example.org/channel")


@pytest.fixture
def smithy() -> str:
    return program("conda-smithy")


def run(*words: str | Path, cwd: Path) -> str:
    result = subprocess.run(words, cwd=cwd, capture_output=True, text=True, check=False, timeout=_LIMIT_S)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def on_conda_forge(loaded: LoadedTree, stack: Stack) -> set[str]:
    """The recipes of the stack that are not skipped there, as where conda-forge has the package itself."""
    packages = (
        expand_stacks(loaded, [stack], foundation_kind="conda-forge", platform=platform)
        for platform in SUPPORTED_PLATFORMS
    )
    return {package.recipe_file.name for of_platform in packages for package in of_platform}


def every_feedstock() -> list[tuple[str, str | None]]:
    """Each recipe; one feedstock for all its stacks, or one for each where their compilers or Pythons differ."""
    loaded = load_tree(Tree(root=Path(__file__).parents[2]))
    built = {stack.name: on_conda_forge(loaded, stack) for stack in loaded.stacks.values()}
    recipes: list[tuple[str, str | None]] = []
    for name in loaded.recipes:
        stacks = [stack for stack, names in built.items() if name in names]
        recipes += [(name, stack) for stack in stacks] if name in _APART else [(name, None)][: len(stacks)]
    return recipes


@pytest.fixture
def pinning(own_settings: Settings, tmp_path: Path) -> Path:
    """What conda-forge's pinning file says of the keys that these recipes use, so that no network is needed."""
    loaded = load_tree(own_settings.tree)
    names = ("pins.yaml", "foundation-conda-forge.yaml")
    values = {
        key: list(items) for name in names for file in loaded.variant_files[name] for key, items in file.values.items()
    }
    path = tmp_path / "pinning.yaml"
    path.write_text(yaml.safe_dump(values))
    return path


@pytest.mark.parametrize(("package", "stack"), every_feedstock())
def test_conda_smithy_lints_and_renders_it(
    package: str, stack: str | None, smithy: str, pinning: Path, own_settings: Settings, tmp_path: Path
) -> None:
    folder = tmp_path / f"{package}-feedstock"
    export_feedstock(own_settings, package, folder, stack=stack, request=_REQUEST)
    said = run(smithy, "recipe-lint", "recipe", cwd=folder)
    if "license: ${{" in (folder / "recipe" / "recipe.yaml").read_text():  # it reads a licence without the variant
        _, *suggestions = said.strip().splitlines()
        assert suggestions[0].startswith("  License is not an SPDX identifier")
        assert all("spdx" in line.lower() for line in suggestions if line)
    else:
        assert "is in fine form" in said
    run("git", "init", "-q", ".", cwd=folder)
    run("git", "add", "-A", cwd=folder)
    run("git", *_COMMIT, cwd=folder)
    run(smithy, "rerender", "--no-check-uptodate", "-e", pinning, cwd=folder)
    assert list((folder / ".ci_support").glob("linux_64_*.yaml"))
