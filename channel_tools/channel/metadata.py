# SPDX-License-Identifier: BSD-3-Clause
"""Judging an index.json: its fields go into repodata, where one of a wrong kind can break every client's reading.

What is plainly right is told by patterns; only what they do not cover is given to rattler, which is slow to import.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from channel_tools.channel.refusal import damaged

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

_LARGEST = 2**53
"""Above it, numbers are no longer exact in every JSON reader."""
_NAME = re.compile(r"[a-z0-9_][a-z0-9_.-]*")  # CEP 26
_BUILD = re.compile(r"[A-Za-z0-9_.+]+")
_VERSION = re.compile(r"(?:[0-9]+!)?[0-9]+[0-9a-z]*(?:[._][0-9a-z]+)*(?:\+[0-9a-z]+(?:[._][0-9a-z]+)*)?")
_LITERAL = r"[0-9]+[0-9a-z]*(?:\.[0-9a-z]+)*"
_CONDITION = rf"(?:(?:>=|<=|==|!=|<|>|=){_LITERAL}|=?{_LITERAL}(?:\.\*|\*)?|\*)"
_SPEC = re.compile(rf"[a-z0-9_][a-z0-9_.-]*(?: {_CONDITION}(?:[,|]{_CONDITION})*(?: (?:\*?[A-Za-z0-9_.]+\*?|\*))?)?")


def check_index(index: Mapping[str, object], path: Path) -> None:
    """Raise IntegrityError for a field of index.json that cannot stand in repodata, naming it and what it holds."""
    for key, (check, expected) in _FIELDS.items():
        value = index.get(key)
        if value is None and key not in _REQUIRED:
            continue
        if not check(value):
            raise damaged(path, f"its index.json has {key} {str(value)[:80]!r}; expected {expected}")
    for key in ("depends", "constrains"):
        for spec in _texts(index.get(key)):
            _check_spec(spec, key, path)
    _check_version(str(index["version"]), path)


def check_run_exports(exports: Mapping[str, object], kinds: tuple[str, ...], path: Path) -> None:
    """Raise IntegrityError when a kind of run_exports.json is no list of MatchSpecs."""
    for kind in kinds:
        value = exports.get(kind) or []
        if not _is_texts(value):
            raise damaged(path, f"its run_exports.json has {kind} {str(value)[:80]!r}; expected a list of MatchSpecs")
        for spec in _texts(value):
            _check_spec(spec, f"run_exports, {kind}", path)


def _check_spec(spec: str, where: str, path: Path) -> None:
    if _SPEC.fullmatch(spec):
        return
    from rattler import MatchSpec  # noqa: PLC0415
    from rattler.exceptions import InvalidMatchSpecError  # noqa: PLC0415

    try:
        MatchSpec(spec)
    except InvalidMatchSpecError as err:
        raise damaged(path, f"its metadata has {where} {spec!r}, no MatchSpec ({err})") from None


def _check_version(version: str, path: Path) -> None:
    if _VERSION.fullmatch(version):
        return
    from rattler import Version  # noqa: PLC0415
    from rattler.exceptions import InvalidVersionError  # noqa: PLC0415

    try:
        Version(version)
    except InvalidVersionError as err:
        raise damaged(path, f"its index.json has version {version!r}, none that conda can order ({err})") from None


def _texts(value: object) -> list[str]:
    return value if isinstance(value, list) else []


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _LARGEST


def _matches(pattern: re.Pattern[str]) -> Callable[[object], bool]:
    return lambda value: isinstance(value, str) and pattern.fullmatch(value) is not None


_REQUIRED = frozenset({"build", "build_number", "name", "version"})
_FIELDS: Mapping[str, tuple[Callable[[object], bool], str]] = {
    "name": (_matches(_NAME), "a package name in small letters"),
    "version": (_is_text, "a version"),
    "build": (_matches(_BUILD), "a build string"),
    "build_number": (_is_number, "a number"),
    "depends": (_is_texts, "a list of MatchSpecs"),
    "constrains": (_is_texts, "a list of MatchSpecs"),
    "timestamp": (_is_number, "a number"),
    "noarch": (lambda value: _is_text(value) and value in ("generic", "python"), "generic or python"),
    "track_features": (lambda value: _is_text(value) or _is_texts(value), "a text or a list of them"),
    "purls": (_is_texts, "a list of package URLs"),
    **dict.fromkeys(
        ("arch", "features", "license", "license_family", "platform", "python_site_packages_path"), (_is_text, "a text")
    ),
}
