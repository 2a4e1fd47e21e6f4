# SPDX-License-Identifier: BSD-3-Clause
"""Folders of the program import each other in one direction, and workflow/ has a module for each command."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import channel_tools

PACKAGE = Path(channel_tools.__file__).parent
SUBCOMMANDS = {
    "admission": "a process that Snakemake starts for each package",
    "adopt": "channel index --adopt",
    "channel_page": "channel page",
    "foundation_lock": "foundation lock and update",
    "verify": "verify, and env create --require-attestation",
}
"""Modules of workflow/ that have not the name of a module in cli/, and the commands that they are for."""


def _imported_names(source: str) -> list[str]:
    """The dotted names that a module imports, also for types alone; of ``from A import B``, A.B."""
    names: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return names


def _imported_folders(source: str) -> set[str]:
    """The folders of the program that a module imports from, also for types alone."""
    parts = [name.split(".") for name in _imported_names(source)]
    return {names[1] for names in parts if names[0] == PACKAGE.name and len(names) > 1}


@pytest.mark.parametrize(
    "source",
    [
        "from channel_tools.page.model import ShownStack",
        "from channel_tools import page",
        "import channel_tools.page.model",
        "def late() -> None:\n    from channel_tools.page import add_page",
    ],
)
def test_every_way_to_import_is_seen(source: str) -> None:
    assert _imported_folders(source) == {"page"}


def test_imports_between_folders_go_one_way() -> None:
    folders = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").is_file()}
    assert len(folders) > 20
    imports: dict[str, set[str]] = {name: set() for name in folders}
    for name in folders:
        for path in (PACKAGE / name).rglob("*.py"):
            imports[name] |= (_imported_folders(path.read_text(encoding="utf-8")) & folders) - {name}
    order = list(TopologicalSorter(imports).static_order())  # raises CycleError, which names the folders
    assert (order[0], order[-1]) == ("system", "cli")


def test_no_modules_import_each_other() -> None:
    modules = {
        ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts): path
        for path in PACKAGE.rglob("*.py")
        if path.name != "__init__.py"
    }
    assert len(modules) > 200
    imports: dict[str, set[str]] = {}
    for name, path in modules.items():
        names = _imported_names(path.read_text(encoding="utf-8"))
        imports[name] = {module for full in names for module in (full, full.rpartition(".")[0]) if module in modules}
    TopologicalSorter(imports).prepare()  # raises CycleError, which names the modules


def test_workflow_has_a_module_for_each_command_and_nothing_else() -> None:
    commands = {path.stem for path in (PACKAGE / "cli").glob("*.py")}
    modules = {path.stem for path in (PACKAGE / "workflow").glob("*.py")}
    assert modules - commands == SUBCOMMANDS.keys(), "what several commands share belongs to the stage that it is about"
