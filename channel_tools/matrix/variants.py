# SPDX-License-Identifier: BSD-3-Clause
"""Variant configuration files, and the keys that a recipe can use.

A file is plain (keys with lists of values, which conda-build and rattler-build read alike), or it has comment selectors
and is read as conda-build reads it, or conditions and is read as rattler-build does. In the first and the last, values
that YAML 1.1 reads differently from how they are written are errors: an unquoted 3.10 is 3.1, 010 is 8, yes is true.
"""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING, cast

from rattler_build import JinjaConfig, PlatformConfig, RattlerBuildError, VariantConfig

from channel_tools.conda.metadata import PLATFORMS
from channel_tools.matrix.model import VariantFile, VariantMatrix, VariantScalar
from channel_tools.matrix.selectors import SelectorError, Selectors, has_selectors, select_lines
from channel_tools.system.errors import nearest_names_hint
from channel_tools.system.yamlfile import parse_yaml, read_yaml_text

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from channel_tools.matrix.model import Stack
    from channel_tools.requests.names import BaseName, FoundationKind
    from channel_tools.system.yamlfile import KeyPath, YamlDocument, YamlValue

ZIP_KEYS = "zip_keys"
PINS_FILE = "pins.yaml"
CONDA_BUILD_CONFIG = "conda_build_config.yaml"
"""The name by which rattler-build and conda-build recognise files in conda-build's format."""
# Keys that the engines themselves read: no recipe has to name them.
ENGINE_KEYS = frozenset({"target_platform", "build_platform", "host_platform", "channel_sources", "channel_targets"})
OLD_FORMAT_KEYS = frozenset({"pin_run_as_build", "extend_keys"})
_JINJA_WORDS = frozenset({"if", "else", "and", "or", "not", "in", "is", "compiler", "stdlib"})
_TEMPLATE = re.compile(r"\$\{\{(.*?)\}\}", re.DOTALL)
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TOOLCHAIN = re.compile(r"\b(compiler|stdlib)\(\s*['\"]([A-Za-z0-9_-]+)['\"]\s*\)")
_CONDITION_KEYS = frozenset({"if", "skip"})
_PINNED_GROUPS = frozenset({"build", "host"})
_MAX_BITS = 63
"""The largest number that the engine accepts."""
_PACKAGE_NAME = re.compile(r"[A-Za-z0-9_.-]+")


def foundation_file(kind: FoundationKind) -> str:
    """The name of the variant file with the values specific to this kind of foundation.

    >>> foundation_file("registry")
    'foundation-registry.yaml'
    """
    return f"foundation-{kind}.yaml"


def base_file(base: BaseName) -> str:
    """The name of the variant file with what differs on this Debian release from the registry foundation's file.

    >>> base_file("debian-13")
    'foundation-registry-debian-13.yaml'
    """
    return f"foundation-registry-{base}.yaml"


def variant_file_names(stack: Stack, kind: FoundationKind, base: BaseName | None = None) -> tuple[str, ...]:
    """The variant files of a stack in the order they are applied; only those that the stack names must exist."""
    own = [name for file in stack.variants for name in (file, on_foundation(file, kind))]
    on_base = [base_file(base)] if base is not None else []
    return (PINS_FILE, foundation_file(kind), *on_base, *own)


def on_foundation(file: str, kind: FoundationKind) -> str:
    """The name of the variant file with what differs from ``file`` on this kind of foundation.

    >>> on_foundation("udp.yaml", "registry")
    'udp-registry.yaml'
    """
    return f"{file.removesuffix('.yaml')}-{kind}.yaml"


