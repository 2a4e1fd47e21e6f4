# SPDX-License-Identifier: BSD-3-Clause
"""Evaluates a recipe's ``build.skip`` and ``extra.impossible`` for one combination of variant keys.

The engine ignores ``build.skip`` when it is called from Python and leaves it out of the evaluated recipe, and it does
not evaluate ``extra``. So their conditions are put into recipes of their own, which the engine renders. What
``build.skip`` may hold is as in the engine (``evaluate_skip_list`` in its ``stage0/evaluate.rs``): an expression, a
template whose text is an expression, or a list of these with conditions.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from rattler_build import PlatformConfig, RattlerBuildError, RenderConfig, Stage0Recipe, VariantConfig

from channel_tools.matrix.variants import ENGINE_KEYS, find_used_keys

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from channel_tools.matrix.model import RecipeFile, VariantScalar
    from channel_tools.system.yamlfile import KeyPath, YamlValue

IMPOSSIBLE_KEY = "impossible"
_BRANCHES = ("then", "else")


@dataclass(frozen=True, kw_only=True, slots=True)
class Condition:
    """A condition as it is written in a recipe, with its place there."""

    key_path: KeyPath
    written: YamlValue
    within: tuple[tuple[YamlValue, bool], ...] = ()
    """The conditions around it, and whether each must be true: it is in ``then``, or in ``else``."""
    reason: str = ""
    """Why a combination for which it is true is impossible."""


class ConditionError(Exception):
    """The engine cannot evaluate a condition; the message is the engine's."""

    def __init__(self, condition: Condition, message: str) -> None:
        super().__init__(message)
        self.condition = condition


class Conditions:
    """Evaluates conditions for one platform. ``folder`` is an empty folder for its own use."""

    def __init__(self, platform: str, folder: Path) -> None:
        self.folder = folder
        self._platform = platform
        self._config = RenderConfig(platform=PlatformConfig(target_platform=platform))
        self._probes: dict[str, tuple[Stage0Recipe, frozenset[str]]] = {}
        self._rendered: dict[tuple[str, str], Mapping[str, YamlValue]] = {}

    def first_true(
        self, conditions: Sequence[Condition], context: YamlValue, variant: Mapping[str, VariantScalar]
    ) -> Condition | None:
        """The first condition that is true, None if none is. Raises ConditionError, also for those after it."""
        try:
            return self._first_true(conditions, context, variant)
        except RattlerBuildError as err:
            for condition in conditions:
                try:
                    self._first_true([condition], context, variant)
                except RattlerBuildError as alone:
                    raise ConditionError(condition, str(alone)) from None
            raise ConditionError(conditions[0], str(err)) from None

    def _first_true(
        self, conditions: Sequence[Condition], context: YamlValue, variant: Mapping[str, VariantScalar]
    ) -> Condition | None:
        if any(condition.within for condition in conditions):
            guards = [_all_of(condition.within) for condition in conditions]
            conditions = [conditions[index] for index in self._true(guards, context, variant)]
        texts = [self._expression(condition.written, context, variant) for condition in conditions]
        true = self._true([text or "false" for text in texts], context, variant)
        return conditions[true[0]] if true else None

    def _expression(self, written: YamlValue, context: YamlValue, variant: Mapping[str, VariantScalar]) -> str:
        """The expression that is written, or that a template gives; empty if the template gives none."""
        if isinstance(written, bool):
            return str(written).lower()
        return self.text_of(str(written), context, variant) if "${{" in str(written) else str(written)

    def text_of(self, template: str, context: YamlValue, variant: Mapping[str, VariantScalar]) -> str:
        """The text that a template gives. Raises RattlerBuildError."""
        about = self._render({"about": {"summary": template}}, context, variant).get("about")
        return str(about.get("summary") or "").strip() if isinstance(about, dict) else ""

    def _true(self, expressions: Sequence[str], context: YamlValue, variant: Mapping[str, VariantScalar]) -> list[int]:
        if not expressions:
            return []
        run: YamlValue = [{"if": text, "then": f"true-{index}"} for index, text in enumerate(expressions)]
        requirements = self._render({"requirements": {"run": run}}, context, variant)["requirements"]
        names = cast("Mapping[str, list[str]]", requirements).get("run", [])
        return [int(name.rpartition("-")[2]) for name in names]

    def _render(
        self, sections: Mapping[str, YamlValue], context: YamlValue, variant: Mapping[str, VariantScalar]
    ) -> Mapping[str, YamlValue]:
        """Render a recipe of these sections. Results are cached by the values of all keys that it can use."""
        probe = {"context": context or {}, "package": {"name": "probe", "version": "0"}, **sections}
        text = json.dumps(probe)  # JSON is valid YAML, and faster to write
        if text not in self._probes:
            recipe = Stage0Recipe.from_yaml(text, recipe_dir=self.folder)
            self._probes[text] = (recipe, find_used_keys(cast("YamlValue", probe)) | ENGINE_KEYS)
        recipe, possible = self._probes[text]
        # for noarch packages the variant says noarch, but build.skip is evaluated before that
        known = {**variant, **({"target_platform": self._platform} if "target_platform" in variant else {})}
        cache_key = (text, json.dumps(sorted((key, known[key]) for key in possible & known.keys())))
        if cache_key not in self._rendered:
            result = recipe.render(VariantConfig({key: [value] for key, value in known.items()}), self._config)[0]
            rendered = cast("Mapping[str, YamlValue]", result.recipe.to_dict())
            if not result.variant.keys() <= possible:
                return rendered
            self._rendered[cache_key] = rendered
        return self._rendered[cache_key]


