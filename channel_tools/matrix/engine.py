# SPDX-License-Identifier: BSD-3-Clause
"""Evaluates recipes with the engine: text in, evaluated recipes out.

The engine's errors become ours. They have a message and no line, so each text of the recipe is given to the engine by
itself: the first that it refuses with the same words is the place, and our own reading of the file has its line. If
there is none, it is the line of what the message quotes, if that is in one line only.

The engine ignores ``build.skip`` when it is called from Python and leaves it out of the evaluated recipe, and it does
not evaluate our ``extra.impossible``. So their conditions are put into recipes of their own, which the engine renders.
What ``build.skip`` may hold is as in the engine (``evaluate_skip_list`` in its ``stage0/evaluate.rs``): an expression,
a template whose text is an expression, or a list of these with conditions.

Names the variant keys that a recipe needs and no variant file has, and the files to put them in.

The engine says which template or condition has an undefined value, but neither which of its names that is nor that a
variant file could define it. The names are found by Jinja's own parser, and the engine is asked which it knows.
"""

from __future__ import annotations

import json
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast, get_args

from rattler_build import PlatformConfig, RattlerBuildError, RenderConfig, Stage0Recipe, VariantConfig

from channel_tools.conda.engine_messages import explained
from channel_tools.conda.package import NOARCH
from channel_tools.matrix.variants import ENGINE_KEYS, PINS_FILE, find_used_keys, foundation_file
from channel_tools.requests.names import FoundationKind
from channel_tools.system.errors import ConfigError, nearest_names_hint

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from rattler_build import RenderedVariant

    from channel_tools.matrix.model import RecipeFile, VariantMatrix, VariantScalar
    from channel_tools.system.yamlfile import KeyPath, YamlDocument, YamlValue

_CacheKey = tuple[str, str]
"""A recipe, and the values of all keys that it can use."""


_NAMED = re.compile(r"You should add `([A-Za-z0-9_]+)` to your variant config")
"""What the engine says of a ``stdlib`` without a value."""
_TEMPLATE = re.compile(r"undefined value.*\(template: (?P<text>.*)\)", re.DOTALL)
_EXPRESSION = re.compile(
    r"condition '(?P<condition>.*)': undefined value|undefined variable in expression '(?P<context>.*)'", re.DOTALL
)


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
        possible = recipe_file.used_keys | ENGINE_KEYS
        values = {key: items for key, items in matrix.values.items() if key in possible}
        groups = [[key for key in group if key in possible] for group in matrix.zip_keys]
        key = (recipe_file.name, json.dumps([recipe_file.text, sorted(values.items()), groups]))
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
            values = ", ".join(
                f"{key} {evaluated.variant[key]}" for key in sorted(evaluated.variant) if not key.endswith("_platform")
            )
            message = f"this combination cannot exist: {true.reason} (found {values})"
            hint = "change the values in the stack's variant files; zip_keys make keys move together"
            raise recipe_file.document.error(message, *true.key_path, hint=hint)
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
    r"""The text of a message of the engine in one line of bounded length.

    >>> condensed("one\n   two")
    'one two'
    """
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
            guards = [
                " and ".join(f"({text})" if wanted else f"not ({text})" for text, wanted in condition.within) or "true"
                for condition in conditions
            ]
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
