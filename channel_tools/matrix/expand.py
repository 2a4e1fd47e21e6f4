# SPDX-License-Identifier: BSD-3-Clause
"""Expands a stack on a foundation to its packages: one per recipe output and combination of the keys it uses."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, cast

from channel_tools.conda.addresses import has_secret, without_credentials
from channel_tools.conda.metadata import PLATFORMS
from channel_tools.conda.specs import InvalidSpecError, read_spec
from channel_tools.matrix.engine import RecipeEngine
from channel_tools.matrix.load import files_of_stack
from channel_tools.matrix.model import Pin, RecipeSource, RenderedPackage, TestRequirements
from channel_tools.matrix.overrides import overridden, with_version
from channel_tools.matrix.profiles import with_profile
from channel_tools.matrix.variants import merge_variant_files
from channel_tools.system.errors import UsageError, nearest_names_hint
from channel_tools.system.work_folder import temporary_folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from channel_tools.matrix.engine import EvaluatedRecipe
    from channel_tools.matrix.model import (
        LoadedTree,
        PinFunction,
        RecipeFile,
        Requirement,
        SourceKind,
        Stack,
        VariantMatrix,
    )
    from channel_tools.requests.names import BaseName, FoundationKind
    from channel_tools.system.errors import ConfigError
    from channel_tools.system.yamlfile import YamlValue

_PIN_FUNCTIONS: tuple[PinFunction, ...] = ("pin_compatible", "pin_subpackage")
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_KINDS: tuple[SourceKind, ...] = ("url", "git", "path")


def expand_stacks(
    loaded: LoadedTree,
    stacks: Iterable[Stack],
    *,
    foundation_kind: FoundationKind,
    base: BaseName | None = None,
    platform: str,
    packages: Sequence[str] = (),
) -> list[RenderedPackage]:
    """Render the recipes of each stack for every variant, in the stack's order of packages.

    ``base`` is the Debian release of a registry foundation, None for the first.
    ``packages`` (names of packages or recipe folders) limits the stack to these and their dependencies, unless empty.
    Raises ConfigError (file, line) for a recipe that does not render or whose version has a dash, UsageError for a
    package that a stack does not have.
    """
    rendered: list[RenderedPackage] = []
    with temporary_folder() as folder:
        engine = RecipeEngine(platform, folder)
        for stack in stacks:
            of_stack = []
            for name, matrix in _matrices(loaded, stack, foundation_kind, platform, base).items():
                override = stack.overrides.get(name)
                recipe = with_version(loaded.recipes[name], override)
                of_stack += [
                    _make_package(
                        stack,
                        recipe,
                        overridden(recipe, with_profile(recipe, evaluated, loaded.profiles), override),
                        platform,
                    )
                    for evaluated in engine.evaluate(recipe, matrix)
                ]
            rendered += _select(of_stack, stack, packages) if packages else of_stack
    return rendered


def choices_of_recipes(
    loaded: LoadedTree, kind: FoundationKind, *, base: BaseName | None = None
) -> dict[str, dict[str, frozenset[str]]]:
    """The values that the tree's stacks give each variant key on this kind of foundation, by recipe folder."""
    choices: dict[str, dict[str, frozenset[str]]] = {}
    for stack, platform in itertools.product(loaded.stacks.values(), PLATFORMS):
        for name, matrix in _matrices(loaded, stack, kind, platform, base).items():
            known = choices.setdefault(name, {})
            for key, values in matrix.values.items():
                known[key] = known.get(key, frozenset()) | frozenset(map(str, values))
    return choices


def _matrices(
    loaded: LoadedTree, stack: Stack, kind: FoundationKind, platform: str, base: BaseName | None
) -> dict[str, VariantMatrix]:
    """The matrix of each recipe of a stack: one for all but those that the stack overrides."""
    shared = merge_variant_files(files_of_stack(loaded, stack, kind, platform, base=base))
    return {
        name: merge_variant_files(files_of_stack(loaded, stack, kind, platform, base=base, recipe=name))
        if name in stack.overrides
        else shared
        for name in dict.fromkeys(stack.packages)
    }


def _select(rendered: Iterable[RenderedPackage], stack: Stack, wanted: Sequence[str]) -> list[RenderedPackage]:
    """The requested packages, and their dependencies for building, running and testing among the others.

    Recipes may skip every variant on this platform: then only the recipe folder's name is known. If all do, any name
    may be that of a package.
    """
    by_name: dict[str, list[RenderedPackage]] = {}
    for package in rendered:
        by_name.setdefault(package.name, []).append(package)
    folders = {name: {package.recipe_file.name for package in items} for name, items in by_name.items()}
    open_names = []
    for name in wanted:
        own_names = [own for own in by_name if own == name or name in folders[own]]
        if not own_names and by_name and name not in stack.packages:
            known = sorted({*by_name, *stack.packages})
            message = f"{name!r} is not a package of the stack {stack.name!r}"
            raise UsageError(message, hint=nearest_names_hint(name, known, noun="package"))
        open_names += own_names
    chosen: set[str] = set()
    while open_names:
        name = open_names.pop()
        if name not in chosen:
            chosen.add(name)
            open_names += [item for own in by_name[name] for item in own.requirement_names() if item in by_name]
    return [package for name, items in by_name.items() if name in chosen for package in items]


