# SPDX-License-Identifier: BSD-3-Clause
"""Names the variant keys that a recipe needs and no variant file has, and the files to put them in.

The engine says which template or condition has an undefined value, but neither which of its names that is nor that a
variant file could define it. The names are found by Jinja's own parser, and the engine is asked which it knows.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, get_args

from rattler_build import PlatformConfig, RenderConfig, Stage0Recipe, VariantConfig

from channel_tools.matrix.variants import PINS_FILE, foundation_file
from channel_tools.requests.names import FoundationKind
from channel_tools.system.errors import ConfigError, nearest_names_hint

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from channel_tools.matrix.model import RecipeFile, VariantMatrix
    from channel_tools.system.yamlfile import YamlValue

_NAMED = re.compile(r"You should add `([A-Za-z0-9_]+)` to your variant config")
"""What the engine says of a ``stdlib`` without a value."""
_TEMPLATE = re.compile(r"undefined value.*\(template: (?P<text>.*)\)", re.DOTALL)
_EXPRESSION = re.compile(
    r"condition '(?P<condition>.*)': undefined value|undefined variable in expression '(?P<context>.*)'", re.DOTALL
)


def missing_key_error(
    engine_message: str, recipe_file: RecipeFile, matrix: VariantMatrix, *, line: int | None, folder: Path
) -> ConfigError | None:
    """The error for the engine's whole message if it is about keys without values, else None.

    ``folder`` is an empty folder for the engine's use.
    """
    value = recipe_file.document.value
    context = value.get("context") if isinstance(value, dict) else None
    known = {*matrix.values, *(context if isinstance(context, dict) else ())}
    named = _NAMED.search(engine_message)
    names = [named[1]] if named else [name for name in _undefined_names(engine_message) if not _is_known(name, folder)]
    keys = [name for name in names if name not in known]
    if not keys:
        return None
    message = f"the recipe uses {', '.join(map(repr, keys))}, which neither its context nor a variant file defines"
    return ConfigError(message, path=recipe_file.path, line=line, hint=_hint(keys, known, recipe_file, matrix))


def _undefined_names(message: str) -> list[str]:
    """The names in the template or expression that the engine quotes; none if its message is about anything else."""
    from jinja2 import Environment, TemplateSyntaxError, meta  # noqa: PLC0415 - slow to import, and for errors only

    if (match := _TEMPLATE.search(message)) is not None:
        environment, text = Environment(variable_start_string="${{", autoescape=False), match["text"]  # noqa: S701 - parsed only
    elif (match := _EXPRESSION.search(message)) is not None:
        environment, text = Environment(autoescape=False), f"{{{{ {match['condition'] or match['context']} }}}}"  # noqa: S701
    else:
        return []
    try:
        return sorted(meta.find_undeclared_variables(environment.parse(text)))
    except TemplateSyntaxError:
        return []


def _is_known(name: str, folder: Path) -> bool:
    """Whether the engine itself defines the name, as it does ``linux``, ``env`` and ``compiler``."""
    recipe: dict[str, YamlValue] = {
        "package": {"name": "probe", "version": "0"},
        "about": {"summary": f"${{{{ 'known' if {name} is defined else 'unknown' }}}}"},
    }
    platform = RenderConfig(platform=PlatformConfig(target_platform="linux-64"))
    probe = Stage0Recipe.from_dict(recipe, recipe_dir=folder).render(VariantConfig({}), platform)[0]
    about = probe.recipe.to_dict().get("about")
    return isinstance(about, dict) and about.get("summary") == "known"


def _hint(keys: Sequence[str], known: Iterable[str], recipe_file: RecipeFile, matrix: VariantMatrix) -> str:
    folder = recipe_file.folder.parent.with_name("variants")
    shared = {PINS_FILE, *(foundation_file(kind) for kind in get_args(FoundationKind))}
    of_stack = [file.path for file in matrix.files if file.path.parent == folder and file.path.name not in shared]
    places = f"{folder / PINS_FILE}, for all stacks" + (
        f", or to {of_stack[0]}, for those that name it" if of_stack else ""
    )
    near = nearest_names_hint(keys[0], known, noun="name") if len(keys) == 1 else ""
    lines = ", ".join(f'{key}: ["VALUE"]' for key in keys)
    return (f"{near} otherwise " if near.startswith("did") else "") + f"add {lines} to {places}"
