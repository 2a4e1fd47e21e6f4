# SPDX-License-Identifier: BSD-3-Clause
"""YAML with the line of every key; duplicate keys are errors, memory and time are bounded.

PyYAML's node tree is used directly: its constructors drop line numbers and silently use the last of duplicate keys. The
parser's events are counted before a tree is made: composing is recursive, in C without a limit, and aliases multiply
what they refer to.
"""

from __future__ import annotations

import io
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import yaml

from channel_tools.system.errors import ConfigError, FileAccessError
from channel_tools.system.files import read_regular

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from pydantic_core import ErrorDetails

YamlValue = None | bool | int | float | str | list["YamlValue"] | dict[str, "YamlValue"]
KeyPath = tuple[str | int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class YamlDocument:
    """A parsed file: its plain value, and the 1-based line of every key and list item by its path.

    ``spellings`` has the text of numbers and booleans that YAML 1.1 reads as a value that is spelled differently: 3.10
    (3.1), 010 (8), 1:30 (90), yes (true).
    """

    path: Path
    value: YamlValue
    lines: Mapping[KeyPath, int]
    spellings: Mapping[KeyPath, str]

    def line_of(self, *key_path: str | int) -> int:
        """The line of a key, or of the nearest enclosing key in the file."""
        for length in range(len(key_path), 0, -1):
            if (line := self.lines.get(key_path[:length])) is not None:
                return line
        return 1

    def error(self, message: str, *key_path: str | int, hint: str | None = None) -> ConfigError:
        """A ConfigError that names this file and the line of ``key_path``."""
        return ConfigError(message, path=self.path, line=self.line_of(*key_path), hint=hint)

    def shape_error(self, detail: ErrorDetails, *, hint: str) -> ConfigError:
        """The ConfigError for what a validation model found in this file."""
        location = detail["loc"]
        name = ".".join(str(part) for part in location)
        if detail["type"] == "extra_forbidden":
            return self.error(f"unknown key {name}", *location, hint=hint)
        if detail["type"] == "missing":
            return self.error(f"{name} is missing", *location, hint=hint)
        value = f", found {detail['input']!r}" if isinstance(detail["input"], str | int | float | bool) else ""
        return self.error(f"{name}: {detail['msg']}{value}" if name else detail["msg"], *location, hint=hint)


_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's parser if PyYAML has it, as its wheels do: ten times as fast."""
DUMPER: type[yaml.SafeDumper] = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
"""Likewise for dumping: the same text, five times as fast."""
_LINE_WIDTH = 120
_BOM = "\ufeff"
_DEPTH = 100
"""The deepest nesting of lists and mappings; recipes reach 12, and Python's recursion limit is 1,000."""
_VALUES = 1_000_000
"""The most keys and values in a document, with aliases expanded: each takes 500 bytes while it is read. Locks for five
platforms have 200,000."""
_YAML_BYTES = 64 << 20
_TEXT_TAGS = frozenset({"tag:yaml.org,2002:str", "tag:yaml.org,2002:timestamp"})
_UNREADABLE_VALUE = (ValueError, TypeError, KeyError, AttributeError, OverflowError)
"""What PyYAML's constructors raise, besides its own errors, for an invalid date, number or key."""


class YamlLimitError(yaml.MarkedYAMLError):
    """The YAML is too large or nested too deeply, with the place where that is."""


def read_yaml(path: Path) -> YamlDocument:
    """Parse one YAML document. Scalars get YAML 1.1's core types; dates stay text.

    Raises ConfigError (file, line) if the file is missing, begins with a byte order mark, is not valid YAML, has
    several documents, a duplicate key, or a key that is not a string.
    """
    return parse_yaml(read_yaml_text(path), path)


def parse_yaml(text: str, path: Path) -> YamlDocument:
    """Like read_yaml, for text that was read from ``path``."""
    try:
        node = _compose(text)
    except YamlLimitError as err:
        line = err.problem_mark.line + 1 if err.problem_mark else 1
        raise ConfigError(str(err.problem), path=path, line=line, hint="write it out flat, without aliases") from None
    except yaml.MarkedYAMLError as err:
        line = err.problem_mark.line + 1 if err.problem_mark else 1
        problem = " ".join(part for part in (err.context, err.problem) if part)
        raise ConfigError(
            f"this is not valid YAML: {problem}", path=path, line=line, hint="correct the syntax there"
        ) from None
    except yaml.YAMLError as err:
        raise ConfigError(f"this is not valid YAML: {err}", path=path, hint="save the file as UTF-8 text") from None
    constructor = _Constructor(path)
    value = constructor.construct(node, ()) if node is not None else None
    return YamlDocument(path=path, value=value, lines=constructor.lines, spellings=constructor.spellings)


def node_of(text: str, *key_path: str) -> yaml.Node | None:
    """The node at a path of keys in valid YAML, with its place in the text; None if there is none.

    The marks of PyYAML's own parser count characters, unlike libyaml's.
    """
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    for key in key_path:
        pairs = node.value if isinstance(node, yaml.MappingNode) else []
        node = next((value for name, value in pairs if name.value == key), None)
    return node


def scalars_below(node: yaml.Node | None, key: str | None = None) -> Iterator[tuple[str | None, yaml.ScalarNode]]:
    """Every scalar value below a node, with the nearest key above it, in the order of the text."""
    if isinstance(node, yaml.ScalarNode):
        yield key, node
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from scalars_below(item, key)
    elif isinstance(node, yaml.MappingNode):
        for name, value in node.value:
            yield from scalars_below(value, str(name.value))


def with_replaced(text: str, spans: Mapping[tuple[int, int], str]) -> str:
    """The text with other words in place of some spans, which do not overlap; all else, comments included, stays."""
    for start, end in sorted(spans, reverse=True):
        text = text[:start] + spans[start, end] + text[end:]
    return text


def span_of(node: yaml.Node) -> tuple[int, int]:
    """The place of a node in its text, for with_replaced."""
    return node.start_mark.index, node.end_mark.index


def _compose(text: str) -> yaml.Node | None:
    """The document's nodes. Raises YAMLError by PyYAML's own parser, since libyaml's may name a line after the end."""
    try:
        _check_limits(text, _LOADER)
        return yaml.compose(text, Loader=_LOADER)
    except YamlLimitError:
        raise
    except yaml.YAMLError:
        _check_limits(text, yaml.SafeLoader)
        return yaml.compose(text, Loader=yaml.SafeLoader)


def _check_limits(text: str | bytes, loader: Any) -> None:  # noqa: ANN401 - one of PyYAML's classes
    """Raise YamlLimitError if the YAML exceeds the limits, YAMLError if it is not valid."""
    limits = _Limits()
    for event in yaml.parse(text, Loader=loader):
        limits.count(event)


class _Limits:
    """Counts the values of a document by the parser's events, with aliases expanded."""

    def __init__(self) -> None:
        self._values = 0
        self._open: list[tuple[str | None, int]] = []
        """Open lists and mappings: the anchor, and the number of values before it."""
        self._anchored: dict[str | None, int | None] = {}
        """The number of values of an anchor, None until it is known."""

    def count(self, event: yaml.Event) -> None:
        """Raise YamlLimitError if this event exceeds the limits."""
        if isinstance(event, yaml.AliasEvent):
            self._values += self._aliased(event)
        elif isinstance(event, yaml.ScalarEvent):
            self._values += 1
            self._anchored[event.anchor] = 1
        elif isinstance(event, yaml.CollectionStartEvent):
            self._values += 1
            self._anchored[event.anchor] = None
            self._open.append((event.anchor, self._values - 1))
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = self._open.pop()
            self._anchored[anchor] = self._values - before
        if len(self._open) > _DEPTH:
            raise _beyond(f"lists and mappings are nested more than {_DEPTH} deep", event)
        if self._values > _VALUES:
            raise _beyond(f"it has more than {_VALUES:,} values, with aliases expanded", event)

    def _aliased(self, event: yaml.AliasEvent) -> int:
        values = self._anchored.get(event.anchor, 1)  # composing reports an undefined anchor
        if values is None:
            raise _beyond(f"the alias *{event.anchor} is inside its own anchor", event)
        return values


def _beyond(problem: str, event: yaml.Event) -> YamlLimitError:
    return YamlLimitError(problem=problem, problem_mark=cast("yaml.Mark", event.start_mark))


def read_yaml_text(path: Path) -> str:
    """The text of a file. Raises ConfigError if it is missing, is not UTF-8, or begins with a byte order mark."""
    try:
        content = read_regular(path, limit_bytes=_YAML_BYTES)
    except OSError as err:
        raise ConfigError(f"cannot be read: {err.strerror}", path=path) from None
    except FileAccessError as err:
        raise ConfigError(err.message.removeprefix(f"{path}: "), path=path, hint=err.hint) from None
    return yaml_text(content, path)


def yaml_text(content: bytes, path: Path) -> str:
    """The text of what was read from ``path``, with lines that end in a newline alone. Raises as read_yaml_text."""
    try:
        text = io.TextIOWrapper(io.BytesIO(content), encoding="utf-8").read()
    except UnicodeDecodeError as err:
        raise ConfigError(
            f"byte {err.start} is not valid UTF-8", path=path, hint="save the file as UTF-8 text"
        ) from None
    if text.startswith(_BOM):
        message = "begins with a byte order mark (BOM), which build engines take for a part of the first key"
        hint = f"save it as UTF-8 without BOM: sed -i '1s/^\\xef\\xbb\\xbf//' {shlex.quote(str(path))}"
        raise ConfigError(message, path=path, line=1, hint=hint)
    return text


class _Constructor:
    """Makes plain values of a document's nodes, and records ``lines`` and ``spellings`` of YamlDocument."""

    def __init__(self, path: Path) -> None:
        self.lines: dict[KeyPath, int] = {}
        self.spellings: dict[KeyPath, str] = {}
        self._path = path
        self._loader = yaml.SafeLoader("")

    def construct(self, node: yaml.Node, key_path: KeyPath) -> YamlValue:
        """The node's value. Raises ConfigError for a key that is not text or a duplicate, and for an invalid scalar."""
        self.lines.setdefault(key_path, node.start_mark.line + 1)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, key_path)
        if isinstance(node, yaml.SequenceNode):
            return [self.construct(item, (*key_path, index)) for index, item in enumerate(node.value)]
        value = self._scalar(node)
        if isinstance(value, int | float) and str(value).lower() != node.value.lower():
            self.spellings[key_path] = node.value
        return value

    def _mapping(self, node: yaml.MappingNode, key_path: KeyPath) -> dict[str, YamlValue]:
        result: dict[str, YamlValue] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                message = "a key must be plain text, but this one is a list or mapping"
                raise ConfigError(message, path=self._path, line=line)
            key = str(key_node.value)
            if key in result:
                first = self.lines[(*key_path, key)]
                message = f"duplicate key {key!r}, first in line {first}"
                raise ConfigError(message, path=self._path, line=line, hint="keep one of the two")
            self.lines[(*key_path, key)] = line
            result[key] = self.construct(value_node, (*key_path, key))
        return result

    def _scalar(self, node: yaml.Node) -> YamlValue:
        if node.tag in _TEXT_TAGS:
            return str(node.value)
        try:
            value: YamlValue = self._loader.construct_object(node)
        except (yaml.constructor.ConstructorError, ValueError):
            message = f"{node.value!r} cannot be read as {node.tag.removeprefix('tag:yaml.org,2002:')}"
            hint = "write plain text, a number, a list or a mapping"
            raise ConfigError(message, path=self._path, line=node.start_mark.line + 1, hint=hint) from None
        return value


def load_plain_yaml(content: bytes) -> Any:  # noqa: ANN401 - YAML of any shape, for the caller to check
    """The values in YAML or JSON that a program wrote, for which no line numbers are needed.

    Raises YAMLError, also if it exceeds the limits or has a value that is invalid for its tag.
    """
    _check_limits(content, _LOADER)
    try:
        return yaml.load(content, Loader=_LOADER)  # noqa: S506 - a safe loader
    except _UNREADABLE_VALUE as err:
        raise yaml.YAMLError(f"a value cannot be read: {err}") from None


def dump_yaml(value: Mapping[str, object]) -> str:
    """The mapping as YAML in block style, its keys in their order."""
    return yaml.dump(dict(value), Dumper=DUMPER, sort_keys=False, allow_unicode=True, width=_LINE_WIDTH)
