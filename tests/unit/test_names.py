# SPDX-License-Identifier: BSD-3-Clause
"""Variables, parameters, attributes and functions of the program and its benchmarks are named for what they hold."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import channel_tools

PACKAGE = Path(channel_tools.__file__).parent
BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
VAGUE = frozenset({"found", "given", "it", "kept", "one", "place", "rest", "said", "taken", "there", "what"})
"""Names that could stand for anything: name the package, record, folder, path, message ... that is held."""
FIELDS = frozenset({"found", "kept", "taken"})
"""Allowed as fields: keys of JSON that others read, as what a check found beside what it expected."""

OF_RANKS = frozenset({"Case", "Speed"})
"""Classes of validate/, and of the scripts in validate/workers/, which run where the program is not installed."""


def vague_names(source: str) -> list[tuple[int, str]]:
    """The vague names that a module gives or uses, each with its line."""
    tree = ast.parse(source)
    names: list[tuple[int, str]] = []
    fields: set[ast.AST] = set()
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef(body=body):
                fields |= {item.target for item in body if isinstance(item, ast.AnnAssign)}
            case ast.Attribute(attr=attr) if attr in FIELDS:
                continue
            case ast.Name(id=name) if name in FIELDS and node in fields:
                continue
            case _:
                pass
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
        ("class Check:\n    found: str\n    place: str", ["place"]),
        ("print(check.found, check.place)", ["place"]),
        ("packages = founded + replaced", []),
        ("'found'  # taken", []),
    ],
)
def test_vague_names_are_seen(source: str, names: list[str]) -> None:
    assert [name for _, name in vague_names(source)] == names


def test_names_say_what_they_hold() -> None:
    modules = {path.relative_to(PACKAGE).as_posix(): path for path in sorted(PACKAGE.rglob("*.py"))}
    modules |= {f"benchmarks/{path.name}": path for path in sorted(BENCHMARKS.glob("*.py"))}
    vague = [
        f"{module}:{line}: {name}"
        for module, path in modules.items()
        for line, name in vague_names(path.read_text(encoding="utf-8"))
    ]
    assert vague == []


def test_each_class_name_has_one_meaning() -> None:
    modules: dict[str, list[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                modules.setdefault(node.name, []).append(path.relative_to(PACKAGE).as_posix())
    assert len(modules) > 400
    assert {name: paths for name, paths in modules.items() if len(paths) > 1 and name not in OF_RANKS} == {}
