# SPDX-License-Identifier: BSD-3-Clause
"""Reads a tree: every file is read once and checked before anything is planned.

All stacks are checked, not only the requested one: a mistake in a shared file affects every stack, and its author
should see it first. The settings of a stack's validation method are checked by the validate stage, which comes later in
the flow.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, get_args

from channel_tools.conda.metadata import PLATFORMS
from channel_tools.matrix.model import (
    LoadedTree,
    RecipeFile,
    Stack,
    StacksFile,
    VariantFile,
)
from channel_tools.matrix.overrides import check_overrides
from channel_tools.matrix.pinning import read_pinning
from channel_tools.matrix.profiles import check_default_profile, find_profiles, profile_variants
from channel_tools.matrix.site import upstream_trees
from channel_tools.matrix.stacks import read_every_stack
from channel_tools.matrix.variants import (
    PINS_FILE,
    base_file,
    find_used_keys,
    foundation_file,
    merge_variant_files,
    notes_on_unused_keys,
    on_foundation,
    read_variant_file,
    variant_file_names,
)
from channel_tools.requests.names import FIRST_BASE, BaseName, FoundationKind
from channel_tools.system.errors import ConfigError, UsageError, nearest_names_hint
from channel_tools.system.settings import RECIPE_FILE, Tree, has_stacks
from channel_tools.system.yamlfile import read_yaml

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from channel_tools.system.yamlfile import YamlDocument

BESIDE_RECIPE = ("variants.yaml", "conda_build_config.yaml")
"""Variant files that rattler-build and conda-build read beside a recipe."""
_DATA = Path(__file__).parent / "data"
OLD_RECIPE_FILE = "meta.yaml"


def load_tree(tree: Tree, environ: Mapping[str, str] = MappingProxyType({})) -> LoadedTree:
    """Read and check stacks, variant files and recipes, without rendering.

    ``environ`` are the environment variables that selectors of variant files may ask for.
    Raises ConfigError (file, line, nearest names) for invalid YAML, duplicate keys, values other than lists, zip_keys
    of unequal length, a recipe of the format before v1, and a stack that names a recipe or variant file that does not
    exist.
    """
    if tree.recipe is not None:
        return _load_recipe(tree, tree.recipe, environ)
    if not tree.has_recipes:
        return _load_stacks(tree)
    upstreams = upstream_trees(tree)
    files, stacks = read_every_stack(tree, upstreams)
    file = files[""]
    trees = {"": tree, **upstreams}
    recipes = {recipe.name: recipe for site in reversed(list(trees.values())) for recipe in _read_recipes(site.recipes)}
    variant_files = _read_variant_files(trees, files, environ)
    for stacks_file in files.values():
        _check_packages(stacks_file, recipes)
    for stack in stacks.values():
        check_overrides(stack, recipes)
    used_keys = frozenset().union(*(recipe.used_keys for recipe in recipes.values()))
    own = [item for items in variant_files.values() for item in items if item.path.parent == tree.variants]
    loaded = LoadedTree(
        tree=tree,
        stacks=stacks,
        default_stack=file.default_stack,
        resources={key: value for item in reversed(list(files.values())) for key, value in item.resources.items()},
        recipes=recipes,
        variant_files=variant_files,
        pinning=read_pinning(file, tree.root, recipes, environ),
        profiles=find_profiles(trees.values(), recipes.values()),
        notes=tuple(notes_on_unused_keys(own, used_keys)),
    )
    loaded = replace(loaded, default_profile=check_default_profile(loaded))
    for stack in stacks.values():
        for kind in get_args(FoundationKind):
            for platform in PLATFORMS:
                for name in (None, *stack.overrides):
                    merge_variant_files(files_of_stack(loaded, stack, kind, platform, recipe=name))
    return loaded


def _load_stacks(tree: Tree) -> LoadedTree:
    """Stacks without their recipes, the upstreams' among them in the order of their names."""
    upstreams = {path.name: Tree(root=path) for path in sorted(tree.upstreams.glob("*")) if has_stacks(path)}
    files, stacks = read_every_stack(tree, upstreams)
    return LoadedTree(
        tree=tree, stacks=stacks, default_stack=files[""].default_stack, resources={}, recipes={}, variant_files={}
    )


def _load_recipe(tree: Tree, path: Path, environ: Mapping[str, str]) -> LoadedTree:
    """One recipe as a tree with one stack, with the variant files beside it over those of a new tree."""
    recipe = _read_recipe(path)
    files: dict[str, tuple[VariantFile, ...]] = {}
    for name in (PINS_FILE, *(foundation_file(kind) for kind in get_args(FoundationKind))):
        files[name] = (read_variant_file(_DATA / name, environ).as_base(),)
    files |= _base_files(environ)
    beside = [
        read_variant_file(path.with_name(name), environ) for name in BESIDE_RECIPE if path.with_name(name).is_file()
    ]
    files |= {file.path.name: (file,) for file in beside}
    stack = Stack(
        name=recipe.name,
        description=f"the recipe {path}",
        variants=tuple(file.path.name for file in beside),
        packages=(recipe.name,),
        install=(),
        validation={},
    )
    return LoadedTree(
        tree=tree,
        stacks={stack.name: stack},
        default_stack=stack.name,
        resources={},
        recipes={recipe.name: recipe},
        variant_files=files,
        notes=tuple(notes_on_unused_keys(beside, recipe.used_keys)),
    )


