# SPDX-License-Identifier: BSD-3-Clause
"""Reads stacks.yaml: what ``--variant NAME`` builds, installs and validates.

The settings of a stack's validation method are checked by the validate stage, which comes later in the flow.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from channel_tools.conda.specs import InvalidSpecError, read_spec, spec_name
from channel_tools.matrix.model import Override, Stack, StacksFile, VariantFile
from channel_tools.requests.names import BaseName  # noqa: TC001 - pydantic reads the annotations
from channel_tools.system.errors import nearest_names_hint
from channel_tools.system.files import located
from channel_tools.system.schedulers import BuildResources
from channel_tools.system.yamlfile import YamlDocument, read_yaml

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from channel_tools.system.settings import Tree
    from channel_tools.system.yamlfile import KeyPath

_HINT = "docs/reference/variants.md lists the keys of this file"
_Plain = bool | int | float | str | list[str] | dict[str, str]
_Setting = _Plain | list[dict[str, _Plain]]
_Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_.-]*$")]


MethodName = Literal["distributed", "nccl", "switchml"]
"""The methods of validating a stack, each with a folder of its name in ``validate/``."""


class _StrictModel(BaseModel):
    # descriptions are for editors; if they were docstrings of attributes, every command would parse this file for them
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)


class _ValidationModel(BaseModel):
    """``method`` and its own settings: plain values, lists of strings, mappings of strings, lists of such mappings."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True, title="Validation", defer_build=True)
    __pydantic_extra__: dict[str, _Setting]

    method: MethodName = Field(
        description="How the installed stack is validated; its settings: docs/how-to/validate.md."
    )


class _OverrideModel(_StrictModel):
    """What a stack changes in a recipe without a copy of it."""

    model_config = ConfigDict(title="Override")

    patches: str | None = Field(
        default=None,
        description="A folder of the tree with further patches (*.patch), or with a folder of them for each version.",
    )
    version: str | None = Field(default=None, description="Another version of the software; needs sha256.")
    sha256: str | None = Field(
        default=None, pattern=r"^[0-9a-f]{64}$", description="The sha256 of the source of that version."
    )
    variants: dict[str, list[str]] = Field(default={}, description="Values of variant keys, for this recipe alone.")
    environment: dict[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")], str] = Field(
        default={}, description="Environment variables that activation sets and deactivation undoes."
    )


class _StackModel(_StrictModel):
    """A stack: what ``--variant NAME`` builds, installs and validates."""

    model_config = ConfigDict(title="Stack")

    description: str = Field(default="", description="One line for ``channel_tools list``.")
    extends: _Name | None = Field(
        default=None, description="A stack whose parts this one has, too; packages and install add to those."
    )
    variants: list[str] = Field(
        default=[], description="Variant files in this folder, in addition to those that apply to every stack."
    )
    packages: list[_Name] = Field(default=[], description="The recipes to build.")
    install: list[str] = Field(default=[], description="MatchSpecs that a user of the stack installs.")
    overrides: dict[_Name, _OverrideModel] = Field(
        default={}, description="Changes to recipes of this stack, by the recipe's folder."
    )
    unserved: dict[BaseName | Literal["debian-pytorch"], str] = Field(
        default={},
        description="Why it is not built on the registry foundation of a Debian release, by the release (--base), or "
        "on one with Debian's own PyTorch (``debian-pytorch``).",
    )
    validate_: _ValidationModel | None = Field(
        alias="validate", default=None, description="How to validate it; without this key it cannot be validated."
    )


class _ResourcesModel(_StrictModel):
    """What a build may use; other values come from earlier builds, else from the scheduler's profile."""

    model_config = ConfigDict(title="Resources")

    cores: int | None = Field(default=None, ge=1, description="Cores.")
    memory_mib: int | None = Field(default=None, ge=1, description="Memory in MiB.")
    minutes: int | None = Field(default=None, ge=1, description="Wall time in minutes.")


