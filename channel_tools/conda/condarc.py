# SPDX-License-Identifier: BSD-3-Clause
"""conda's configuration files (.condarc): which of a user's settings say where channels are and how to reach them.

Files are searched, merged and expanded as conda does (conda/base/constants.py, SEARCH_PATH; conda/common/
configuration.py): a later file stands over an earlier one, mappings are merged key by key, lists are joined, and
``#!final`` keeps what the first file has. A variable ``CONDA_<KEY>`` stands over all files. conda's own reader needs
conda.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from channel_tools.system.errors import ConfigError
from channel_tools.system.yamlfile import parse_yaml, read_yaml_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from channel_tools.system.yamlfile import YamlDocument, YamlValue

_SYSTEM = ("/etc/conda", "/var/lib/conda")
_NAMES = (".condarc", "condarc", "condarc.d")
_SUFFIXES = frozenset({".yml", ".yaml"})
_TEXTS = ("channel_alias", "ssl_verify", "client_ssl_cert", "client_ssl_cert_key")
_MAPPINGS = ("custom_channels", "proxy_servers")
_LISTS = "default_channels"
_LISTS_BY_NAME = "custom_multichannels"
_NOT_USED = (
    *("allowlist_channels", "whitelist_channels", "denylist_channels", "channel_settings", "migrated_channel_aliases"),
    *("migrated_custom_channels", "offline", "add_anaconda_token", "channels"),
)
"""Keys that also say where channels are and how to reach them, and have no effect here."""
_SETTINGS = (*_TEXTS, *_MAPPINGS, _LISTS, _LISTS_BY_NAME, *_NOT_USED)
_ORDERED = re.compile(r"#!(top|bottom)\b")
_VARIABLE = re.compile(r"\$(\w+|\{[^}]*\})")
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class CondaSetting(Generic[T]):
    """A value, and where it stands: ``FILE:LINE``, or a variable's name."""

    value: T
    origin: str
    final: bool = False


@dataclass(kw_only=True, slots=True)
class Condarc:
    """What conda's configuration says of channels and connections; ``not_used`` has keys without an effect here."""

    texts: dict[str, CondaSetting[str | bool]] = field(default_factory=dict)
    custom_channels: dict[str, CondaSetting[str]] = field(default_factory=dict)
    proxy_servers: dict[str, CondaSetting[str]] = field(default_factory=dict)
    multichannels: dict[str, CondaSetting[tuple[str, ...]]] = field(default_factory=dict)
    not_used: dict[str, CondaSetting[str]] = field(default_factory=dict)


def condarc_files(environ: Mapping[str, str]) -> Iterator[Path]:
    """The files that conda would read, those that stand over others later.

    conda's own folder is CONDA_ROOT, else what its activation says by CONDA_EXE.
    """
    executable = environ.get("CONDA_EXE", "")
    root = environ.get("CONDA_ROOT", "") or (str(Path(executable).parent.parent) if executable else "")
    config, home, prefix = (environ.get(name, "") for name in ("XDG_CONFIG_HOME", "HOME", "CONDA_PREFIX"))
    folders = [*_SYSTEM, root, f"{config}/conda" if config else ""]
    folders += [f"{home}/.config/conda", f"{home}/.conda"] if home else []
    paths = [Path(folder, name) for folder in folders if folder for name in _NAMES]
    paths += [Path(home, ".condarc")] if home else []
    paths += [Path(prefix, name) for name in _NAMES] if prefix else []
    if named := environ.get("CONDARC", ""):
        paths.append(Path(os.path.expanduser(_expanded(named, environ))))  # noqa: PTH111 - as conda does
    for path in dict.fromkeys(paths):
        if path.is_dir():
            yield from sorted(file for file in path.iterdir() if file.suffix in _SUFFIXES and file.is_file())
        elif path.is_file() and (path.name in _NAMES or path.suffix in _SUFFIXES):
            yield path


def read_condarc(environ: Mapping[str, str]) -> Condarc:
    """What all of conda's files and variables say. Raises ConfigError (file, line) for what conda would not read."""
    merged = Condarc()
    for path in condarc_files(environ):
        text = read_yaml_text(path)
        try:
            document = parse_yaml(text, path)
        except ConfigError as err:
            if any(f"duplicate key {key!r}" in str(err) for key in _SETTINGS):
                raise
            message = "not valid YAML (its text is not quoted here, since it may have secrets)"
            raise ConfigError(message, path=path, line=err.line, hint=err.hint) from None
        if document.value is None:
            continue
        if not isinstance(document.value, dict):
            raise ConfigError("not a configuration file of conda", path=path, hint="write each setting as  KEY: value")
        _File(document, document.value, text.splitlines(), environ).merge_into(merged)
    for key in _TEXTS:
        if value := environ.get(f"CONDA_{key.upper()}", ""):
            merged.texts[key] = CondaSetting(value=_as_boolean(value), origin=f"CONDA_{key.upper()}")
    if value := environ.get(f"CONDA_{_LISTS.upper()}", ""):
        names = tuple(name.strip() for name in value.split(",") if name.strip())
        _join(merged.multichannels, "defaults", CondaSetting(value=names, origin=f"CONDA_{_LISTS.upper()}"))
    return merged


