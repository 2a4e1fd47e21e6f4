# SPDX-License-Identifier: BSD-3-Clause
"""Writes one self-contained recipe folder per planned package, for the build stage and for ``render``.

conda-build, rattler-build and pixi can build the folder unchanged and make exactly the planned file name: the build
string is written out, every path is inside, and the variant keys are listed in ``use_keys``, because a recipe without
templates would seem to use none of them.
"""

from __future__ import annotations

import glob
import os
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from channel_tools.conda.metadata import SOURCE_DATE
from channel_tools.matrix.expand import is_pin, read_pin
from channel_tools.matrix.model import Pin, requirement_name
from channel_tools.matrix.site import path_named_by
from channel_tools.plan.inputs import license_files, target_of
from channel_tools.plan.model import SCHEMA_VERSION
from channel_tools.plan.resolve import pin_expression
from channel_tools.system.errors import ConfigError, UsageError
from channel_tools.system.files import TEMPORARY_PREFIX, atomic_path, disk_full_reported, sha256_of_file
from channel_tools.system.source_files import copy_source_file, link_target
from channel_tools.system.yamlfile import YamlValue, dump_yaml, read_yaml

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from channel_tools.plan.model import PlannedPackage
    from channel_tools.system.settings import Tree

EXTRA_KEY = "channel_tools"
_RECIPE = "recipe.yaml"
_VARIANTS = "variants.yaml"
_ENGINE_KEYS = frozenset({"build_platform", "host_platform", "target_platform"})


class SourcePlaces(Protocol):
    """Replacements for upstream's addresses as the sources of a build."""

    def entries_for(self, package: PlannedPackage) -> list[dict[str, YamlValue]]:
        """The package's ``source`` entries, in the recipe's order."""

    def origins_of(self, package: PlannedPackage) -> list[YamlValue]:
        """The value of ``extra.channel_tools.sources`` for them."""


def render_folder(
    package: PlannedPackage, destination: Path, *, tree: Tree, places: SourcePlaces | None = None
) -> Path:
    """Write ``destination/name-version-build string/`` and return it; the same plan gives the same bytes.

    With ``places``, the recipe's sources are there; otherwise they are upstream's addresses.

    A folder that this function made before is replaced; nothing else in ``destination`` is changed. Raises UsageError
    if ``destination`` is a file or inside the tree's own recipes, or if something else has the folder's name,
    ConfigError if a file has changed since the plan.
    """
    check_destination(destination, tree)
    folder = destination / package.folder_name
    if os.path.lexists(folder) and not _is_rendered(folder):
        message = f"{folder}: exists, but is not a rendered recipe of this package; nothing was changed"
        raise UsageError(message, hint="move it away, or render to another folder")
    with disk_full_reported(destination), atomic_path(folder) as temporary:
        _write_folder(package, temporary, tree, places)
        if folder.is_dir():
            # a folder cannot be replaced in one step: the old one is moved away first and then removed
            folder.rename(temporary.with_name(TEMPORARY_PREFIX + folder.name))
    return folder


def check_destination(destination: Path, tree: Tree) -> None:
    """Raise UsageError if rendered folders must not be written to ``destination``."""
    target = Path(os.path.normpath(destination.absolute()))
    if target.exists() and not target.is_dir():
        raise UsageError(
            f"{destination}: is a file; expected a folder for the rendered recipes", hint="give another folder"
        )
    if target == tree.root:
        raise UsageError(
            f"{destination}: is the tree itself", hint="give a folder in or beside it, such as output/render"
        )
    for source in (tree.recipes, tree.variants, tree.patches):
        if target.is_relative_to(source):
            message = f"{destination}: is inside {source}, from which recipes are rendered"
            raise UsageError(message, hint="give another folder, such as output/render")


def _is_rendered(folder: Path) -> bool:
    """Whether render_folder made the folder: its recipe says so and has this name."""
    recipe = folder / _RECIPE
    if folder.is_symlink() or not recipe.is_file():
        return False
    value = read_yaml(recipe).value
    extra = value.get("extra") if isinstance(value, dict) else None
    mark = extra.get(EXTRA_KEY) if isinstance(extra, dict) else None
    return isinstance(mark, dict) and mark.get("folder") == folder.name


def _write_folder(package: PlannedPackage, folder: Path, tree: Tree, places: SourcePlaces | None) -> None:
    folder.mkdir()
    for file in package.files:
        target = folder / file.target
        copy_source_file(file.path, target, follow=file.link is None)
        link = link_target(target)
        if link != file.link or (link is None and sha256_of_file(target) != file.sha256):
            # the package's name is that of the planned content
            message = "the file changed after the build was planned"
            raise ConfigError(message, path=file.path, hint="run the command again; finished builds are kept")
    origin = package.rendered.recipe_file.path.relative_to(tree.root).as_posix()
    header = f"# Evaluated from {origin} by channel_tools; changes are lost when it is rendered again.\n"
    (folder / _RECIPE).write_text(header + dump_yaml(rendered_recipe(package, tree, places)), encoding="utf-8")
    variants = {key: [package.rendered.variant[key]] for key in _variant_keys(package)}
    (folder / _VARIANTS).write_text(header + dump_yaml(variants), encoding="utf-8")


def _variant_keys(package: PlannedPackage) -> list[str]:
    """The used keys for a variant file, without the platforms, which the engine sets itself."""
    return [key for key in sorted(package.rendered.variant) if key not in _ENGINE_KEYS]


