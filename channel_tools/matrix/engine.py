# SPDX-License-Identifier: BSD-3-Clause
"""Evaluates recipes with the engine: text in, evaluated recipes out; the engine's errors are converted to ours.

What the engine does not evaluate, ``build.skip`` and ``extra.impossible``, is in ``conditions.py``.
"""

from __future__ import annotations

import contextlib
import json
import math
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from rattler_build import PlatformConfig, RattlerBuildError, RenderConfig, Stage0Recipe

from channel_tools.conda.package import NOARCH
from channel_tools.matrix.conditions import (
    IMPOSSIBLE_KEY,
    ConditionError,
    Conditions,
    impossible_conditions,
    skip_conditions,
)
from channel_tools.matrix.missing_keys import missing_key_error
from channel_tools.matrix.recipe_errors import condensed, engine_text, engine_variants, recipe_error
from channel_tools.matrix.variants import ENGINE_KEYS
from channel_tools.system.errors import ConfigError
from channel_tools.system.workers import forked

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rattler_build import RenderedVariant

    from channel_tools.matrix.conditions import Condition
    from channel_tools.matrix.model import RecipeFile, VariantMatrix, VariantScalar
    from channel_tools.system.yamlfile import YamlValue

_WORTH_A_COPY = 32
"""From this number of combinations, forking this process is worthwhile: each takes the engine 2 ms."""
_Evaluation = tuple["RecipeFile", "VariantMatrix"]
_CacheKey = tuple[str, str]
"""A recipe, and the values of all keys that it can use."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluatedRecipe:
    """One output of a recipe for one combination: the engine's evaluated mapping, the used keys and their hash."""

    recipe: Mapping[str, YamlValue]
    variant: Mapping[str, VariantScalar]
    hash: str


class RecipeEngine:
    """Evaluates recipes for one platform.

    Stacks share most recipes and values, so the evaluation of a recipe or of conditions is cached by the values of all
    keys that its text can use, unless the engine used others. ``folder`` is an empty folder for its own use.
    """

    def __init__(self, platform: str, folder: Path) -> None:
        self._folder = folder
        self._platforms = (platform, NOARCH)
        self._config = RenderConfig(platform=PlatformConfig(target_platform=platform))
        self._evaluated: dict[_CacheKey, list[EvaluatedRecipe]] = {}
        self._conditions = Conditions(platform, folder)

    def evaluate(self, recipe_file: RecipeFile, matrix: VariantMatrix) -> list[EvaluatedRecipe]:
        """Evaluate a recipe for every combination of the keys it uses, in the engine's order, without skipped ones.

        A combination whose ``target_platform`` is another platform, as in a variant file for several or for another
        one, is not for this one: the engine would build it here under the other's name.

        Raises ConfigError (file, and line if known) if the recipe does not parse or render, and for a combination that
        the recipe's ``extra.impossible`` rules out.
        """
        key = _cache_key(recipe_file, matrix)
        if key in self._evaluated:
            return self._evaluated[key]
        config = engine_variants(matrix)
        try:
            rendered = _parsed(recipe_file, self._folder).render(config, self._config)
        except RattlerBuildError as err:
            raise recipe_error(recipe_file, str(err), matrix, config=self._config, folder=self._folder) from None
        results: list[EvaluatedRecipe] = []
        used: set[str] = set()
        for variant in rendered:
            evaluated = _evaluated(recipe_file, variant)
            used.update(evaluated.variant)
            is_here = evaluated.variant.get("target_platform") in {None, *self._platforms}
            if is_here and evaluated not in results and self._is_built(recipe_file, evaluated, matrix):
                results.append(evaluated)
        if used & matrix.values.keys() <= recipe_file.used_keys | ENGINE_KEYS:
            self._evaluated[key] = results
        return results

    def evaluate_ahead(self, wanted: Iterable[_Evaluation]) -> None:
        """Fill the cache of ``evaluate`` with two processes, since the engine holds the interpreter lock.

        Recipes that cannot be evaluated are left out, and ``evaluate`` raises their errors later. Does nothing for a
        few combinations. The caller has asked ``may_fork``.
        """
        distinct = {_cache_key(*item): item for item in wanted}
        if sum(_combinations(*item) for item in distinct.values()) < _WORTH_A_COPY:
            return
        own_half, forked_half = _halves(distinct.values())
        with forked(lambda: self._evaluate_all(forked_half, self._folder / "copy")) as result:
            self._evaluate_all(own_half, self._folder)
            self._evaluated.update(result() or {})

    def _evaluate_all(self, wanted: Iterable[_Evaluation], folder: Path) -> dict[_CacheKey, list[EvaluatedRecipe]]:
        self._folder = self._conditions.folder = folder
        for item in wanted:
            with contextlib.suppress(ConfigError):
                self.evaluate(*item)
        return self._evaluated

    def _is_built(self, recipe_file: RecipeFile, evaluated: EvaluatedRecipe, matrix: VariantMatrix) -> bool:
        """Whether a combination is not skipped by ``build.skip``.

        Raises ConfigError for one that the recipe's ``extra.impossible`` says cannot exist (conditions may use the
        recipe's variant keys), and for a condition that cannot be evaluated.
        """
        impossible = impossible_conditions(recipe_file)
        conditions = [*impossible, *self._skip_conditions(recipe_file, evaluated)]
        try:
            true = self._conditions.first_true(conditions, evaluated.recipe.get("context"), evaluated.variant)
        except ConditionError as err:
            raise _condition_error(recipe_file, err, matrix, self._folder) from None
        if true is not None and true in impossible:
            raise _impossible_error(recipe_file, evaluated.variant, true)
        return true is None

    def _skip_conditions(self, recipe_file: RecipeFile, evaluated: EvaluatedRecipe) -> list[Condition]:
        """The conditions of ``build.skip``, of the recipe and of the evaluated output."""
        package = cast("Mapping[str, str]", evaluated.recipe["package"])["name"]
        all_conditions: list[Condition] = []
        own = 0
        for name, conditions in skip_conditions(recipe_file):
            if name is None or (conditions and self._text_of(name, evaluated) == package):
                all_conditions += conditions
                own += name is not None
        if own > 1:
            message = f"several outputs are named {package!r} and have a build.skip each, which cannot be told apart"
            hint = "write one output whose build.skip has the conditions of all"
            raise recipe_file.document.error(message, *all_conditions[-1].key_path, hint=hint)
        return all_conditions

    def _text_of(self, name: str, evaluated: EvaluatedRecipe) -> str:
        """The name of an output, which may be a template. The engine has rendered it, so it cannot fail here."""
        if "${{" not in name:
            return name
        return self._conditions.text_of(name, evaluated.recipe.get("context"), evaluated.variant)


