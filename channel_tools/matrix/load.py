# SPDX-License-Identifier: BSD-3-Clause
"""Reads a tree: every file is read once and checked before anything is planned.

All stacks are checked, not only the requested one: a mistake in a shared file affects every stack, and its author
should see it first. The settings of a stack's validation method are checked by the validate stage, which comes later in
the flow.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from channel_tools.conda.metadata import PLATFORMS
from channel_tools.conda.specs import InvalidSpecError, read_spec
from channel_tools.matrix.model import (
    FoundationKind,
    LoadedTree,
    RecipeFile,
    Stack,
    StacksFile,
    VariantFile,
)
from channel_tools.matrix.pinning import read_pinning
from channel_tools.matrix.variants import find_used_keys, merge_variant_files, notes_on_unused_keys, read_variant_file
from channel_tools.system.errors import ConfigError, UsageError, nearest_names_hint
from channel_tools.system.schedulers import BuildResources
from channel_tools.system.yamlfile import read_yaml

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from pydantic_core import ErrorDetails

    from channel_tools.matrix.pinning_lock import PinnedPackage
    from channel_tools.system.settings import Tree
    from channel_tools.system.yamlfile import YamlDocument

PINS_FILE = "pins.yaml"
RECIPE_FILE = "recipe.yaml"
OLD_RECIPE_FILE = "meta.yaml"
_Plain = bool | int | float | str | list[str] | dict[str, str]
_Setting = _Plain | list[dict[str, _Plain]]
_Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_.-]*$")]


def foundation_file(kind: FoundationKind) -> str:
    """The name of the variant file with the values specific to this kind of foundation."""
    return f"foundation-{kind}.yaml"


def variant_file_names(stack: Stack, kind: FoundationKind) -> tuple[str, ...]:
    """The variant files of a stack in the order they are applied; only those that the stack names must exist."""
    own = [name for file in stack.variants for name in (file, on_foundation(file, kind))]
    return (PINS_FILE, foundation_file(kind), *own)


def on_foundation(file: str, kind: FoundationKind) -> str:
    """The name of the variant file with what differs from ``file`` on this kind of foundation."""
    return f"{file.removesuffix('.yaml')}-{kind}.yaml"


def load_tree(
    tree: Tree, environ: Mapping[str, str] = MappingProxyType({}), *, pinned: PinnedPackage | None = None
) -> LoadedTree:
    """Read and check stacks, variant files and recipes, without rendering.

    ``environ`` are the environment variables that selectors of variant files may ask for. ``pinned`` stands for the
    version of conda-forge's pinning that the tree names, which then need not be in the tree.
    Raises ConfigError (file, line, nearest names) for invalid YAML, duplicate keys, values other than lists, zip_keys
    of unequal length, a recipe of the format before v1, and a stack that names a recipe or variant file that does not
    exist.
    """
    file = read_stacks(tree.stacks_file)
    document, stacks = file.document, file.stacks
    recipes = {recipe.name: recipe for recipe in _read_recipes(tree.recipes)}
    variant_files = _read_variant_files(tree.variants, document, stacks, environ)
    _check_packages(file, recipes)
    used_keys = frozenset().union(*(recipe.used_keys for recipe in recipes.values()))
    loaded = LoadedTree(
        tree=tree,
        stacks=stacks,
        default_stack=file.default_stack,
        resources=file.resources,
        recipes=recipes,
        variant_files=variant_files,
        pinning=read_pinning(file, tree.root, recipes, environ, pinned),
        notes=tuple(notes_on_unused_keys(variant_files.values(), used_keys)),
    )
    for stack in stacks.values():
        for kind in get_args(FoundationKind):
            for platform in PLATFORMS:
                merge_variant_files(files_of_stack(loaded, stack, kind, platform))
    return loaded


def files_of_stack(
    loaded: LoadedTree, stack: Stack, kind: FoundationKind, platform: str, *, recipe: str | None = None
) -> list[VariantFile]:
    """The variant files that apply to a stack on a foundation and a platform, in order.

    ``recipe`` is a recipe folder that migrations of the pinning may exclude.
    """
    names = variant_file_names(stack, kind)
    files = [loaded.variant_files[name] for name in names if name in loaded.variant_files]
    pinning = loaded.pinning if kind == "conda-forge" else None
    below = [] if pinning is None else [pinning.for_recipe(recipe)]
    return [file.on(platform) for file in (*below, *files)]


def _read_recipes(folder: Path) -> Iterator[RecipeFile]:
    for path in sorted(folder.glob(f"*/{OLD_RECIPE_FILE}")):
        if not path.with_name(RECIPE_FILE).exists():
            message = f"a recipe in the format of conda-build before v1; expected {RECIPE_FILE} (CEP 13 and 14)"
            hint = f"write {RECIPE_FILE} (conda-recipe-manager converts most recipes), or move the folder away"
            raise ConfigError(message, path=path, hint=hint)
    for path in sorted(folder.glob(f"*/{RECIPE_FILE}")):
        document = read_yaml(path)
        if not isinstance(document.value, dict):
            message = "a recipe must be a mapping with the keys package, build, requirements ..."
            raise ConfigError(message, path=path, line=1, hint="see the other recipes of the tree")
        keys = find_used_keys(document.value)
        yield RecipeFile(name=path.parent.name, path=path, document=document, used_keys=keys)


def _read_variant_files(
    folder: Path, document: YamlDocument, stacks: Mapping[str, Stack], environ: Mapping[str, str]
) -> dict[str, VariantFile]:
    shared = [PINS_FILE, *(foundation_file(kind) for kind in get_args(FoundationKind))]
    files = {name: read_variant_file(folder / name, environ) for name in shared if (folder / name).is_file()}
    for stack in stacks.values():
        for index, name in enumerate(stack.variants):
            if name not in files:
                _check_variant_file(folder, document, stack, index)
                beside = [on_foundation(name, kind) for kind in get_args(FoundationKind)]
                there = [one for one in (name, *beside) if one == name or (folder / one).is_file()]
                files |= {one: read_variant_file(folder / one, environ) for one in there}
    return files


def _check_variant_file(folder: Path, document: YamlDocument, stack: Stack, index: int) -> None:
    name = stack.variants[index]
    known = sorted(path.name for path in folder.glob("*.yaml"))
    if name not in known:
        message = f"stack {stack.name!r} names the variant file {name!r}, which does not exist in {folder}"
        hint = nearest_names_hint(name, known, what="variant file")
        raise document.error(message, "stacks", stack.name, "variants", index, hint=hint)


def _check_packages(file: StacksFile, recipes: Mapping[str, RecipeFile]) -> None:
    document = file.document
    for name in file.resources:
        if name not in recipes:
            message = f"resources names {name!r}, but there is no recipes/{name}/{RECIPE_FILE}"
            raise document.error(message, "resources", name, hint=nearest_names_hint(name, recipes, what="recipe"))
    for stack in file.stacks.values():
        for index, name in enumerate(stack.packages):
            if name not in recipes:
                message = (
                    f"stack {stack.name!r} names the package {name!r}, but there is no recipes/{name}/{RECIPE_FILE}"
                )
                hint = nearest_names_hint(name, recipes, what="recipe")
                raise document.error(message, "stacks", stack.name, "packages", index, hint=hint)


class _Model(BaseModel):
    # descriptions are for editors; if they were docstrings of attributes, every command would parse this file for them
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)


class _ValidationModel(BaseModel):
    """``method`` and its own settings: plain values, lists of strings, mappings of strings, lists of such mappings."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True, title="Validation", defer_build=True)
    __pydantic_extra__: dict[str, _Setting]

    method: Literal["distributed", "nccl", "switchml"] = Field(
        description="How the installed stack is validated; its settings: docs/how-to/validate.md."
    )


