# SPDX-License-Identifier: BSD-3-Clause
"""Evaluating recipes with the engine: text in, evaluated recipes out, its errors made ours."""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import yaml
from rattler_build import PlatformConfig, RattlerBuildError, RenderConfig, Stage0Recipe, VariantConfig

from channel_tools.errors import ConfigError
from channel_tools.matrix.conditions import IMPOSSIBLE_KEY, BadConditionError, impossible_error, is_skipped

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

    Raises ConfigError (file, and line where it can be found) when the recipe does not parse or render, and for a
    combination that the recipe's ``extra.impossible`` refuses.
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
        if evaluated not in results and _is_built(recipe_file, evaluated, render_config):
            results.append(evaluated)
    return results


def _staging_error(recipe_file: RecipeFile) -> ConfigError:
    message = "staging outputs (shared build caches between outputs) are not supported"
    hint = "make one recipe with a build script per package, or outputs that select their files"
    return recipe_file.document.error(message, "outputs", hint=hint)


def _is_built(recipe_file: RecipeFile, evaluated: EvaluatedRecipe, config: RenderConfig) -> bool:
    """Whether a combination is one to build. Raises ConfigError for one that the recipe says cannot exist."""
    try:
        error = impossible_error(recipe_file, evaluated.recipe, evaluated.variant, config)
    except BadConditionError as err:
        message = f"extra.impossible cannot be evaluated: {_condense(str(err))}"
        raise recipe_file.document.error(message, "extra", IMPOSSIBLE_KEY, hint="correct the condition") from None
    if error is not None:
        raise error
    try:
        return not is_skipped(recipe_file, evaluated.recipe, evaluated.variant, config)
    except BadConditionError as err:
        message = f"build.skip cannot be evaluated: {_condense(str(err))}"
        raise recipe_file.document.error(message, "build", "skip", hint="correct the condition") from None


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
