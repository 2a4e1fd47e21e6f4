# SPDX-License-Identifier: BSD-3-Clause
"""The error for a recipe that the engine refuses: what it says in plain text, and the line that it is about.

The engine's exceptions have a message and no line. So each text of the recipe is given to the engine by itself: the
first that it refuses with the same words is the place, and our own reading of the file has its line. If there is none,
it is the line of what the message quotes, if that is in one line only.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, cast

from rattler_build import RattlerBuildError, Stage0Recipe, VariantConfig

from channel_tools.conda.engine_messages import explained
from channel_tools.matrix.missing_keys import missing_key_error
from channel_tools.system.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rattler_build import RenderConfig

    from channel_tools.matrix.model import RecipeFile, VariantMatrix
    from channel_tools.system.yamlfile import KeyPath, YamlDocument, YamlValue

_TEXT = re.compile(r'(?:message|reason): "((?:[^"\\]|\\.)*)"')
"""The text inside the description of an error's parts, which some of the engine's messages are."""
_QUOTED = re.compile(r"'([^']+)'|`([^`]+)`|: (\S+)$|template: ([^)]+)\)")
_MAX_MESSAGE = 300


def engine_variants(matrix: VariantMatrix) -> VariantConfig:
    """The values of the variant files as the engine takes them."""
    values = {key: list(items) for key, items in matrix.values.items()}
    return VariantConfig(values, zip_keys=[list(group) for group in matrix.zip_keys] or None)


def recipe_error(
    recipe_file: RecipeFile, message: str, matrix: VariantMatrix, *, config: RenderConfig, folder: Path
) -> ConfigError:
    """The error for a recipe that the engine refuses with ``message``, for these values and this configuration.

    ``folder`` is an empty folder for the engine's use. The error has a line if the message is about one place.
    """
    text = engine_text(message)
    line = _line_of_refused(recipe_file.document, text, _Engine(matrix, config, folder))
    if line is None:
        line = _line_of_quoted(recipe_file.document, text)
    if (lacking := missing_key_error(text, recipe_file, matrix, line=line, folder=folder)) is not None:
        return lacking
    explanation = explained(condensed(message))
    hint = explanation.hint or f"correct {recipe_file.path.name}; CEP 13 and CEP 14 describe what a recipe may contain"
    return ConfigError(
        f"the recipe does not render: {explanation.message}", path=recipe_file.path, line=line, hint=hint
    )


def condensed(message: str) -> str:
    """The text of a message of the engine in one line of bounded length."""
    text = " ".join(engine_text(message).split())
    return text if len(text) <= _MAX_MESSAGE else text[: _MAX_MESSAGE - 3] + "..."


def engine_text(message: str) -> str:
    """The text within the engine's description of an error, which has quotes escaped; else the message as it is."""
    inner = _TEXT.search(message)
    return inner.group(1).replace('\\"', '"') if inner else message


def _line_of_refused(document: YamlDocument, text: str, engine: _Engine) -> int | None:
    """The line of the first text of the recipe that the engine, given it by itself, refuses with the same words."""
    context = document.value.get("context") if isinstance(document.value, dict) else None
    # the context first, wherever it stands: with a refused value in it, every other probe is refused as well
    for key_path, value in sorted(_places(document.value, ()), key=lambda location: location[0][0] != "context"):
        recipe = _probe(key_path, value, context) if isinstance(value, str) else None
        if recipe is not None and engine.refusal(recipe) == text:
            return document.line_of(*key_path)
    return None


def _line_of_quoted(document: YamlDocument, text: str) -> int | None:
    """The line of the key (``number``, ``build.number``) or text that the engine quotes, if it is in one line only."""
    for groups in _QUOTED.findall(text):
        quoted = next(group for group in groups if group)
        lines = {
            document.line_of(*key_path)
            for key_path, value in _places(document.value, ())
            if quoted in (key_path[-1], ".".join(map(str, key_path))) or (isinstance(value, str) and quoted in value)
        }
        if len(lines) == 1:
            return lines.pop()
    return None


class _Engine:
    """Says how the engine refuses a recipe."""

    def __init__(self, matrix: VariantMatrix, config: RenderConfig, folder: Path) -> None:
        self._variants = engine_variants(matrix)
        self._config = config
        self._folder = folder

    def refusal(self, recipe: dict[str, object]) -> str:
        """The text of the engine's message, "" if it takes the recipe."""
        try:
            Stage0Recipe.from_dict(recipe, recipe_dir=self._folder).render(self._variants, self._config)
        except RattlerBuildError as err:
            return engine_text(str(err))
        return ""


def _probe(key_path: KeyPath, text: str, context: YamlValue) -> dict[str, object] | None:
    """A recipe that has of the given one its context and this text; None for a text that the engine takes as it is."""
    probe: dict[str, object] = {"package": {"name": "probe", "version": "0"}}
    if isinstance(context, dict):
        names = list(context)
        if key_path[0] == "context":  # each value may use those before it
            names = names[: names.index(cast("str", key_path[1])) + 1]
        probe["context"] = {name: context[name] for name in names}
    if key_path[-1] == "if":
        probe["requirements"] = {"run": [{"if": text, "then": "probe"}]}
    elif "requirements" in key_path:
        probe["requirements"] = {"run": [text]}
    elif "${{" in text:
        probe["about"] = {"summary": text}
    else:
        return None
    return probe


def _places(value: YamlValue, key_path: KeyPath) -> Iterator[tuple[KeyPath, YamlValue]]:
    """Everything in the document below ``key_path``, in the order of the file, with the path to it."""
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in items:
            yield (*key_path, key), item
            yield from _places(item, (*key_path, key))
