# SPDX-License-Identifier: BSD-3-Clause
"""The smallest tree that every command works in: one recipe without sources, one stack, one variant."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_FILES = {
    "recipes/toy/recipe.yaml": """\
schema_version: 1
package: {name: toy, version: '1.0'}
build: {noarch: generic, number: 0, script: "echo ${{ flavour }}"}
about: {license: BSD-3-Clause, homepage: "https://toy.example", summary: toy}
""",
    "variants/toy.yaml": "flavour: [plain]\n",
    "variants/stacks.yaml": """\
default_stack: toy
stacks:
  toy:
    description: one small package
    variants: [toy.yaml]
    packages: [toy]
    install: [toy]
    validate: {method: switchml}
""",
}


def write_toy_tree(root: Path) -> Path:
    """The files under ``root``, which is made where it is missing; returns the recipe's file."""
    for name, text in _FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    return root / "recipes" / "toy" / "recipe.yaml"