def read_variant_file(path: Path, environ: Mapping[str, str] = MappingProxyType({})) -> VariantFile:
    """Read one file, for every platform that packages are built on.

    A file with selectors (``# [linux]``), or with conda-build's own name for it, is read as conda-build does;
    conditions (``if``, ``then``) and templates as the engine does. ``environ`` are the environment variables for
    selectors. Raises ConfigError (file, line) if it is not valid YAML, or has duplicate keys, a value other than a
    list, or a selector or condition that cannot be evaluated.
    """
    text = read_yaml_text(path)
    if path.name == CONDA_BUILD_CONFIG or has_selectors(text):
        return files_by_platform(
            {platform: read_conda_build_config(text, path, Selectors(platform, environ)) for platform in PLATFORMS}
        )
    document = parse_yaml(text, path)
    if _is_conditional(document.value):
        return files_by_platform(
            {platform: _read_conditional(document, text, Selectors(platform, environ)) for platform in PLATFORMS}
        )
    value = _entries(document)
    values = {key: _read_values(document, key, item) for key, item in value.items() if key != ZIP_KEYS}
    zip_keys = _read_zip_keys(document, value[ZIP_KEYS]) if ZIP_KEYS in value else None
    return VariantFile(document=document, values=values, zip_keys=zip_keys)


def files_by_platform(readings: Mapping[str, VariantFile]) -> VariantFile:
    """One file of its readings; if they differ, its own values are those of any platform."""
    first, *others = readings.values()
    if all((reading.values, reading.zip_keys) == (first.values, first.zip_keys) for reading in others):
        return first
    values: dict[str, tuple[VariantScalar, ...]] = {}
    for reading in readings.values():
        values |= {key: tuple(dict.fromkeys((*values.get(key, ()), *added))) for key, added in reading.values.items()}
    return VariantFile(document=first.document, values=values, zip_keys=None, others=readings)


def _entries(document: YamlDocument) -> Mapping[str, YamlValue]:
    value = {} if document.value is None else document.value
    if not isinstance(value, dict):
        raise document.error(
            f"a variant file must be a mapping of keys to lists of values, found a {_kind(value)}",
            hint="write for example:  python: ['3.11.*']",
        )
    return value


def read_conda_build_config(
    text: str, path: Path, selectors: Selectors, *, without: Collection[str] = ()
) -> VariantFile:
    """Read conda-build's format as conda-build does for a platform (``parse_config_file``): keys without values are
    left out, a single value is a list of one, and numbers are text. ``true`` and ``false`` are truth values, as the
    engine has them. ``without`` names keys that are not read.

    Raises ConfigError (file, line).
    """
    document = parse_yaml(select_lines(text, path, selectors), path)
    values: dict[str, tuple[VariantScalar, ...]] = {}
    zip_keys = None
    for key, item in _entries(document).items():
        if key == ZIP_KEYS:
            zip_keys = _zip_keys_of_conda_build(document, item)
        elif key not in without and item not in (None, []):
            _check_key(document, key)
            scalars = item if isinstance(item, list) else [item]
            values[key] = tuple(scalar_of(document, (key, index), scalar) for index, scalar in enumerate(scalars))
    return VariantFile(document=document, values=values, zip_keys=zip_keys)


def scalar_of(document: YamlDocument, key_path: KeyPath, item: YamlValue) -> VariantScalar:
    """A value as conda-build's format has it: numbers are text, as they are spelled. Raises ConfigError for others."""
    if isinstance(item, dict | list):
        name = next(key for key in reversed(key_path) if isinstance(key, str))
        message = f"a value of {name!r} must be text, found a {_kind(item)}"
        hint = "a file with selectors has no conditions (if, then); use one of the two"
        raise document.error(message, *key_path, hint=hint)
    spelled = document.spellings.get(key_path, document.spellings.get(key_path[:-1]))
    if isinstance(item, bool) and spelled is None:
        return item
    return spelled if spelled is not None else "" if item is None else str(item)


def _zip_keys_of_conda_build(document: YamlDocument, value: YamlValue) -> tuple[tuple[str, ...], ...] | None:
    """The groups that are left on a platform: one of fewer than two keys has nothing that moves together."""
    if not isinstance(value, list):
        return _read_zip_keys(document, value) if value else None
    groups: list[YamlValue] = [value] if all(isinstance(item, str) for item in value) else list(value)
    larger: list[YamlValue] = [group for group in groups if group and not (isinstance(group, list) and len(group) == 1)]
    return _read_zip_keys(document, larger) if larger else None


def _is_conditional(value: YamlValue) -> bool:
    if isinstance(value, dict):
        return any(_is_conditional(item) for item in value.values() if isinstance(item, list))
    if isinstance(value, list):
        return any((isinstance(item, dict) and "if" in item) or _is_conditional(item) for item in value)
    return isinstance(value, str) and "${{" in value