class _StacksModel(_StrictModel):
    """The stacks of a tree of recipes (variants/stacks.yaml)."""

    model_config = ConfigDict(title="Stacks")

    default_stack: _Name = Field(description="The stack that commands use without ``--variant``.")
    stacks: dict[_Name, _StackModel] = Field(min_length=1, description="Stacks by name.")
    with_every_stack: list[_Name] = Field(
        default=[], description="Recipes that every stack of the tree builds besides its own packages."
    )
    pinning: str | None = Field(
        default=None,
        description="The path of a conda_build_config.yaml or its folder, relative to the tree: on conda-forge, its "
        "values hold for keys that the variant files leave out.",
    )
    resources: dict[_Name, _ResourcesModel] = Field(
        default={}, description="The resources of a cluster's jobs, by the recipe that they build."
    )


def stacks_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of stacks.yaml, for editors."""
    return _StacksModel.model_json_schema()


def read_stacks(path: Path, *, upstream: str | None = None, has_recipes: bool = True) -> StacksFile:
    """Read the file, of the tree itself or of an upstream; the stacks keep their order.

    Without the recipes that it names, overrides of these are left out: they change only what is built.

    Raises ConfigError (file, line) for a wrong shape, a MatchSpec that does not parse, or an unknown default stack.
    """
    document = read_yaml(path)
    if isinstance(document.value, dict) and "migrations" in document.value:
        message = "migrations are no longer applied to the pinning"
        hint = "write their values into a variant file of the tree, and remove the key"
        raise document.error(message, "migrations", hint=hint)
    try:
        model = _StacksModel.model_validate(document.value if document.value is not None else {})
    except ValidationError as err:
        raise document.shape_error(err.errors()[0], hint=_HINT) from None
    items = model.stacks.items()
    stacks = {name: _make_stack(document, name, item, upstream, has_recipes=has_recipes) for name, item in items}
    if model.default_stack not in stacks:
        message = f"default_stack names {model.default_stack!r}, which is not a stack of this file"
        hint = nearest_names_hint(model.default_stack, stacks, noun="stack")
        raise document.error(message, "default_stack", hint=hint)
    resources = {name: BuildResources(**item.model_dump()) for name, item in model.resources.items()}
    return StacksFile(
        document=document,
        stacks=stacks,
        default_stack=model.default_stack,
        resources=resources,
        with_every_stack=tuple(model.with_every_stack),
        pinning=model.pinning,
    )


def _make_stack(
    document: YamlDocument, name: str, model: _StackModel, upstream: str | None, *, has_recipes: bool
) -> Stack:
    key_path = ("stacks", name)
    for key, value in (("description", model.description), ("packages", model.packages), ("install", model.install)):
        if not value and model.extends is None:
            state = "missing" if (*key_path, key) not in document.lines else "empty"
            raise document.error(f"stacks.{name}.{key} is {state}", *key_path, key, hint=_HINT)
    install = [
        _normalised_spec(document, spec, (*key_path, "install", index)) for index, spec in enumerate(model.install)
    ]
    return Stack(
        name=name,
        description=model.description,
        variants=tuple(model.variants),
        packages=tuple(model.packages),
        install=tuple(install),
        validation={} if model.validate_ is None else model.validate_.model_dump(),
        extends=model.extends,
        overrides={
            recipe: _make_override(document, (*key_path, "overrides", recipe), recipe, item)
            for recipe, item in (model.overrides.items() if has_recipes else ())
        },
        upstream=upstream,
        unserved={str(base): reason for base, reason in model.unserved.items()},
    )


def _make_override(document: YamlDocument, key_path: tuple[str, ...], recipe: str, model: _OverrideModel) -> Override:
    patches = None if model.patches is None else located(document.path.parent.parent, model.patches)
    if patches is not None and not patches.is_dir():
        message = f"there is no folder {patches}"
        raise document.error(message, *key_path, "patches", hint="name it relative to the tree: patches/PACKAGE")
    if (model.version is None) != (model.sha256 is None):
        message = "an override has both version and sha256, or neither"
        raise document.error(message, *key_path, hint="the source of another version has another sha256")
    return Override(
        document=document,
        key_path=key_path,
        recipe=recipe,
        patches=patches,
        version=model.version,
        sha256=model.sha256,
        variants=_variants_of(document, (*key_path, "variants"), model.variants),
        environment=model.environment,
    )


def _variants_of(
    document: YamlDocument, key_path: tuple[str, ...], values: Mapping[str, Sequence[str]]
) -> VariantFile | None:
    if not values:
        return None
    for key, items in values.items():
        if not items:
            raise document.error(f"{key} has no values", *key_path, key, hint="give at least one, or leave the key out")
    lines: dict[KeyPath, int] = {(key,): document.line_of(*key_path, key) for key in values}
    part = YamlDocument(
        path=document.path, value={key: list(items) for key, items in values.items()}, lines=lines, spellings={}
    )
    return VariantFile(document=part, values={key: tuple(items) for key, items in values.items()}, zip_keys=None)


def read_every_stack(tree: Tree, upstreams: Mapping[str, Tree]) -> tuple[dict[str, StacksFile], dict[str, Stack]]:
    """Every stacks.yaml, the tree's own under "", and every stack by name, with the parts of those that they extend.

    The tree's own stacks come first and hide upstreams' of the same name, which they may extend; an earlier upstream's
    hide a later one's. Raises as read_stacks, and ConfigError for a stack that extends one that does not exist, or
    itself.
    """
    files = {"": read_stacks(tree.stacks_file, has_recipes=tree.has_recipes)}
    for name, upstream in upstreams.items():
        files[name] = read_stacks(upstream.stacks_file, upstream=name, has_recipes=tree.has_recipes)
    stacks: dict[str, Stack] = {}
    for depth in range(len(files)):
        layers = list(files.values())[depth:]
        for name in layers[0].stacks:
            if name not in stacks:
                stack = _extended(layers, name, ())
                packages = dict.fromkeys((*stack.packages, *layers[0].with_every_stack))
                stacks[name] = replace(stack, packages=tuple(packages))
    return files, stacks


def _extended(layers: Sequence[StacksFile], name: str, seen: tuple[tuple[str, str], ...]) -> Stack:
    """The stack ``name`` of the first layer that has it, with the parts of what it extends."""
    depth = next(index for index, file in enumerate(layers) if name in file.stacks)
    file, stack = layers[depth], layers[depth].stacks[name]
    if stack.extends is None:
        return stack
    key_path = ("stacks", name, "extends")
    below = layers[depth + 1 :] if stack.extends == name else layers[depth:]
    known = {other for layer in below for other in layer.stacks}
    if stack.extends not in known:
        message = f"stack {name!r} extends {stack.extends!r}, which is not a stack of this tree or its upstreams"
        raise file.document.error(message, *key_path, hint=nearest_names_hint(stack.extends, known, noun="stack"))
    key = (str(file.document.path), name)
    if key in seen:
        circle = " and ".join(dict.fromkeys(extending for _path, extending in seen))
        message = f"stack {name!r} extends itself, by way of {circle}"
        raise file.document.error(message, *key_path, hint="leave out one extends of the circle")
    base = _extended(below, stack.extends, (*seen, key))
    own = {spec_name(spec) for spec in stack.install}
    return replace(
        stack,
        description=stack.description or base.description,
        variants=tuple(dict.fromkeys((*base.variants, *stack.variants))),
        packages=tuple(dict.fromkeys((*base.packages, *stack.packages))),
        install=(*(spec for spec in base.install if spec_name(spec) not in own), *stack.install),
        validation=stack.validation or base.validation,
        overrides={**base.overrides, **stack.overrides},
        unserved={**base.unserved, **stack.unserved},
    )


def _normalised_spec(document: YamlDocument, spec: str, key_path: tuple[str | int, ...]) -> str:
    """Convert the command line's form (``libtoy=*=udp*``) to the one that every client accepts (``libtoy * udp*``)."""
    try:
        return str(read_spec(spec))
    except InvalidSpecError as err:
        raise document.error(str(err), *key_path, hint="write for example  pytorch-switchml  or  numpy >=2") from None