def _parsed(recipe_file: RecipeFile, folder: Path) -> Stage0Recipe:
    """The recipe; text in place of the file's is written by the engine, which is to be below ``folder``, not there."""
    if recipe_file.text is None:
        return Stage0Recipe.from_file(recipe_file.path)
    folder.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(dir=folder))
    for path in recipe_file.folder.iterdir():
        if path != recipe_file.path:
            (beside / path.name).symlink_to(path)
    return Stage0Recipe.from_yaml(recipe_file.text, recipe_dir=beside)


def _cache_key(recipe_file: RecipeFile, matrix: VariantMatrix) -> _CacheKey:
    values, groups = _decisive(recipe_file, matrix)
    return recipe_file.name, json.dumps([recipe_file.text, sorted(values.items()), groups])


def _decisive(
    recipe_file: RecipeFile, matrix: VariantMatrix
) -> tuple[dict[str, tuple[VariantScalar, ...]], list[list[str]]]:
    """The keys that the recipe can use, with their values, and the groups of keys that move together."""
    possible = recipe_file.used_keys | ENGINE_KEYS
    values = {key: items for key, items in matrix.values.items() if key in possible}
    return values, [[key for key in group if key in possible] for group in matrix.zip_keys]


def _combinations(recipe_file: RecipeFile, matrix: VariantMatrix) -> int:
    """The most combinations that the engine evaluates; fewer if the recipe does not use all keys that it can."""
    values, groups = _decisive(recipe_file, matrix)
    followers = {key for group in groups for key in group[1:]}
    return math.prod(len(items) for key, items in values.items() if key not in followers)


def _halves(wanted: Iterable[_Evaluation]) -> tuple[list[_Evaluation], list[_Evaluation]]:
    """Split into two parts of similar size; the combinations of a recipe share its conditions and stay together."""
    by_recipe: dict[str, list[_Evaluation]] = {}
    for item in wanted:
        by_recipe.setdefault(item[0].name, []).append(item)
    weighed = [(sum(_combinations(*item) for item in items), items) for items in by_recipe.values()]
    halves: tuple[list[_Evaluation], list[_Evaluation]] = ([], [])
    weights = [0, 0]
    for weight, items in sorted(weighed, key=lambda pair: -pair[0]):
        lighter = weights.index(min(weights))
        halves[lighter].extend(items)
        weights[lighter] += weight
    return halves


def _evaluated(recipe_file: RecipeFile, variant: RenderedVariant) -> EvaluatedRecipe:
    recipe = variant.recipe  # each access makes a copy
    if recipe.staging_caches or recipe.inherits_from:
        message = "staging outputs (shared build caches between outputs) are not supported"
        hint = "write one recipe with a build script per package, or outputs that select their files"
        raise recipe_file.document.error(message, "outputs", hint=hint)
    return EvaluatedRecipe(
        recipe=cast("dict[str, YamlValue]", recipe.to_dict()),
        variant=cast("dict[str, VariantScalar]", variant.variant),
        hash=variant.hash_info.hash if variant.hash_info else "",
    )


def _condition_error(recipe_file: RecipeFile, err: ConditionError, matrix: VariantMatrix, folder: Path) -> ConfigError:
    key_path = err.condition.key_path
    line = recipe_file.document.line_of(*key_path)
    if (lacking := missing_key_error(engine_text(str(err)), recipe_file, matrix, line=line, folder=folder)) is not None:
        return lacking
    section = "build.skip" if "skip" in key_path else f"extra.{IMPOSSIBLE_KEY}"
    message = f"{section} cannot be evaluated: {condensed(str(err))}"
    return recipe_file.document.error(message, *key_path, hint="correct the condition")


def _impossible_error(
    recipe_file: RecipeFile, variant: Mapping[str, VariantScalar], condition: Condition
) -> ConfigError:
    values = ", ".join(f"{key} {variant[key]}" for key in sorted(variant) if not key.endswith("_platform"))
    message = f"this combination cannot exist: {condition.reason} (found {values})"
    hint = "change the values in the stack's variant files; zip_keys make keys move together"
    return recipe_file.document.error(message, *condition.key_path, hint=hint)