def _read_conditional(document: YamlDocument, text: str, selectors: Selectors) -> VariantFile:
    """Read a file with conditions or templates for a platform: values from the engine, after the conditions, since the
    engine takes one that it cannot evaluate for false."""
    for key, item in _entries(document).items():
        _check_conditions(document, (key,), item, selectors)
    platform = PlatformConfig(target_platform=selectors.platform)
    try:
        config = VariantConfig.from_yaml_with_context(text, JinjaConfig(platform=platform))
    except RattlerBuildError as err:
        message = f"the build engine cannot read it: {str(err).strip(chr(34))}"
        raise document.error(message, hint="a list has values, or mappings of if, then and else") from None
    values = {key: tuple(cast("list[VariantScalar]", items)) for key, items in config.to_dict().items() if items}
    groups = config.zip_keys
    zip_keys = None if groups is None else tuple(tuple(key for key in group if key in values) for group in groups)
    larger = None if zip_keys is None else tuple(group for group in zip_keys if len(group) > 1)
    return VariantFile(document=document, values=values, zip_keys=larger)


def _check_conditions(document: YamlDocument, key_path: KeyPath, item: YamlValue, selectors: Selectors) -> None:
    if isinstance(item, dict) and len(key_path) > 1:
        condition, unknown = item.get("if"), sorted(item.keys() - {"if", "then", "else"})
        if unknown or "then" not in item or not isinstance(condition, str | bool):
            message = f"a condition has the keys if, then and perhaps else, found {', '.join(item) or 'none'}"
            raise document.error(message, *key_path, hint="write  - if: linux  and below it  then: VALUE")
        try:
            selectors.is_true(str(condition).lower() if isinstance(condition, bool) else condition)
        except SelectorError as err:
            message = f"the condition {condition!r} cannot be evaluated: {err}"
            raise document.error(message, *key_path, "if", hint="correct the condition") from None
    if isinstance(item, dict | list):
        for key, nested in item.items() if isinstance(item, dict) else enumerate(item):
            if key != "if":
                _check_conditions(document, (*key_path, key), nested, selectors)
    elif key_path[0] != ZIP_KEYS:
        _check_spelling(document, key_path, item)


def _check_key(document: YamlDocument, key: str) -> None:
    if key in OLD_FORMAT_KEYS:
        message = f"key {key!r} has no meaning for v1 recipes"
        raise document.error(message, key, hint=f"remove {key}, and write pins into the requirements of the recipe")


def _read_values(document: YamlDocument, key: str, value: YamlValue) -> tuple[VariantScalar, ...]:
    _check_key(document, key)
    if not isinstance(value, list):
        described = f"the {_kind(value)} {value!r}" if isinstance(value, str | int | float) else f"a {_kind(value)}"
        hint = f"write  {key}: [{value!r}]" if isinstance(value, str | int) else f"write  {key}: [...]"
        raise document.error(f"the value of {key!r} must be a list, found {described}", key, hint=hint)
    if not value:
        raise document.error(f"the list of {key!r} is empty, so there would be no variant", key, hint="give it a value")
    return tuple(_read_scalar(document, key, index, item) for index, item in enumerate(value))


def _read_scalar(document: YamlDocument, key: str, index: int, item: YamlValue) -> VariantScalar:
    _check_spelling(document, (key, index), item)
    if not isinstance(item, str | int):
        message = f"a value of {key!r} must be text, found a {_kind(item)}"
        hint = "write text, or a condition with the keys if and then"
        raise document.error(message, key, index, hint=hint)
    return item