class _StackModel(_Model):
    """A stack: what ``--variant NAME`` builds, installs and validates."""

    model_config = ConfigDict(title="Stack")

    description: str = Field(description="One line for ``channel_tools list``.")
    variants: list[str] = Field(
        default=[], description="Variant files in this folder, in addition to those that apply to every stack."
    )
    packages: list[_Name] = Field(min_length=1, description="The recipes to build.")
    install: list[str] = Field(min_length=1, description="MatchSpecs that a user of the stack installs.")
    validate_: _ValidationModel | None = Field(
        alias="validate", default=None, description="How to validate it; without this key it cannot be validated."
    )


class _ResourcesModel(_Model):
    """What a build may use; other values come from earlier builds, else from the scheduler's profile."""

    model_config = ConfigDict(title="Resources")

    cores: int | None = Field(default=None, ge=1, description="Cores.")
    memory_mib: int | None = Field(default=None, ge=1, description="Memory in MiB.")
    minutes: int | None = Field(default=None, ge=1, description="Wall time in minutes.")


class _StacksModel(_Model):
    """The stacks of a tree of recipes (variants/stacks.yaml)."""

    model_config = ConfigDict(title="Stacks")

    default_stack: _Name = Field(description="The stack that commands use without ``--variant``.")
    stacks: dict[_Name, _StackModel] = Field(min_length=1, description="Stacks by name.")
    pinning: str | None = Field(
        default=None,
        description="A version of conda-forge-pinning, which channel_tools foundation lock takes into the tree, or the "
        "path of a conda_build_config.yaml or its folder, relative to the tree: on conda-forge, its values hold for "
        "keys that the variant files leave out.",
    )
    migrations: list[str] = Field(
        default=[], description="conda-forge's migrations that are applied to the pinning, by name: pytorch213."
    )
    resources: dict[_Name, _ResourcesModel] = Field(
        default={}, description="The resources of a cluster's jobs, by the recipe that they build."
    )


