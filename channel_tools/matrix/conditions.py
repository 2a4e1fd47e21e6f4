# SPDX-License-Identifier: BSD-3-Clause
"""Conditions of a recipe that the engine does not judge for us: ``build.skip``, and ``extra.impossible``.

The engine ignores ``build.skip`` when it is driven from Python and leaves it out of the evaluated recipe, and what
stands in ``extra`` is nothing to it. So the conditions go into a recipe of their own, rendered for the one combination.
"""

from __future__ import annotations

import json
import tempfile
from typing import TYPE_CHECKING, cast

from rattler_build import RattlerBuildError, Stage0Recipe, VariantConfig

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rattler_build import RenderConfig

    from channel_tools.errors import ConfigError
    from channel_tools.matrix.model import RecipeFile, VariantScalar
    from channel_tools.yamlfile import YamlValue

IMPOSSIBLE_KEY = "impossible"


class BadConditionError(Exception):
    """A condition that is no expression; the engine's words."""


def is_skipped(
    recipe_file: RecipeFile, recipe: Mapping[str, YamlValue], variant: Mapping[str, VariantScalar], config: RenderConfig
) -> bool:
    """Whether ``build.skip`` leaves this combination out. Raises BadConditionError."""
    package = cast("Mapping[str, str]", recipe["package"])["name"]
    return bool(_holding(_skip_conditions(recipe_file, package), recipe, variant, config))


def impossible_error(
    recipe_file: RecipeFile, recipe: Mapping[str, YamlValue], variant: Mapping[str, VariantScalar], config: RenderConfig
) -> ConfigError | None:
    """The error for a combination that the recipe's ``extra.impossible`` says cannot exist, if this is one.

    The section is a list of ``{if: CONDITION, then: REASON}``, like a recipe's other conditions; they may name the
    variant keys that the recipe uses. Raises BadConditionError.
    """
    entries = _impossible_entries(recipe_file)
    holding = _holding([entry["if"] for entry in entries], recipe, variant, config)
    if not holding:
        return None
    first = holding[0]
    names = sorted(key for key in variant if not key.endswith("_platform"))
    found = ", ".join(f"{key} {variant[key]}" for key in names)
    message = f"this combination cannot exist: {entries[first]['then']} (found {found})"
    hint = "change the values in the stack's variant files; zip_keys make keys move together"
    return recipe_file.document.error(message, "extra", IMPOSSIBLE_KEY, first, hint=hint)


def _impossible_entries(recipe_file: RecipeFile) -> list[Mapping[str, YamlValue]]:
    value = recipe_file.document.value
    extra = value.get("extra") if isinstance(value, dict) else None
    entries = extra.get(IMPOSSIBLE_KEY) if isinstance(extra, dict) else None
    items = entries if isinstance(entries, list) else [] if entries is None else [entries]
    for index, item in enumerate(items):
        if not isinstance(item, dict) or set(item) != {"if", "then"}:
            message = "an entry of extra.impossible has two keys, if and then"
            hint = 'write  - if: a == "1" and b == "2"  and below it  then: why that cannot be'
            raise recipe_file.document.error(message, "extra", IMPOSSIBLE_KEY, index, hint=hint)
    return cast("list[Mapping[str, YamlValue]]", items)


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


def _holding(
    conditions: Sequence[YamlValue],
    recipe: Mapping[str, YamlValue],
    variant: Mapping[str, VariantScalar],
    render_config: RenderConfig,
) -> list[int]:
    """The numbers of the conditions that hold."""
    if not conditions:
        return []
    probe = {
        "context": recipe.get("context") or {},
        "package": {"name": "probe", "version": "0"},
        "requirements": {
            "run": [{"if": _as_expression(item), "then": f"holds-{index}"} for index, item in enumerate(conditions)]
        },
    }
    config = VariantConfig({key: [value] for key, value in variant.items()})
    with tempfile.TemporaryDirectory() as folder:
        try:
            text = json.dumps(probe)  # which is YAML, and written sooner
            results = Stage0Recipe.from_yaml(text, recipe_dir=folder).render(config, render_config)
        except RattlerBuildError as err:
            raise BadConditionError(str(err)) from None
    requirements = cast("Mapping[str, list[str]]", results[0].recipe.to_dict()["requirements"])
    return [int(name.rpartition("-")[2]) for name in requirements.get("run", [])]


def _as_expression(condition: YamlValue) -> YamlValue:
    return str(condition).lower() if isinstance(condition, bool) else condition
