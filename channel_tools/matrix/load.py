# SPDX-License-Identifier: BSD-3-Clause
"""Reading a tree: every file is read once and checked before anything is planned.

All stacks are checked, not only the one asked for: a mistake in a shared file concerns every stack, and whoever made it
should hear of it first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

from channel_tools.errors import ConfigError
from channel_tools.matrix.model import FoundationKind, LoadedTree, RecipeFile, VariantFile
from channel_tools.matrix.nearest import nearest_names_hint
from channel_tools.matrix.stacks import read_stacks
from channel_tools.matrix.usage import find_used_keys
from channel_tools.matrix.variants import check_keys_are_used, merge_variant_files, read_variant_file
from channel_tools.yamlfile import read_yaml

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from channel_tools.matrix.model import Stack
    from channel_tools.settings import Tree
    from channel_tools.yamlfile import YamlDocument

PINS_FILE = "pins.yaml"
RECIPE_FILE = "recipe.yaml"


def foundation_file(kind: FoundationKind) -> str:
    """The name of the variant file that holds what differs in a foundation of this kind."""
    return f"foundation-{kind}.yaml"


def variant_file_names(stack: Stack, kind: FoundationKind) -> tuple[str, ...]:
    """The variant files of a stack in the order they are applied; the first two may be absent from a tree."""
    return (PINS_FILE, foundation_file(kind), *stack.variants)


def load_tree(tree: Tree) -> LoadedTree:
    """Read and check stacks, variant files and recipes; nothing is rendered yet.

    Raises ConfigError (file, line, nearest names) for: no YAML, a key twice, a value that is no list, zip_keys that do
    not fit, a key that no recipe uses, a stack that names a recipe or variant file which does not exist.
    """
    document, stacks, default_stack = read_stacks(tree.stacks_file)
    recipes = {file.name: file for file in _read_recipes(tree.recipes)}
    variant_files = _read_variant_files(tree.variants, document, stacks)
    _check_packages(document, stacks, recipes)
    used_keys = frozenset().union(*(recipe.used_keys for recipe in recipes.values()))
    check_keys_are_used(variant_files.values(), used_keys)
    loaded = LoadedTree(
        tree=tree, stacks=stacks, default_stack=default_stack, recipes=recipes, variant_files=variant_files
    )
    for stack in stacks.values():
        for kind in get_args(FoundationKind):
            merge_variant_files(files_of_stack(loaded, stack, kind))
    return loaded


def files_of_stack(loaded: LoadedTree, stack: Stack, kind: FoundationKind) -> list[VariantFile]:
    """The variant files that apply to a stack on a foundation, in order."""
    names = variant_file_names(stack, kind)
    return [loaded.variant_files[name] for name in names if name in loaded.variant_files]


def _read_recipes(folder: Path) -> Iterator[RecipeFile]:
    for path in sorted(folder.glob(f"*/{RECIPE_FILE}")):
        document = read_yaml(path)
        if not isinstance(document.value, dict):
            message = "a recipe is a mapping with the keys package, build, requirements ..."
            raise ConfigError(message, path=path, line=1, hint="see the other recipes of the tree")
        keys = find_used_keys(document.value)
        yield RecipeFile(name=path.parent.name, path=path, document=document, used_keys=keys)


def _read_variant_files(folder: Path, document: YamlDocument, stacks: Mapping[str, Stack]) -> dict[str, VariantFile]:
    shared = [PINS_FILE, *(foundation_file(kind) for kind in get_args(FoundationKind))]
    files = {name: read_variant_file(folder / name) for name in shared if (folder / name).is_file()}
    for stack in stacks.values():
        for index, name in enumerate(stack.variants):
            if name not in files:
                _check_variant_file(folder, document, stack, index)
                files[name] = read_variant_file(folder / name)
    return files


def _check_variant_file(folder: Path, document: YamlDocument, stack: Stack, index: int) -> None:
    name = stack.variants[index]
    known = sorted(path.name for path in folder.glob("*.yaml"))
    if name not in known:
        message = f"stack {stack.name!r} names the variant file {name!r}, which does not exist in {folder}"
        hint = nearest_names_hint(name, known, what="variant file")
        raise document.error(message, "stacks", stack.name, "variants", index, hint=hint)


def _check_packages(document: YamlDocument, stacks: Mapping[str, Stack], recipes: Mapping[str, RecipeFile]) -> None:
    for stack in stacks.values():
        for index, name in enumerate(stack.packages):
            if name not in recipes:
                message = (
                    f"stack {stack.name!r} names the package {name!r}, but there is no recipes/{name}/{RECIPE_FILE}"
                )
                hint = nearest_names_hint(name, recipes, what="recipe")
                raise document.error(message, "stacks", stack.name, "packages", index, hint=hint)
