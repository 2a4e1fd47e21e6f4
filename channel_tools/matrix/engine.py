# SPDX-License-Identifier: BSD-3-Clause
"""The only user of the recipe engine for rendering: text in, evaluated recipes out, its errors made ours.

The engine ignores ``build.skip`` when it is driven from Python and leaves it out of the evaluated recipe, so skips are
evaluated here: the conditions go into a recipe of their own, rendered for the one combination.
"""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import yaml
from rattler_build import PlatformConfig, RattlerBuildError, RenderConfig, Stage0Recipe, VariantConfig

from channel_tools.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from channel_tools.matrix.model import RecipeFile, VariantMatrix, VariantScalar
    from channel_tools.yamlfile import KeyPath, YamlValue

_RENDER_MESSAGE = re.compile(r'message: "((?:[^"\\]|\\.)*)"')
_RENDER_LINE = re.compile(r"start: Some\(Marker \{[^}]*\bline: (\d+)")
_QUOTED = re.compile(r"'([^']+)'|`([^`]+)`|: (\S+)$|template: ([^)]+)\)")
_MAX_MESSAGE = 300


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluatedRecipe:
    """One output of a recipe for one combination: the engine's evaluated mapping, the keys used and their hash."""

    recipe: Mapping[str, YamlValue]
    variant: Mapping[str, VariantScalar]
    hash: str


def evaluate_recipe(recipe_file: RecipeFile, matrix: VariantMatrix, platform: str) -> list[EvaluatedRecipe]:
    """Evaluate a recipe for every combination of the keys it uses, in the engine's order, skipped ones left out.

    Raises ConfigError (file, and line where it can be found) when the recipe does not parse or render.
    """
    values = {key: list(items) for key, items in matrix.values.items()}
    config = VariantConfig(values, zip_keys=[list(group) for group in matrix.zip_keys] or None)
    render_config = RenderConfig(platform=PlatformConfig(target_platform=platform))
    try:
        rendered = Stage0Recipe.from_file(recipe_file.path).render(config, render_config)
    except RattlerBuildError as err:
        raise _recipe_error(recipe_file, str(err)) from None
    results = []
    for variant in rendered:
        if variant.recipe.staging_caches or variant.recipe.inherits_from:
            raise _staging_error(recipe_file)
        used = cast("dict[str, VariantScalar]", variant.variant)
        hash_info = variant.hash_info
        evaluated = EvaluatedRecipe(
            recipe=cast("dict[str, YamlValue]", variant.recipe.to_dict()),
            variant=used,
            hash=hash_info.hash if hash_info else "",
        )
        if evaluated not in results and not _is_skipped(recipe_file, evaluated, render_config):
            results.append(evaluated)
    return results


def _staging_error(recipe_file: RecipeFile) -> ConfigError:
    message = "staging outputs (shared build caches between outputs) are not supported"
    hint = "make one recipe with a build script per package, or outputs that select their files"
    return recipe_file.document.error(message, "outputs", hint=hint)


def _skip_conditions(recipe_file: RecipeFile, package: str) -> list[YamlValue]:
    """What ``build.skip`` says: of the recipe, and of the output that makes ``package``."""
    value = recipe_file.document.value
    sections: list[YamlValue] = [value]
    outputs = value.get("outputs") if isinstance(value, dict) else None
    for output in outputs if isinstance(outputs, list) else []:
        described = output.get("package") if isinstance(output, dict) else None
        if isinstance(described, dict) and described.get("name") == package:
            sections.append(output)
    conditions: list[YamlValue] = []
    for section in sections:
        build = section.get("build") if isinstance(section, dict) else None
        skip = build.get("skip") if isinstance(build, dict) else None
        conditions += skip if isinstance(skip, list) else [] if skip is None else [skip]
    return conditions


def _is_skipped(recipe_file: RecipeFile, evaluated: EvaluatedRecipe, render_config: RenderConfig) -> bool:
    package = cast("Mapping[str, str]", evaluated.recipe["package"])["name"]
    conditions = _skip_conditions(recipe_file, package)
    if not conditions:
        return False
    probe = {
        "context": evaluated.recipe.get("context") or {},
        "package": {"name": "probe", "version": "0"},
        "requirements": {"run": [{"if": _as_expression(item), "then": "skipped"} for item in conditions]},
    }
    config = VariantConfig({key: [value] for key, value in evaluated.variant.items()})
    with tempfile.TemporaryDirectory() as folder:
        try:
            text = yaml.safe_dump(probe, sort_keys=False)
            results = Stage0Recipe.from_yaml(text, recipe_dir=folder).render(config, render_config)
        except RattlerBuildError as err:
            message = f"build.skip cannot be evaluated: {_condense(str(err))}"
            raise recipe_file.document.error(message, "build", "skip", hint="correct the condition") from None
    requirements = cast("Mapping[str, list[YamlValue]]", results[0].recipe.to_dict()["requirements"])
    return "skipped" in requirements.get("run", [])


def _as_expression(condition: YamlValue) -> YamlValue:
    return str(condition).lower() if isinstance(condition, bool) else condition


def _recipe_error(recipe_file: RecipeFile, message: str) -> ConfigError:
    found = _RENDER_LINE.search(message)
    line = int(found.group(1)) if found else _line_holding_quoted(recipe_file.path, message)
    if line is None and "template" in message:
        line = _line_of_bad_template(recipe_file)
    hint = f"correct {recipe_file.path.name}; `rattler-build build --render-only` shows the same error"
    return ConfigError(f"the recipe does not render: {_condense(message)}", path=recipe_file.path, line=line, hint=hint)


def _condense(message: str) -> str:
    inner = _RENDER_MESSAGE.search(message)
    text = inner.group(1).replace('\\"', '"') if inner else message
    text = " ".join(text.split())
    return text if len(text) <= _MAX_MESSAGE else text[: _MAX_MESSAGE - 3] + "..."


def _line_of_bad_template(recipe_file: RecipeFile) -> int | None:
    """The line of the first text that does not parse as a template; the engine says only that there is one."""
    with tempfile.TemporaryDirectory() as folder:
        for key_path, text in _texts_with_paths(recipe_file.document.value, ()):
            if "${{" not in text:
                continue
            probe = {"package": {"name": "probe", "version": "0"}, "about": {"summary": text}}
            try:
                Stage0Recipe.from_yaml(yaml.safe_dump(probe), recipe_dir=folder)
            except RattlerBuildError:
                return recipe_file.document.line_of(*key_path)
    return None


def _texts_with_paths(value: YamlValue, key_path: KeyPath) -> Iterator[tuple[KeyPath, str]]:
    if isinstance(value, str):
        yield key_path, value
    elif isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in items:
            yield from _texts_with_paths(item, (*key_path, key))


def _line_holding_quoted(path: Path, message: str) -> int | None:
    """The line of what the engine quotes, when exactly one line of the recipe holds it."""
    lines = path.read_text(encoding="utf-8").splitlines()
    for groups in _QUOTED.findall(message):
        quoted = next(group for group in groups if group)
        holding = [number for number, line in enumerate(lines, start=1) if quoted in line]
        if len(holding) == 1:
            return holding[0]
    return None
