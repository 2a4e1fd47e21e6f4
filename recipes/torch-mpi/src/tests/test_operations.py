# SPDX-License-Identifier: BSD-3-Clause
"""Every operation of a group over MPI; the checks themselves are in the modules checks_of_*."""

import ast
import json
from pathlib import Path

import pytest
from conftest import TESTS, Ended, Launcher

RANKS = 3


def check_names() -> list[str]:
    """The checks in their modules, read without importing torch into the test runner."""
    return [
        node.name
        for source in sorted(TESTS.glob("checks_of_*.py"))
        for node in ast.parse(source.read_text()).body
        if isinstance(node, ast.FunctionDef)
        and any(isinstance(mark, ast.Name) and mark.id == "check" for mark in node.decorator_list)
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("operations")


@pytest.fixture(scope="module")
def ended(rank_server: Path, folder: Path) -> Ended:
    return Launcher(folder=folder, server=rank_server).mpiexec(TESTS / "checks.py", ranks=RANKS)


@pytest.mark.parametrize("name", check_names())
def test_operation(name: str, ended: Ended, folder: Path) -> None:
    for rank in range(RANKS):
        passed = folder / f"passed.{rank}.json"
        assert passed.exists(), ended.said
        assert name in json.loads(passed.read_text()), f"rank {rank}:\n{ended.said}"


def test_all_ranks_end_well(ended: Ended) -> None:
    assert ended.code == 0, ended.said
