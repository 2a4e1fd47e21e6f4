# SPDX-License-Identifier: BSD-3-Clause
"""Selectors of variant files: comments like ``# [linux]``, which conda-build evaluates, and rattler-build's ``if``.

What a selector is, and which names it knows, is conda-build's (``conda_build/metadata.py``: ``sel_pat``,
``get_selectors``, ``select_lines``), with two differences. Conda-build takes an unknown name for False, and a list in
brackets at the end of a line for a selector; here the first is an error, and only a comment has a selector. The engine
has a reader of such files, too (``VariantConfig.from_conda_build_config``); it is not used, because it takes each
selector that it cannot evaluate for False.
"""

from __future__ import annotations

import functools
import os
import re
from types import SimpleNamespace
from typing import TYPE_CHECKING

import yaml
from rattler import Subdir

from channel_tools.system.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from jinja2.sandbox import SandboxedEnvironment

_SELECTOR = re.compile(r"(?P<kept>.+?)\s*(?P<comment>#.*)\[(?P<selector>[^\[\]]+)\][^()]*$")
_ARCHITECTURES = {"32": "x86", "64": "x86_64"}
"""Architectures whose names in subdirs differ from those in selectors."""
_OF_AN_INTERPRETER = frozenset({"py", "np", "pl", "lua", "luajit", "r"})
"""Conda-build's names for versions that it takes from its own Python, or from its defaults."""
_BASES = (ArithmeticError, LookupError, TypeError, ValueError, AttributeError)
"""What evaluating an expression raises, besides Jinja's own errors: ``environ["X"]``, ``"a" < 1``."""


class SelectorError(Exception):
    """A selector cannot be evaluated; the message says why."""


class Selectors:
    """Evaluates selectors for a platform.

    ``environ`` has the environment variables that ``os.environ`` has in selectors.
    """

    def __init__(self, platform: str, environ: Mapping[str, str]) -> None:
        self.platform = platform
        values = dict(environ)
        system = SimpleNamespace(environ=values, getenv=values.get, sep=os.sep, pathsep=os.pathsep)
        self._names = _platform_names(platform) | {"os": system, "environ": values, "py3k": True, "py2k": False}
        self._known: dict[str, bool] = {}

    @functools.cached_property
    def _environment(self) -> SandboxedEnvironment:
        from jinja2 import StrictUndefined  # noqa: PLC0415 - as in _evaluate
        from jinja2.sandbox import SandboxedEnvironment  # noqa: PLC0415

        return SandboxedEnvironment(undefined=StrictUndefined)

    def is_true(self, expression: str) -> bool:
        """Evaluate an expression. Raises SelectorError for wrong syntax and for names that are not known."""
        if expression not in self._known:
            self._known[expression] = self._evaluate(expression)
        return self._known[expression]

    def _evaluate(self, expression: str) -> bool:
        from jinja2 import TemplateError  # noqa: PLC0415 - slow to import, and most variant files have no selectors

        try:
            return bool(self._environment.compile_expression(expression, undefined_to_none=False)(self._names))
        except TemplateError as err:
            raise SelectorError(_explain(str(err))) from None
        except _BASES as err:
            raise SelectorError(f"{type(err).__name__}: {err}") from None


def _explain(message: str) -> str:
    match = re.match(r"'(\w+)' is undefined", message)
    if match and match[1] in _OF_AN_INTERPRETER:
        return f"{match[1]!r} has no value here: conda-build takes that of its own Python, not of a variant"
    if match:
        return f"{match[1]!r} is not known; known are the names of platforms (linux, aarch64, unix ...) and os.environ"
    return message


def _platform_names(platform: str) -> dict[str, object]:
    subdirs = {subdir for subdir in (*map(str, Subdir.all()), platform) if "-" in subdir}
    system, _, machine = platform.partition("-")
    names: dict[str, object] = {}
    for subdir in subdirs:
        of_system, _, of_machine = subdir.partition("-")
        names[of_system] = of_system == system
        names[_ARCHITECTURES.get(of_machine, of_machine)] = of_machine == machine
    names |= {"linux32": platform == "linux-32", "linux64": platform == "linux-64"}
    names |= {"win32": platform == "win-32", "win64": platform == "win-64"}
    names["x86"] = machine in _ARCHITECTURES
    names["arm"] = platform.startswith("linux-arm")
    names["unix"] = system in {"linux", "osx", "emscripten"}
    return names | dict.fromkeys(("target_platform", "host_platform", "build_platform"), platform)


def has_selectors(text: str) -> bool:
    """Whether a line of the text ends in a comment with a selector.

    >>> has_selectors("- gcc  # [linux]"), has_selectors("- gcc  # the compiler")
    (True, False)
    """
    return any(_selector_of(line) is not None for line in text.splitlines())


def _selector_of(line: str) -> re.Match[str] | None:
    return None if line.lstrip().startswith("#") else _SELECTOR.match(line.rstrip())


def select_lines(text: str, path: Path, selectors: Selectors) -> str:
    """The text without the lines whose selector is false; they are left blank, so that all lines keep their numbers.

    In a text of several lines (``|``), what cannot be evaluated is a part of the text. Raises ConfigError (file, line)
    for a selector elsewhere that cannot be evaluated.
    """
    selected = []
    for number, line in enumerate(text.splitlines(), start=1):
        selector = _selector_of(line)
        if selector is None:
            selected.append(line)
            continue
        quote = line.rstrip()[-1] if line.rstrip()[-1] in "'\"" else ""  # the whole line may be quoted, for YAML's sake
        try:
            selected.append(selector["kept"] + quote if selectors.is_true(selector["selector"].strip()) else "")
        except SelectorError as err:
            if number in _lines_of_block_scalars(text):
                selected.append(line)
                continue
            message = f"the selector [{selector['selector']}] cannot be evaluated: {err}"
            hint = "correct it; if it is only a comment, write it without brackets"
            raise ConfigError(message, path=path, line=number, hint=hint) from None
    return "\n".join(selected) + "\n"


@functools.lru_cache(maxsize=1)
def _lines_of_block_scalars(text: str) -> frozenset[int]:
    lines: set[int] = set()
    try:
        for token in yaml.scan(text, Loader=yaml.SafeLoader):
            if isinstance(token, yaml.ScalarToken) and token.style in {"|", ">"}:
                lines.update(range(token.start_mark.line + 2, token.end_mark.line + 1))
    except yaml.YAMLError:
        pass  # the parser says what is wrong with it
    return frozenset(lines)