def _all_of(within: tuple[tuple[YamlValue, bool], ...]) -> str:
    return " and ".join(f"({text})" if wanted else f"not ({text})" for text, wanted in within) or "true"


def impossible_conditions(recipe_file: RecipeFile) -> list[Condition]:
    """The conditions of ``extra.impossible``: a list of ``{if: CONDITION, then: REASON}``, like other conditions in
    recipes. Raises ConfigError for an entry that is anything else."""
    value = recipe_file.document.value
    extra = value.get("extra") if isinstance(value, dict) else None
    entries = extra.get(IMPOSSIBLE_KEY) if isinstance(extra, dict) else None
    items = entries if isinstance(entries, list) else [] if entries is None else [entries]
    conditions = []
    for index, item in enumerate(items):
        if not isinstance(item, dict) or set(item) != {"if", "then"}:
            message = "an entry of extra.impossible must have two keys, if and then"
            hint = 'write  - if: a == "1" and b == "2"  and below it  then: why that is impossible'
            raise recipe_file.document.error(message, "extra", IMPOSSIBLE_KEY, index, hint=hint)
        conditions.append(
            Condition(key_path=("extra", IMPOSSIBLE_KEY, index), written=item["if"], reason=str(item["then"]))
        )
    return conditions


def skip_conditions(recipe_file: RecipeFile) -> list[tuple[str | None, list[Condition]]]:
    """The conditions of ``build.skip``: those of the recipe (None), and those of each output by its name as written."""
    value = recipe_file.document.value
    if not isinstance(value, dict):
        return []
    conditions: list[tuple[str | None, list[Condition]]] = [(None, list(_skip_of(value, ())))]
    outputs = value.get("outputs")
    for index, output in enumerate(outputs if isinstance(outputs, list) else []):
        described = output.get("package") if isinstance(output, dict) else None
        if isinstance(output, dict) and isinstance(described, dict):
            conditions.append((str(described.get("name")), list(_skip_of(output, ("outputs", index)))))
    return conditions


def _skip_of(section: Mapping[str, YamlValue], key_path: KeyPath) -> Iterator[Condition]:
    build = section.get("build")
    if isinstance(build, dict):
        for written, path, within in _leaves(build.get("skip"), (*key_path, "build", "skip"), ()):
            yield Condition(key_path=path, written=written, within=within)


def _leaves(
    value: YamlValue, key_path: KeyPath, within: tuple[tuple[YamlValue, bool], ...]
) -> Iterator[tuple[YamlValue, KeyPath, tuple[tuple[YamlValue, bool], ...]]]:
    """The items of a list with conditions, each with its place and the conditions around it."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _leaves(item, (*key_path, index), within)
    elif isinstance(value, dict) and "if" in value:
        for branch in _BRANCHES:
            around = (*within, (value["if"], branch == "then"))
            yield from _leaves(value.get(branch), (*key_path, branch), around)
    elif value is not None:
        yield value, key_path, within