def stacks_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of stacks.yaml, for editors."""
    return _StacksModel.model_json_schema()


def read_stacks(path: Path) -> StacksFile:
    """Read the file; the stacks keep their order.

    Raises ConfigError (file, line) for a wrong shape, a MatchSpec that does not parse, or an unknown default stack.
    """
    document = read_yaml(path)
    try:
        model = _StacksModel.model_validate(document.value if document.value is not None else {})
    except ValidationError as err:
        raise _shape_error(document, err.errors()[0]) from None
    stacks = {name: _make_stack(document, name, item) for name, item in model.stacks.items()}
    if model.default_stack not in stacks:
        message = f"default_stack names {model.default_stack!r}, which is not a stack of this file"
        hint = nearest_names_hint(model.default_stack, stacks, what="stack")
        raise document.error(message, "default_stack", hint=hint)
    resources = {name: BuildResources(**item.model_dump()) for name, item in model.resources.items()}
    return StacksFile(
        document=document,
        stacks=stacks,
        default_stack=model.default_stack,
        resources=resources,
        pinning=model.pinning,
        migrations=tuple(model.migrations),
    )


def _make_stack(document: YamlDocument, name: str, model: _StackModel) -> Stack:
    install = [
        _normalised_spec(document, spec, ("stacks", name, "install", index)) for index, spec in enumerate(model.install)
    ]
    return Stack(
        name=name,
        description=model.description,
        variants=tuple(model.variants),
        packages=tuple(model.packages),
        install=tuple(install),
        validation={} if model.validate_ is None else model.validate_.model_dump(),
    )


def _normalised_spec(document: YamlDocument, spec: str, key_path: tuple[str | int, ...]) -> str:
    """Convert the command line's form (``libtoy=*=udp*``) to the one that every client accepts (``libtoy * udp*``)."""
    try:
        return str(read_spec(spec))
    except InvalidSpecError as err:
        raise document.error(str(err), *key_path, hint="write for example  pytorch-switchml  or  numpy >=2") from None


def _shape_error(document: YamlDocument, detail: ErrorDetails) -> ConfigError:
    location = detail["loc"]
    name = ".".join(str(part) for part in location)
    hint = "docs/reference/variants.md lists the keys of this file"
    if detail["type"] == "extra_forbidden":
        return document.error(f"unknown key {name}", *location, hint=hint)
    if detail["type"] == "missing":
        return document.error(f"{name} is missing", *location, hint=hint)
    found = f", found {detail['input']!r}" if isinstance(detail["input"], str | int | float | bool) else ""
    return document.error(f"{name}: {detail['msg']}{found}" if name else detail["msg"], *location, hint=hint)


def find_stack(loaded: LoadedTree, name: str | None) -> Stack:
    """The stack ``name``, the default one for None. Raises UsageError with the nearest names."""
    wanted = loaded.default_stack if name is None else name
    if (stack := loaded.stacks.get(wanted)) is not None:
        return stack
    message = f"{wanted!r} is not a stack of {loaded.tree.stacks_file}"
    raise UsageError(message, hint=nearest_names_hint(wanted, loaded.stacks, what="stack"))
