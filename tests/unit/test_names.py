# SPDX-License-Identifier: BSD-3-Clause
"""Variables, parameters, attributes and functions of the program are named for what they hold."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import channel_tools

PACKAGE = Path(channel_tools.__file__).parent
VAGUE = frozenset({"found", "given", "it", "kept", "one", "place", "said", "taken", "there", "what"})
"""Names that could stand for anything: name the package, record, folder, path, message ... that is held."""
TO_DO = frozenset(
    {
        *("audit", "build", "channel", "cli", "conda", "doctor", "environments", "feedstock", "foundation", "matrix"),
        *("mirror", "page", "pins", "plan", "provenance", "publish", "ranks", "requests", "serve", "sources"),
        *("system", "validate", "workflow"),
    }
)
"""Folders in which such names still stand."""


def vague_names(source: str) -> list[tuple[int, str]]:
    """The vague names that a module gives or uses, each with its line."""
    names: list[tuple[int, str]] = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Name(id=name) | ast.arg(arg=name) | ast.Attribute(attr=name):
                names.append((node.lineno, name))
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.append((node.lineno, name))
            case _:
                pass
    return sorted((line, name) for line, name in names if name.strip("_") in VAGUE)


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("found = 1", ["found"]),
        ("def read(place): ...", ["place"]),
        ("def said(): ...", ["said"]),
        ("print(self._place)", ["_place"]),
        ("names = [one.name for one in packages]", ["one", "one"]),
        ("packages = founded + replaced", []),
        ("'found'  # taken", []),
    ],
)
def test_vague_names_are_seen(source: str, names: list[str]) -> None:
    assert [name for _, name in vague_names(source)] == names


def test_names_say_what_they_hold() -> None:
    modules = [path for path in PACKAGE.rglob("*.py") if path.relative_to(PACKAGE).parts[0] not in TO_DO]
    vague = [
        f"{path.relative_to(PACKAGE)}:{line}: {name}"
        for path in sorted(modules)
        for line, name in vague_names(path.read_text(encoding="utf-8"))
    ]
    assert vague == []
