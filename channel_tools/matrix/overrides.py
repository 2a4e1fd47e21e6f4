# SPDX-License-Identifier: BSD-3-Clause
"""Applies what a stack overrides in a recipe: another version in its text, patches and variables once it is evaluated.

All that an override changes is a part of the evaluated recipe or one of its files, so it is in the digest, in the
package's ``info/recipe`` and on the channel's page like the recipe's own.
"""

from __future__ import annotations

import json
import os
import shlex
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import yaml

from channel_tools.matrix.variants import ENGINE_KEYS
from channel_tools.system.counting import counted
from channel_tools.system.errors import nearest_names_hint
from channel_tools.system.yamlfile import node_of, parse_yaml, read_yaml_text, scalars_below, span_of, with_replaced

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from channel_tools.matrix.engine import EvaluatedRecipe
    from channel_tools.matrix.model import Override, RecipeFile, Stack
    from channel_tools.system.errors import ConfigError
    from channel_tools.system.yamlfile import YamlValue

_SCRIPT = "build.sh"
_COPY_HINT = "copy the recipe to recipes/ of the tree and change it there"
_CONDA = '"$PREFIX/etc/conda"'
_SCRIPT_HEADER = "# A site's variables, where the client has not set them from etc/conda/env_vars.d.\n"
# plain POSIX shell that is safe under `set -eu`
_ACTIVATE = """\
if [ "${{{name}+set}}${{{name}-}}" != set{value} ]; then
  if [ -n "${{{name}+set}}" ]; then export CONDA_BACKUP_{name}="${name}"; else unset CONDA_BACKUP_{name}; fi
  export CONDA_SET_{name}=1 {name}={value}
fi
"""
_DEACTIVATE = """\
if [ -n "${{CONDA_SET_{name}+set}}" ]; then
  if [ -n "${{CONDA_BACKUP_{name}+set}}" ]; then export {name}="$CONDA_BACKUP_{name}"; else unset {name}; fi
  unset CONDA_SET_{name} CONDA_BACKUP_{name}
fi
"""


def check_overrides(stack: Stack, recipes: Mapping[str, RecipeFile]) -> None:
    """Raise ConfigError (file, line) for an override of what the stack does not build or the recipe does not use."""
    for name, override in stack.overrides.items():
        if name not in stack.packages:
            message = f"stack {stack.name!r} overrides {name!r}, which it does not build"
            raise _error(override, message, hint=nearest_names_hint(name, stack.packages, noun="recipe"))
        used = recipes[name].used_keys
        for key in override.variants.values if override.variants is not None else ():
            if key not in used and key not in ENGINE_KEYS:
                message = f"the override of {name} sets the variant key {key!r}, which its recipe does not use"
                raise _error(override, message, "variants", key, hint=nearest_names_hint(key, used, noun="variant key"))


def with_version(recipe: RecipeFile, override: Override | None) -> RecipeFile:
    """The recipe with the override's version and sha256 in its text; unchanged without a version.

    Raises ConfigError for a recipe whose version is not a plain ``context.version`` or that has several sources by
    sha256.
    """
    if override is None or override.version is None:
        return recipe
    text = read_yaml_text(recipe.path)
    version = node_of(text, "context", "version")
    if not isinstance(version, yaml.ScalarNode) or "${{" in version.value:
        stated = "no context.version" if version is None else f"context.version: {version.value!r}"
        message = f"the override of {recipe.name} has a version, but the recipe has {stated}"
        hint = "give its variant key a value under variants" if version is not None else _COPY_HINT
        raise _error(override, message, "version", hint=hint)
    hashes = [node for key, node in scalars_below(node_of(text, "source")) if key == "sha256"]
    if len(hashes) != 1:
        having = counted(len(hashes), "source")
        message = f"the override of {recipe.name} has a version, but the recipe has {having} with a sha256"
        raise _error(override, message, "version", hint=_COPY_HINT)
    new = {span_of(version): json.dumps(override.version), span_of(hashes[0]): json.dumps(override.sha256)}
    text = with_replaced(text, new)
    return replace(recipe, document=parse_yaml(text, recipe.path), text=text)


