# SPDX-License-Identifier: BSD-3-Clause
"""Folders of the program import each other in one direction, and workflow/ has a module for each command."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

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


def _imported_folders(path: Path) -> set[str]:
    """The folders of the program that a module imports from, also for types alone."""
    nodes = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.ImportFrom)]
    modules = [(node.module or "").split(".") for node in nodes]
    return {parts[1] for parts in modules if parts[0] == PACKAGE.name and len(parts) > 1}


def test_imports_between_folders_go_one_way() -> None:
    folders = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").is_file()}
    assert len(folders) > 20
    imports: dict[str, set[str]] = {name: set() for name in folders}
    for name in folders:
        for path in (PACKAGE / name).rglob("*.py"):
            imports[name] |= (_imported_folders(path) & folders) - {name}
    order = list(TopologicalSorter(imports).static_order())  # raises CycleError, which names the folders
    assert (order[0], order[-1]) == ("system", "cli")


def test_workflow_has_a_module_for_each_command_and_nothing_else() -> None:
    commands = {path.stem for path in (PACKAGE / "cli").glob("*.py")}
    modules = {path.stem for path in (PACKAGE / "workflow").glob("*.py")}
    assert modules - commands == SUBCOMMANDS.keys(), "what several commands share belongs to the stage that it is about"