def files_of_stack(
    loaded: LoadedTree,
    stack: Stack,
    kind: FoundationKind,
    platform: str,
    *,
    base: BaseName | None = None,
    recipe: str | None = None,
) -> list[VariantFile]:
    """The variant files that apply to a stack on a foundation and a platform, in order.

    ``base`` is the Debian release that a registry foundation is made from, None for the first. ``recipe`` is a recipe
    folder for which the stack may override values.
    """
    names = variant_file_names(stack, kind, base)
    files = [file for name in names for file in loaded.variant_files.get(name, ())]
    below = [loaded.pinning] if loaded.pinning is not None and kind == "conda-forge" else []
    override = stack.overrides.get(recipe) if recipe is not None else None
    above = [override.variants] if override is not None and override.variants is not None else []
    read = [file.on(platform) for file in (*below, *files)]
    return [*read, *profile_variants(loaded, read), *above]


def _read_recipes(folder: Path) -> Iterator[RecipeFile]:
    for path in sorted(folder.glob(f"*/{OLD_RECIPE_FILE}")):
        if not path.with_name(RECIPE_FILE).exists():
            message = f"a recipe in the format of conda-build before v1; expected {RECIPE_FILE} (CEP 13 and 14)"
            hint = f"write {RECIPE_FILE} (conda-recipe-manager converts most recipes), or move the folder away"
            raise ConfigError(message, path=path, hint=hint)
    for path in sorted(folder.glob(f"*/{RECIPE_FILE}")):
        yield _read_recipe(path)


def _read_recipe(path: Path) -> RecipeFile:
    document = read_yaml(path)
    if not isinstance(document.value, dict):
        message = "a recipe must be a mapping with the keys package, build, requirements ..."
        raise ConfigError(message, path=path, line=1, hint="see the other recipes of the tree")
    return RecipeFile(name=path.parent.name, path=path, document=document, used_keys=find_used_keys(document.value))


def _read_variant_files(
    trees: Mapping[str, Tree], files: Mapping[str, StacksFile], environ: Mapping[str, str]
) -> dict[str, tuple[VariantFile, ...]]:
    """The shared files of every tree, and each file that a stack names of the first tree that has it."""
    variant_files = _base_files(environ)
    shared = (PINS_FILE, *(foundation_file(kind) for kind in get_args(FoundationKind)), *variant_files)
    for name in shared:
        places = [tree.variants / name for tree in reversed(list(trees.values())) if (tree.variants / name).is_file()]
        read = [read_variant_file(path, environ) for path in places]
        if read:
            variant_files[name] = (
                *variant_files.get(name, ()),
                *(item if item.path.parent == trees[""].variants else item.as_base() for item in read),
            )
    folders = [tree.variants for tree in trees.values()]
    for file in files.values():
        for stack in file.stacks.values():
            for index, name in enumerate(stack.variants):
                if name not in variant_files:
                    folder = _folder_with(folders, file.document, stack, index)
                    beside = [on_foundation(name, kind) for kind in get_args(FoundationKind)]
                    present = [
                        file_name
                        for file_name in (name, *beside)
                        if file_name == name or (folder / file_name).is_file()
                    ]
                    variant_files |= {
                        file_name: (read_variant_file(folder / file_name, environ),) for file_name in present
                    }
    return variant_files


def _base_files(environ: Mapping[str, str]) -> dict[str, tuple[VariantFile, ...]]:
    """The program's own values for the Debian releases that differ from the first, which every tree has."""
    names = [base_file(base) for base in get_args(BaseName) if base != FIRST_BASE]
    return {name: (read_variant_file(_DATA / name, environ).as_base(),) for name in names}


def _folder_with(folders: Sequence[Path], document: YamlDocument, stack: Stack, index: int) -> Path:
    """The first of the folders that has a variant file of the stack."""
    name = stack.variants[index]
    known = {path.name: folder for folder in reversed(folders) for path in sorted(folder.glob("*.yaml"))}
    if name not in known:
        message = f"stack {stack.name!r} names the variant file {name!r}, which does not exist in {folders[0]}"
        hint = nearest_names_hint(name, known, noun="variant file")
        raise document.error(message, "stacks", stack.name, "variants", index, hint=hint)
    return known[name]


def _check_packages(file: StacksFile, recipes: Mapping[str, RecipeFile]) -> None:
    document = file.document
    for index, name in enumerate(file.with_every_stack):
        if name not in recipes:
            message = f"with_every_stack names {name!r}, but there is no recipes/{name}/{RECIPE_FILE}"
            hint = nearest_names_hint(name, recipes, noun="recipe")
            raise document.error(message, "with_every_stack", index, hint=hint)
    for name in file.resources:
        if name not in recipes:
            message = f"resources names {name!r}, but there is no recipes/{name}/{RECIPE_FILE}"
            raise document.error(message, "resources", name, hint=nearest_names_hint(name, recipes, noun="recipe"))
    for stack in file.stacks.values():
        for index, name in enumerate(stack.packages):
            if name not in recipes:
                message = (
                    f"stack {stack.name!r} names the package {name!r}, but there is no recipes/{name}/{RECIPE_FILE}"
                )
                hint = nearest_names_hint(name, recipes, noun="recipe")
                raise document.error(message, "stacks", stack.name, "packages", index, hint=hint)


def find_stack(loaded: LoadedTree, name: str | None) -> Stack:
    """The stack ``name``, the default one for None. Raises UsageError with the nearest names."""
    wanted = loaded.default_stack if name is None else name
    if (stack := loaded.stacks.get(wanted)) is not None:
        return stack
    stacks_file = loaded.tree.stacks_file if loaded.tree.has_recipes else "the package channel_tools-stacks"
    message = f"{wanted!r} is not a stack of {stacks_file}"
    raise UsageError(message, hint=nearest_names_hint(wanted, loaded.stacks, noun="stack"))
