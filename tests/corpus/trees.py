# SPDX-License-Identifier: BSD-3-Clause
"""Trees around a recipe or a variant file of others, and what ``list`` says about them."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from subprocess import CompletedProcess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.corpus.attempts import Command

VARIANT_NAMES = ("conda_build_config.yaml", "variants.yaml", "variants.yml", "variant_config.yaml")
PINNING = "CHANNEL_TOOLS_CORPUS_PINNING"
"""The variable that names conda-forge's pinning, over which recipes are then read."""
_STACK = "corpus"


def list_recipe(command: Command, recipe: Path, tree: Path) -> CompletedProcess[str]:
    """``list`` of a tree with one recipe, a copy of the recipe's folder, and the variant file in it."""
    unwanted = shutil.ignore_patterns("*.tar*", "*.conda", ".git")
    shutil.copytree(recipe.parent, tree / "recipes" / "toy", symlinks=True, ignore=unwanted)
    found = [recipe.parent / name for name in VARIANT_NAMES if (recipe.parent / name).is_file()]
    _write_stack(tree, ["toy"], found[:1], pinning=os.environ.get(PINNING))
    return _list(command, tree)


def list_variants(command: Command, file: Path, keys: Sequence[str], tree: Path) -> CompletedProcess[str]:
    """``list`` of a tree with a variant file and a recipe for each key, which is built for each of its values."""
    names = [f"uses-{index}" for index, _ in enumerate(keys)] or ["toy"]
    for index, name in enumerate(names):
        folder = tree / "recipes" / name
        folder.mkdir(parents=True)
        recipe = {
            "package": {"name": name, "version": "1"},
            "build": {"variant": {"use_keys": keys[index : index + 1]}},
        }
        (folder / "recipe.yaml").write_text(json.dumps(recipe))
    _write_stack(tree, names, [file], pinning=None)
    return _list(command, tree)


def count_outputs(output: str) -> int:
    """The packages in what ``list --json`` printed, each once for all of its variants."""
    return len({package["package"] for package in json.loads(output)["packages"]})


def count_variants(output: str) -> int:
    """The packages in what ``list --json`` printed, once for each of their variants."""
    return len(json.loads(output)["packages"])


def _write_stack(tree: Path, packages: list[str], variants: list[Path], *, pinning: str | None) -> None:
    (tree / "variants").mkdir()
    for file in variants:
        shutil.copy(file, tree / "variants" / file.name)
    stack = {
        "description": "a file of others",
        "variants": [file.name for file in variants],
        "packages": packages,
        "install": packages[:1],
    }
    stacks = {"default_stack": _STACK, "stacks": {_STACK: stack}, **({"pinning": pinning} if pinning else {})}
    (tree / "variants" / "stacks.yaml").write_text(json.dumps(stacks))


def _list(command: Command, tree: Path) -> CompletedProcess[str]:
    return command("list", "--variant", _STACK, "--foundation", "conda-forge", "--json", "--root", tree, cwd=tree)