def rendered_recipe(package: PlannedPackage, tree: Tree, places: SourcePlaces | None = None) -> dict[str, YamlValue]:
    """The recipe to write: evaluated, with pins as template text and the final build string and paths."""
    recipe: dict[str, YamlValue] = {}
    for key, value in package.rendered.recipe.items():
        recipe[key] = _with_pins_as_text(value, package.sibling_specs)
    recipe["build"] = _final_build(package, recipe.get("build"))
    if package.rendered.sources:
        entries = places.entries_for(package) if places else [dict(source.entry) for source in package.rendered.sources]
        recipe["source"] = [_inside_source(package, entry, tree) for entry in entries]
    if isinstance(requirements := recipe.get("requirements"), dict):
        fixed = dict(requirements)  # own packages are pinned to the builds that the digest was computed with
        for pin in package.own_pins:
            items = fixed[pin.environment]
            if isinstance(items, list):
                same = [isinstance(item, str) and requirement_name(item) == pin.name for item in items]
                fixed[pin.environment] = [
                    pin.spec if is_own else item for is_own, item in zip(same, items, strict=True)
                ]
        recipe["requirements"] = fixed
    if isinstance(about := recipe.get("about"), dict) and "license_file" in about:
        names = [_inside(package, name, tree) if ".." in name.split("/") else name for name in license_files(recipe)]
        recipe["about"] = {**about, "license_file": list[YamlValue](names)}
    extra = recipe.get("extra")
    inputs: dict[str, YamlValue] = dict(package.inputs)  # which later plans read from info/about.json
    origins = places.origins_of(package) if places else []
    recipe["extra"] = {
        **(extra if isinstance(extra, dict) else {}),
        EXTRA_KEY: {
            "schema": SCHEMA_VERSION,
            "folder": package.folder_name,
            "digest": package.digest,
            "inputs": inputs,
            **({"sources": origins} if origins else {}),
        },
    }
    return recipe


def _final_build(package: PlannedPackage, build: YamlValue) -> YamlValue:
    section = dict(build) if isinstance(build, dict) else {}
    stated = section.get("variant")
    keys: list[YamlValue] = [*_variant_keys(package)]
    variant = dict(stated) if isinstance(stated, dict) else {}
    variant.pop("ignore_keys", None)
    section["string"] = package.build_string
    files = {file.target for file in package.files}
    section["script"] = dated_script(section.get("script"), package.date_s, files=files)
    if keys:
        section["variant"] = {**variant, "use_keys": keys}
    return section


def dated_script(script: YamlValue, date_s: int, *, files: Collection[str]) -> YamlValue:
    """Set SOURCE_DATE_EPOCH (seconds since 1970) of a build script, unless it has one; the engine would use the time.

    ``files`` are those beside the recipe: a script that is a string may be the name of one.

    >>> dated_script(["make install"], 86400, files=())
    {'content': ['make install'], 'env': {'SOURCE_DATE_EPOCH': '86400'}}
    """
    if isinstance(script, str):
        script = {"file" if script in files else "content": script}
    section: dict[str, YamlValue] = dict(script) if isinstance(script, dict) else {}
    if isinstance(script, list):
        section["content"] = script
    environment = section.get("env")
    env: dict[str, YamlValue] = {SOURCE_DATE: str(date_s), **(environment if isinstance(environment, dict) else {})}
    return {**section, "env": env}


def _with_pins_as_text(value: YamlValue, sibling_specs: Mapping[Pin, str]) -> YamlValue:
    if isinstance(value, dict) and is_pin(value):
        pin = read_pin(value)
        return sibling_specs.get(pin) or pin_expression(pin)
    if isinstance(value, dict):
        return {key: _with_pins_as_text(item, sibling_specs) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_pins_as_text(item, sibling_specs) for item in value]
    return value


def _inside_source(package: PlannedPackage, entry: dict[str, YamlValue], tree: Tree) -> dict[str, YamlValue]:
    if isinstance(path := entry.get("path"), str):
        if entry.get("use_gitignore") is not False:
            _leave_out_ignored(package, entry, path_named_by(tree, package.rendered.recipe_file.folder, path))
        entry["path"] = _inside(package, path, tree)
        # the files were already selected when they were copied; a .gitignore around the copy must have no effect
        entry["use_gitignore"] = False
    if isinstance(patches := entry.get("patches"), list):
        entry["patches"] = [_inside(package, str(name), tree) for name in patches]
    return entry


def _leave_out_ignored(package: PlannedPackage, entry: dict[str, YamlValue], folder: Path) -> None:
    """Keep what git ignores out of a source whose folder has it for another source, which takes all of it."""
    ignored: list[YamlValue] = [
        glob.escape(file.path.relative_to(folder).as_posix())
        for file in package.files
        if file.is_ignored and file.path.is_relative_to(folder)
    ]
    if not ignored:
        return
    chosen = entry.get("filter")
    globs: dict[str, YamlValue] = dict(chosen) if isinstance(chosen, dict) else {"include": chosen} if chosen else {}
    excluded = globs.get("exclude") or []
    globs["exclude"] = [*(excluded if isinstance(excluded, list) else [excluded]), *ignored]
    entry["filter"] = globs


def _inside(package: PlannedPackage, name: str, tree: Tree) -> str:
    folder = package.rendered.recipe_file.folder
    return target_of(path_named_by(tree, folder, name), folder, tree.root)