def overridden(recipe: RecipeFile, evaluated: EvaluatedRecipe, override: Override | None) -> EvaluatedRecipe:
    """The evaluated recipe with the override's patches and environment variables.

    Raises ConfigError if there are no patches for its version, and for a recipe to which they cannot be added.
    """
    if override is None:
        return evaluated
    changed = dict(evaluated.recipe)
    if override.patches is not None:
        changed["source"] = _with_patches(recipe, changed, override, override.patches)
    if override.environment:
        build = changed.get("build")
        section = dict(build) if isinstance(build, dict) else {}
        name = str(cast("Mapping[str, YamlValue]", changed["package"])["name"])
        line = _activation_line(name, override.environment)
        section["script"] = _with_line(recipe, section.get("script"), line, override)
        changed["build"] = section
    return replace(evaluated, recipe=changed)


def _with_patches(
    recipe: RecipeFile, evaluated: Mapping[str, YamlValue], override: Override, folder: Path
) -> YamlValue:
    """The recipe's sources with the patches appended to those of the first one."""
    version = str(cast("Mapping[str, YamlValue]", evaluated["package"])["version"])
    names = [os.path.relpath(path, recipe.folder) for path in _patch_files(override, folder, version)]
    source = evaluated.get("source")
    entries: list[YamlValue] = list(source) if isinstance(source, list) else [source]
    first = entries[0]
    if not isinstance(first, dict):
        message = f"the override of {recipe.name} has patches, but the recipe has no source"
        raise _error(override, message, "patches", hint=_COPY_HINT)
    own = first.get("patches")
    patches: list[YamlValue] = [*(own if isinstance(own, list) else []), *names]
    entries[0] = {**first, "patches": patches}
    return entries


def _patch_files(override: Override, folder: Path, version: str) -> list[Path]:
    for patches_folder in (folder, folder / version):
        if patches := sorted(patches_folder.glob("*.patch")):
            return patches
    versions = sorted(path.name for path in folder.iterdir() if any(path.glob("*.patch")))
    if not versions:
        message, hint = f"{folder} has no *.patch", "write them there, as git format-patch does"
    else:
        message = (
            f"the override of {override.recipe} has patches for {', '.join(versions)}, but the version is now {version}"
        )
        hint = f"carry them over to {folder / version}, pin the version, or remove the override"
    raise _error(override, message, "patches", hint=hint)


def _activation_line(name: str, environment: Mapping[str, str]) -> str:
    """The script's line that writes the variables: for conda's clients, and as scripts for what only sources those.

    conda, mamba and pixi read ``etc/conda/env_vars.d`` for every shell (conda's documentation of it; rattler_shell);
    conda-pack's ``activate`` only sources ``etc/conda/activate.d``. Its names are sorted: these scripts come first, so
    that others see the variables, as they do in conda.
    """
    content = json.dumps(dict(sorted(environment.items())), indent=1, sort_keys=True) + "\n"
    activate, deactivate = (
        _SCRIPT_HEADER + "".join(text.format(name=key, value=shlex.quote(value)) for key, value in environment.items())
        for text in (_ACTIVATE, _DEACTIVATE)
    )
    files = {
        f"env_vars.d/{name}-override.json": content,
        f"activate.d/00-{name}-override.sh": activate,
        f"deactivate.d/00-{name}-override.sh": deactivate,
    }
    written = [f"printf %s {shlex.quote(text)} > {_CONDA}/{shlex.quote(path)}" for path, text in files.items()]
    return " && ".join([f"mkdir -p {_CONDA}/env_vars.d {_CONDA}/activate.d {_CONDA}/deactivate.d", *written])


def _with_line(recipe: RecipeFile, script: YamlValue, line: str, override: Override) -> YamlValue:
    """A build script in the engine's forms with one more line at its end."""
    section = dict(script) if isinstance(script, dict) else {}
    if str(section.get("interpreter", "bash")) != "bash":
        message = f"the override of {recipe.name} has environment, but its build script is for {section['interpreter']}"
        raise _error(override, message, "environment", hint=_COPY_HINT)
    name = section.pop("file", None)
    content = section.pop("content", name) if isinstance(script, dict) else script
    if content is None and (recipe.folder / _SCRIPT).is_file():
        content = _SCRIPT
    if isinstance(content, str) and "\n" not in content and (recipe.folder / content).is_file():
        # in a process of its own: where such a file ends in `a && program`, bash 5.2 that reads it by `.` ends with it
        content = f'bash -ex "$RECIPE_DIR/{content}"'
    lines = content if isinstance(content, list) else [] if content is None else [content]
    return {**section, "content": [*lines, line]}


def _error(override: Override, message: str, *below: str, hint: str) -> ConfigError:
    return override.document.error(message, *override.key_path, *below, hint=hint)