def _make_package(stack: Stack, recipe_file: RecipeFile, evaluated: EvaluatedRecipe, platform: str) -> RenderedPackage:
    recipe = evaluated.recipe
    package = _mapping(recipe.get("package"))
    build = _mapping(recipe.get("build"))
    requirements = _mapping(recipe.get("requirements"))
    if "-" in (version := str(package["version"])):
        message = f"the version {version} has a '-', which separates name, version and build string in file names"
        raise recipe_file.document.error(message, "package", "version", hint=f"write {version.replace('-', '.')}")
    # for an exact pin between outputs, the engine adds a variant key with the build string that it gives the other one;
    # our build string differs, so the key only identifies the build
    outputs = {name.replace("-", "_"): name for name in _output_names(recipe_file.document.value)}
    tests = recipe.get("tests")
    sections = [_mapping(_mapping(test).get("requirements")) for test in tests] if isinstance(tests, list) else []
    rendered = RenderedPackage(
        stack=stack.name,
        name=str(package["name"]),
        version=version,
        build_number=int(cast("int", build.get("number") or 0)),
        engine_build_string=str(build["string"]),
        engine_hash=evaluated.hash,
        subdir="noarch" if build.get("noarch") else platform,
        platform=platform,
        recipe=recipe,
        recipe_file=recipe_file,
        variant={key: value for key, value in sorted(evaluated.variant.items()) if key not in outputs},
        siblings={
            outputs[key]: read_spec(f"{outputs[key]} {value}").build or ""
            for key, value in evaluated.variant.items()
            if key in outputs
        },
        sources=read_sources(recipe, recipe_file),
        build=read_requirements(requirements.get("build")),
        host=read_requirements(requirements.get("host")),
        run=read_requirements(requirements.get("run")),
        tests=tuple(
            TestRequirements(build=read_requirements(section.get("build")), run=read_requirements(section.get("run")))
            for section in sections
            if section
        ),
    )
    try:
        rendered.requirement_names()
    except InvalidSpecError as err:
        raise recipe_file.document.error(f"the requirement {err}", hint=err.hint) from None
    return rendered


def _output_names(recipe: YamlValue) -> Iterator[str]:
    outputs = recipe.get("outputs") if isinstance(recipe, dict) else None
    for output in outputs if isinstance(outputs, list) else []:
        name = _mapping(_mapping(output).get("package")).get("name")
        if isinstance(name, str):
            yield name


def read_requirements(items: YamlValue) -> tuple[Requirement, ...]:
    """A list of requirements in an evaluated recipe; empty for anything else."""
    listed = items if isinstance(items, list) else []
    return tuple(item if isinstance(item, str) else read_pin(_mapping(item)) for item in listed)


def read_pin(item: Mapping[str, YamlValue]) -> Pin:
    """The Pin for ``{pin_compatible: ...}`` or ``{pin_subpackage: ...}`` in an evaluated recipe.

    >>> read_pin({"pin_compatible": {"name": "mpich", "upper_bound": "x"}}).upper_bound
    'x'
    """
    function = next(name for name in _PIN_FUNCTIONS if name in item)
    arguments = _mapping(item[function])
    return Pin(
        function=function,
        name=str(arguments["name"]),
        lower_bound=_text(arguments.get("lower_bound")),
        upper_bound=_text(arguments.get("upper_bound")),
        exact=bool(arguments.get("exact")),
        build=_text(arguments.get("build")),
    )


def is_pin(item: YamlValue) -> bool:
    """Whether a node of an evaluated recipe is a Pin."""
    return isinstance(item, dict) and len(item) == 1 and next(iter(item)) in _PIN_FUNCTIONS


def _mapping(value: YamlValue) -> Mapping[str, YamlValue]:
    return value if isinstance(value, dict) else {}


def read_sources(recipe: Mapping[str, YamlValue], recipe_file: RecipeFile) -> tuple[RecipeSource, ...]:
    """The sources in the recipe's order.

    Raises ConfigError (file, line) for a url without sha256 and for git without a full commit, since the bytes of
    either may change, and for an address with a secret, which every package would contain.
    """
    entries = recipe.get("source")
    items = entries if isinstance(entries, list) else [] if entries is None else [entries]
    return tuple(_read_source(item, recipe_file) for item in items if isinstance(item, dict))


def _read_source(entry: Mapping[str, YamlValue], recipe_file: RecipeFile) -> RecipeSource:
    kind = next(kind for kind in _KINDS if kind in entry)
    addresses = entry[kind]
    locations = [str(item) for item in addresses] if isinstance(addresses, list) else [str(addresses)]
    if (secret := next(filter(has_secret, locations), None)) is not None and kind != "path":
        message = f"source {without_credentials(secret)} is given with credentials, which every package would contain"
        places = "~/.netrc or git's credential store" if kind == "git" else "~/.netrc"
        hint = f"write it without them, and store them in {places} of the machines that build"
        raise recipe_file.document.error(message, "source", hint=hint)
    sha256 = _text(entry.get("sha256"))
    revision = _text(entry.get("rev"))
    if kind == "url" and sha256 is None:
        raise _unnamed(recipe_file, f"source {locations[0]} has no sha256", "add its sha256")
    if kind == "git" and (revision is None or not _COMMIT.fullmatch(revision)):
        stated = f"rev {revision}" if revision else "no rev"
        raise _unnamed(recipe_file, f"git source {locations[0]} has {stated}", "name the full commit: rev: <40 digits>")
    patches = entry.get("patches")
    return RecipeSource(
        kind=kind,
        location=locations[0],
        mirrors=tuple(locations[1:]),
        sha256=sha256,
        revision=revision,
        patches=tuple(str(item) for item in patches) if isinstance(patches, list) else (),
        target_directory=_text(entry.get("target_directory")),
        entry=entry,
    )


def _unnamed(recipe_file: RecipeFile, message: str, hint: str) -> ConfigError:
    return recipe_file.document.error(f"{message}, so its content may change", "source", hint=hint)


def _text(value: YamlValue) -> str | None:
    return None if value is None else str(value)