def _check_spelling(document: YamlDocument, key_path: KeyPath, item: YamlValue) -> None:
    """Raise ConfigError for a value that YAML parsers read differently, or that the engine does not accept."""
    key, spelled = key_path[0], document.spellings.get(key_path)
    if isinstance(item, float) or spelled is not None:
        text = spelled or str(item)
        message = f"{key!r} has {text}, which some YAML parsers read as {item} and others as text"
        raise document.error(message, *key_path, hint=f"quote it: '{text}'")
    if isinstance(item, int) and item.bit_length() > _MAX_BITS:
        message = f"{key!r} has the number {item}, which is too large"
        raise document.error(message, *key_path, hint=f"quote it: '{item}'")


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

    Groups of a base (``is_base``) remain beside those of other files, without the keys that other files have values
    for. Raises ConfigError (file, line) if zip_keys names a key without values or keys of unequal length.
    """
    values: dict[str, tuple[VariantScalar, ...]] = {}
    zipping: VariantFile | None = None
    for file in files:
        values |= file.values
        zipping = file if file.zip_keys is not None and not file.is_base else zipping
    groups = (zipping.zip_keys or ()) if zipping is not None else ()
    if zipping is not None:
        for index, group in enumerate(groups):
            _check_zip_group(zipping.document, index, group, values, files)
    other_keys = {key for file in files if not file.is_base for key in file.values}.union(*groups)
    bases = [group for file in files if file.is_base for group in file.zip_keys or ()]
    remaining = [tuple(key for key in group if key not in other_keys) for group in bases]
    return VariantMatrix(
        files=tuple(files), values=values, zip_keys=(*groups, *[group for group in remaining if len(group) > 1])
    )


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
            hint = nearest_names_hint(key, values, noun="variant key")
            raise document.error(message, ZIP_KEYS, index, position, hint=hint)
    if len({len(values[key]) for key in group}) > 1:
        counts = ", ".join(f"{key} has {len(values[key])} ({_origin(key, files)})" for key in group)
        message = f"keys in one group of zip_keys must have the same number of values: {counts}"
        raise document.error(message, ZIP_KEYS, index, hint="give every key of the group the same number of values")


def _origin(key: str, files: Sequence[VariantFile]) -> str:
    file = next(file for file in reversed(files) if key in file.values)
    return f"{file.path.name}:{file.document.line_of(key)}"


def notes_on_unused_keys(files: Iterable[VariantFile], used_keys: frozenset[str]) -> Iterator[str]:
    """A line (file, line, nearest names) for each key that no recipe can use; one in a file of ours is misspelled."""
    for file in files:
        for key in file.values:
            if key not in used_keys and key not in ENGINE_KEYS:
                hint = nearest_names_hint(key, used_keys - _JINJA_WORDS, noun="variant key")
                nearest = f"; {hint}" if hint.startswith("did") else ""
                line = file.document.line_of(key)
                yield f"note: {file.path}:{line}: no recipe of this tree uses the key {key!r}{nearest}"


def _kind(value: YamlValue) -> str:
    if isinstance(value, dict):
        return "mapping"
    if isinstance(value, list):
        return "list"
    return "text" if isinstance(value, str) else "nothing" if value is None else "number"


def find_used_keys(recipe: YamlValue) -> frozenset[str]:
    """Every variant key that the recipe may use: in templates, conditions and use_keys, by name in build and host.

    >>> sorted(find_used_keys({"requirements": {"host": ["cuda-version ${{ cuda_version }}.*"]}}))
    ['cuda_version']
    """
    return frozenset(_keys_in(recipe, parent=""))


def _keys_in(value: YamlValue, *, parent: str) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            if key in _CONDITION_KEYS:
                for text in _texts(item):
                    yield from _keys_in_expression(text)
            if key == "use_keys":
                yield from _texts(item)
            if parent == "requirements" and key in _PINNED_GROUPS:
                yield from (_key_of_package(text) for text in _texts(item) if not text.startswith("$"))
            yield from _keys_in(item, parent=key)
    elif isinstance(value, list):
        for item in value:
            yield from _keys_in(item, parent=parent)
    elif isinstance(value, str):
        for expression in _TEMPLATE.findall(value):
            yield from _keys_in_expression(expression)


def _texts(value: YamlValue) -> Iterator[str]:
    """The strings in a list whose items may be conditional."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, dict):
        yield from (text for key, item in value.items() if key in {"then", "else"} for text in _texts(item))


def _keys_in_expression(expression: str) -> Iterator[str]:
    yield from _IDENTIFIER.findall(expression)
    for function, language in _TOOLCHAIN.findall(expression):
        yield f"{language}_{function}"
        yield f"{language}_{function}_version"


def _key_of_package(spec: str) -> str:
    match = _PACKAGE_NAME.match(spec)
    return match.group().replace("-", "_").replace(".", "_").lower() if match else ""
