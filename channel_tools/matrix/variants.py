# SPDX-License-Identifier: BSD-3-Clause
"""Variant configuration files, and the keys that a recipe can use.

Only plain keys with lists of values are accepted, the part that conda-build and rattler-build have in common.
Selectors, templates and conditions are errors, since the two tools would read them differently. So are values that
YAML 1.1 reads differently from how they are written: an unquoted 3.10 is 3.1, 010 is 8, yes is true.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from channel_tools.matrix.model import VariantFile, VariantMatrix, VariantScalar
from channel_tools.system.errors import nearest_names_hint
from channel_tools.system.yamlfile import read_yaml

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from channel_tools.system.errors import ConfigError
    from channel_tools.system.yamlfile import YamlDocument, YamlValue

ZIP_KEYS = "zip_keys"
# Keys that the engines themselves read: no recipe has to name them.
ENGINE_KEYS = frozenset({"target_platform", "build_platform", "host_platform", "channel_sources", "channel_targets"})
_OLD_FORMAT_KEYS = frozenset({"pin_run_as_build", "extend_keys"})
_JINJA_WORDS = frozenset({"if", "else", "and", "or", "not", "in", "is", "compiler", "stdlib"})
_TEMPLATE = re.compile(r"\$\{\{(.*?)\}\}", re.DOTALL)
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TOOLCHAIN = re.compile(r"\b(compiler|stdlib)\(\s*['\"]([A-Za-z0-9_-]+)['\"]\s*\)")
_CONDITION_KEYS = frozenset({"if", "skip"})
_PINNED_GROUPS = frozenset({"build", "host"})
_MAX_BITS = 63
"""The largest number that the engine accepts."""
_PACKAGE_NAME = re.compile(r"[A-Za-z0-9_.-]+")


def read_variant_file(path: Path) -> VariantFile:
    """Read one file.

    Raises ConfigError (file, line) if it is not valid YAML, or has duplicate keys or a value other than a list.
    """
    document = read_yaml(path)
    value = document.value
    if value is None:
        value = {}
    if not isinstance(value, dict):
        raise document.error(
            f"a variant file must be a mapping of keys to lists of values, found a {_kind(value)}",
            hint="write for example:  python: ['3.11.*']",
        )
    values = {key: _read_values(document, key, item) for key, item in value.items() if key != ZIP_KEYS}
    zip_keys = _read_zip_keys(document, value[ZIP_KEYS]) if ZIP_KEYS in value else None
    return VariantFile(document=document, values=values, zip_keys=zip_keys)


def _read_values(document: YamlDocument, key: str, value: YamlValue) -> tuple[VariantScalar, ...]:
    if key in _OLD_FORMAT_KEYS:
        message = f"key {key!r} has no meaning for v1 recipes"
        raise document.error(message, key, hint=f"remove {key}, and write pins into the requirements of the recipe")
    if not isinstance(value, list):
        found = f"the {_kind(value)} {value!r}" if isinstance(value, str | int | float) else f"a {_kind(value)}"
        hint = f"write  {key}: [{value!r}]" if isinstance(value, str | int) else f"write  {key}: [...]"
        raise document.error(f"the value of {key!r} must be a list, found {found}", key, hint=hint)
    if not value:
        raise document.error(f"the list of {key!r} is empty, so there would be no variant", key, hint="give it a value")
    return tuple(_read_scalar(document, key, index, item) for index, item in enumerate(value))


def _read_scalar(document: YamlDocument, key: str, index: int, item: YamlValue) -> VariantScalar:
    spelled = document.spellings.get((key, index))
    if isinstance(item, float) or spelled is not None:
        text = spelled or str(item)
        message = f"{key!r} has {text}, which some YAML parsers read as {item} and others as text"
        raise document.error(message, key, index, hint=f"quote it: '{text}'")
    if isinstance(item, int) and item.bit_length() > _MAX_BITS:
        message = f"{key!r} has the number {item}, which is too large"
        raise document.error(message, key, index, hint=f"quote it: '{item}'")
    if not isinstance(item, str | int):
        message = f"a value of {key!r} must be text, found a {_kind(item)}"
        raise document.error(message, key, index, hint="selectors and conditions are not supported; use another file")
    return item


def _read_zip_keys(document: YamlDocument, value: YamlValue) -> tuple[tuple[str, ...], ...]:
    if not isinstance(value, list) or not all(isinstance(group, list) for group in value):
        message = "zip_keys must be a list of groups, each a list of keys"
        raise document.error(message, ZIP_KEYS, hint="write  zip_keys: [[python, numpy]]")
    groups = []
    for index, group in enumerate(value):
        names = tuple(name for name in group if isinstance(name, str)) if isinstance(group, list) else ()
        if len(names) < 2 or len(names) != len(set(names)):  # noqa: PLR2004  (a group zips at least two keys)
            message = f"group {index + 1} of zip_keys must name two keys or more, each once"
            raise document.error(message, ZIP_KEYS, index, hint="correct or remove the group")
        groups.append(names)
    return tuple(groups)


def merge_variant_files(files: Sequence[VariantFile]) -> VariantMatrix:
    """Merge as both engines do: a later file replaces the values of a key, and all zip_keys.

    Raises ConfigError (file, line) if zip_keys names a key without values or keys of unequal length.
    """
    values: dict[str, tuple[VariantScalar, ...]] = {}
    zipping: VariantFile | None = None
    for file in files:
        values |= file.values
        zipping = file if file.zip_keys is not None else zipping
    groups = (zipping.zip_keys or ()) if zipping is not None else ()
    if zipping is not None:
        for index, group in enumerate(groups):
            _check_zip_group(zipping.document, index, group, values, files)
    return VariantMatrix(files=tuple(files), values=values, zip_keys=groups)


def _check_zip_group(
    document: YamlDocument,
    index: int,
    group: tuple[str, ...],
    values: Mapping[str, tuple[VariantScalar, ...]],
    files: Sequence[VariantFile],
) -> None:
    for position, key in enumerate(group):
        if key not in values:
            names = ", ".join(file.path.name for file in files)
            message = f"zip_keys names {key!r}, which has no values in {names}"
            hint = nearest_names_hint(key, values, what="variant key")
            raise document.error(message, ZIP_KEYS, index, position, hint=hint)
    if len({len(values[key]) for key in group}) > 1:
        counts = ", ".join(f"{key} has {len(values[key])} ({_origin(key, files)})" for key in group)
        message = f"keys in one group of zip_keys must have the same number of values: {counts}"
        raise document.error(message, ZIP_KEYS, index, hint="give every key of the group the same number of values")


def _origin(key: str, files: Sequence[VariantFile]) -> str:
    file = next(file for file in reversed(files) if key in file.values)
    return f"{file.path.name}:{file.document.line_of(key)}"


def check_keys_are_used(files: Iterable[VariantFile], used_keys: frozenset[str]) -> None:
    """Raise ConfigError (file, line, nearest names) for the first key that no recipe can use; most are misspelled."""
    for file in files:
        for key in file.values:
            if key not in used_keys and key not in ENGINE_KEYS:
                raise _unused_key(file, key, used_keys)


def _unused_key(file: VariantFile, key: str, used_keys: frozenset[str]) -> ConfigError:
    message = f"no recipe of this tree uses the key {key!r}"
    hint = nearest_names_hint(key, used_keys - _JINJA_WORDS, what="variant key")
    return file.document.error(message, key, hint=hint if hint.startswith("did") else "remove the key or use it")


def _kind(value: YamlValue) -> str:
    if isinstance(value, dict):
        return "mapping"
    if isinstance(value, list):
        return "list"
    return "text" if isinstance(value, str) else "nothing" if value is None else "number"


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
