# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from channel_tools.plan import open_foundation
from channel_tools.plan.environments import EnvironmentSolver
from channel_tools.plan.own import OwnRecords
from channel_tools.system.errors import NetworkError
from tests.unit.matrix.toytree import PLATFORM, write_foundation
from tests.unit.plan.conftest import VIRTUAL_PACKAGES


def test_what_a_solve_can_come_upon_is_known_of_the_registry_foundation_alone(tmp_path: Path) -> None:
    folder = write_foundation(tmp_path / "foundation", (("tool", "1.0", "0", ("lib >=1",)), ("lib", "1.0", "0", ())))
    registry = open_foundation(folder, kind="registry", platform=PLATFORM)
    assert registry.reach(["tool"]) == frozenset({"tool", "lib"})
    assert registry.reach(["other", "mine"]) == frozenset({"other", "mine"})
    assert open_foundation(folder, kind="conda-forge", platform=PLATFORM).reach(["tool"]) is None


def test_a_record_of_the_foundation_that_does_not_parse_is_named(tmp_path: Path) -> None:
    index = write_foundation(tmp_path / "foundation", (("tool", "!!x", "0", ()),))
    foundation = open_foundation(index, kind="registry", platform=PLATFORM)
    solver = EnvironmentSolver(
        foundation=foundation, own=OwnRecords(), platform=PLATFORM, virtual_packages=VIRTUAL_PACKAGES
    )
    with pytest.raises(NetworkError, match=r"the index of the registry foundation cannot be read: .*'!!x'"):
        asyncio.run(solver.solve(["tool"]))
