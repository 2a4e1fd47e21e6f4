# SPDX-License-Identifier: BSD-3-Clause
"""Which variant keys the text of a recipe can use, without rendering it.

Rendering shows only what one combination uses; a key in a branch that no stack takes is used all the same. Names of
template functions are counted too, which does no harm: no variant key is called like one.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from channel_tools.yamlfile import YamlValue

_TEMPLATE = re.compile(r"\$\{\{(.*?)\}\}", re.DOTALL)
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TOOLCHAIN = re.compile(r"\b(compiler|stdlib)\(\s*['\"]([A-Za-z0-9_-]+)['\"]\s*\)")
_CONDITION_KEYS = frozenset({"if", "skip"})
_PINNED_GROUPS = frozenset({"build", "host"})
_PACKAGE_NAME = re.compile(r"[A-Za-z0-9_.-]+")


def find_used_keys(recipe: YamlValue) -> frozenset[str]:
    """Every variant key that the recipe may use: in templates, conditions and use_keys, by name in build and host."""
    return frozenset(_keys_in(recipe, parent=""))


def _keys_in(value: YamlValue, *, parent: str) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _keys_in_entry(key, item, parent)
    elif isinstance(value, list):
        for item in value:
            yield from _keys_in(item, parent=parent)
    elif isinstance(value, str):
        yield from _keys_in_text(value)


def _keys_in_entry(key: str, item: YamlValue, parent: str) -> Iterator[str]:
    if key in _CONDITION_KEYS:
        for text in _texts(item):
            yield from _keys_in_expression(text)
    if key == "use_keys":
        yield from _texts(item)
    if parent == "requirements" and key in _PINNED_GROUPS:
        yield from (_key_of_package(text) for text in _texts(item) if not text.startswith("$"))
    yield from _keys_in(item, parent=key)


def _texts(value: YamlValue) -> Iterator[str]:
    """The strings in a list whose items may be conditional."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, dict):
        yield from (text for key, item in value.items() if key in {"then", "else"} for text in _texts(item))


def _keys_in_text(text: str) -> Iterator[str]:
    for expression in _TEMPLATE.findall(text):
        yield from _keys_in_expression(expression)


def _keys_in_expression(expression: str) -> Iterator[str]:
    yield from _IDENTIFIER.findall(expression)
    for function, language in _TOOLCHAIN.findall(expression):
        yield f"{language}_{function}"
        yield f"{language}_{function}_version"


def _key_of_package(spec: str) -> str:
    match = _PACKAGE_NAME.match(spec)
    return match.group().replace("-", "_").replace(".", "_").lower() if match else ""
