# SPDX-License-Identifier: BSD-3-Clause
"""conda-smithy itself takes the feedstocks of this tree, over conda-forge's pinning; without it these tests skip.

Its environment needs the program rattler-build: ``tests/support/rattler_build_program.py`` stands in for it.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from channel_tools.conda.platforms import SUPPORTED_PLATFORMS
from channel_tools.matrix import LoadedTree, Stack, expand_stacks, load_tree
from channel_tools.requests.init import FeedstockRequest
from channel_tools.system.settings import Settings, Tree, make_settings
from channel_tools.workflow.render import export_feedstock
from tests.support.conda_forge import conda_forge_folder, copy_tree
from tests.support.feedstocks import agree, variants_of_ci, variants_of_tree
from tests.support.programs import has, program

pytestmark = [pytest.mark.integration, pytest.mark.slow]

_LIMIT_S = 900
_APART = frozenset({"torchvision-patched"})
_LEFT_OUT = {"libswitchml": {"switchml-patched"}, "switchml-switch": {"switchml-patched"}}
"""Stacks whose compilers conda-forge's list has no place for; what conda-forge's make has the same C interface."""
_COMMIT = ("-c", "user.name=tests", "-c", "user.email=tests@localhost", "commit", "-q", "-m", "Add recipe")


def request_of(package: str, folder: Path, stack: str | None) -> FeedstockRequest:
    homepage = "https://example.org/channel"
    return FeedstockRequest(
        package=package, destination=folder, maintainers=("octocat",), homepage=homepage, stack=stack
    )


@pytest.fixture(scope="module")
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
    loaded = load_tree(Tree(root=Path(__file__).parents[3]))
    built = {stack.name: on_conda_forge(loaded, stack) for stack in loaded.stacks.values()}
    recipes: list[tuple[str, str | None]] = []
    for name in loaded.recipes:
        stacks = [stack for stack, names in built.items() if name in names]
        recipes += [(name, stack) for stack in stacks] if name in _APART else [(name, None)][: len(stacks)]
    return recipes


# expanding every stack takes seconds, which each process of a run would spend before the first test
FEEDSTOCKS = every_feedstock() if has("conda-smithy") else [("every recipe", None)]


@pytest.fixture(scope="module")
def pinned_settings(smithy: str, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """The project's tree, over conda-forge's own pinning."""
    del smithy  # without it, nothing is copied
    folder = tmp_path_factory.mktemp("pinned")
    root = copy_tree(folder / "tree", pinning=conda_forge_folder())
    return make_settings(root=root, output=folder / "output", environ={}, cwd=folder)


@pytest.mark.parametrize(("package", "stack"), FEEDSTOCKS)
def test_conda_smithy_lints_it(
    package: str, stack: str | None, smithy: str, own_settings: Settings, tmp_path: Path
) -> None:
    folder = tmp_path / f"{package}-feedstock"
    export_feedstock(own_settings, request_of(package, folder, stack))
    said = run(smithy, "recipe-lint", "recipe", cwd=folder)
    if "license: ${{" in (folder / "recipe" / "recipe.yaml").read_text():  # it reads a licence without the variant
        _, *suggestions = said.strip().splitlines()
        assert suggestions[0].startswith("  License is not an SPDX identifier")
        assert all("spdx" in line.lower() for line in suggestions if line)
    else:
        assert "is in fine form" in said


@pytest.mark.parametrize(("package", "stack"), FEEDSTOCKS)
def test_conda_smithy_gives_it_the_variants_of_the_tree(
    package: str,
    stack: str | None,
    smithy: str,
    pinned_settings: Settings,
    without_network: tuple[str, ...],
    tmp_path: Path,
) -> None:
    """Key by key, apart from what the command says it leaves out; it asks a CI service for numbers, in vain."""
    folder = tmp_path / f"{package}-feedstock"
    made = export_feedstock(pinned_settings, request_of(package, folder, stack))
    run("git", "init", "-q", ".", cwd=folder)
    run("git", "add", "-A", cwd=folder)
    run("git", *_COMMIT, cwd=folder)
    config = conda_forge_folder() / "conda_build_config.yaml"
    run(*without_network, smithy, "rerender", "--no-check-uptodate", "-e", config, cwd=folder)
    loaded = load_tree(pinned_settings.tree, {})
    stacks = [loaded.stacks[stack]] if stack is not None else loaded.stacks.values()
    rendered = expand_stacks(loaded, stacks, foundation_kind="conda-forge", platform="linux-64")
    ours = variants_of_tree(one for one in rendered if one.recipe_file.name == package)
    theirs = variants_of_ci(folder, "linux_64")
    assert {key for variant in theirs for key, _value in variant} == {key for one in ours for key, _value in one}
    missing = [one for one in ours if not any(agree(one, other) for other in theirs)]
    assert {name for one in missing for name in ours[one]} == _LEFT_OUT.get(package, set())
    assert len(made.variants.left_out) == len(_LEFT_OUT.get(package, set()))
    assert [other for other in theirs if not any(agree(one, other) for one in ours)] == []
    assert len(theirs) == len(ours) - len(missing)