class _File:
    """One file, whose settings stand over those that were merged before, unless these are final."""

    def __init__(
        self, document: YamlDocument, content: dict[str, YamlValue], lines: list[str], environ: Mapping[str, str]
    ) -> None:
        self._document, self._content, self._lines, self._environ = document, content, lines, environ

    def merge_into(self, merged: Condarc) -> None:
        content = self._content
        for key in _TEXTS:
            if content.get(key) is not None:
                _stand_over(merged.texts, key, self._setting(self._text(key), key))
        for key, into in zip(_MAPPINGS, (merged.custom_channels, merged.proxy_servers), strict=True):
            for name, value in self._mapping(key).items():
                if value is not None:
                    _stand_over(into, name, self._setting(str(self._text(key, name)), key, name))
        if content.get(_LISTS) is not None:
            _join(merged.multichannels, "defaults", self._setting(self._list(_LISTS), _LISTS))
        for name in self._mapping(_LISTS_BY_NAME):
            _join(merged.multichannels, name, self._setting(self._list(_LISTS_BY_NAME, name), _LISTS_BY_NAME, name))
        for key in _NOT_USED:
            if content.get(key) is not None:
                merged.not_used[key] = self._setting("", key)

    def _setting(self, value: T, *where: str) -> CondaSetting[T]:
        line = self._document.line_of(*where)
        final = "#!final" in self._lines[line - 1]
        return CondaSetting(value=value, origin=f"{self._document.path}:{line}", final=final)

    def _at(self, *where: str) -> YamlValue:
        value: YamlValue = self._content
        for key in where:
            value = value.get(key) if isinstance(value, dict) else None
        return value

    def _text(self, *where: str) -> str | bool:
        value = self._at(*where)
        if isinstance(value, bool) and where == ("ssl_verify",):
            return value
        if not isinstance(value, str):
            raise self._document.error(f"{'.'.join(where)}: expected text", *where, hint="write it in quotes")
        return _as_boolean(_expanded(value, self._environ)) if where == ("ssl_verify",) else self._expanded(value)

    def _expanded(self, value: str) -> str:
        return _expanded(value, self._environ)

    def _mapping(self, key: str) -> dict[str, YamlValue]:
        value = self._content.get(key)
        if value is not None and not isinstance(value, dict):
            raise self._document.error(f"{key}: expected names and values", key, hint="write  NAME: value  below it")
        return value or {}

    def _list(self, *where: str) -> tuple[str, ...]:
        value = self._at(*where)
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self._document.error(f"{'.'.join(where)}: expected a list", *where, hint="write each as  - ADDRESS")
        at = {self._document.line_of(*where, *below) for below in ((), *((index,) for index in range(len(value))))}
        if any(_ORDERED.search(self._lines[line - 1]) for line in at):
            message = "#!top and #!bottom in lists of channels are not read here"
            raise self._document.error(message, *where, hint="write the whole list, in order, into one file")
        return tuple(self._expanded(str(item)) for item in value)


def _stand_over(into: dict[str, CondaSetting[T]], key: str, setting: CondaSetting[T]) -> None:
    earlier = into.get(key)
    if earlier is None or not earlier.final:
        into[key] = setting


def _join(into: dict[str, CondaSetting[tuple[str, ...]]], key: str, setting: CondaSetting[tuple[str, ...]]) -> None:
    """Lists of later files come first; what an earlier one has besides follows."""
    earlier = into.get(key)
    if earlier is None:
        into[key] = setting
    elif not earlier.final:
        values = tuple(dict.fromkeys([*setting.value, *earlier.value]))
        into[key] = CondaSetting(value=values, origin=f"{setting.origin}, {earlier.origin}", final=setting.final)


def _as_boolean(value: str) -> str | bool:
    """As conda reads text where a switch or a path is expected."""
    known = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
    return known.get(value.strip().lower(), value)


def _expanded(value: str, environ: Mapping[str, str]) -> str:
    """With the variables ``$NAME`` and ``${NAME}`` that are set."""
    return _VARIABLE.sub(lambda match: environ.get(match[1].strip("{}"), match[0]), value)
