# SPDX-License-Identifier: BSD-3-Clause
"""Solves that are remembered: used again exactly where the same solve would come to the same."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from channel_tools.conda.package import RunExports
from channel_tools.plan import open_foundation
from channel_tools.plan.environments import EnvironmentSolver, UnsatisfiableError
from channel_tools.plan.own import OwnPackage, OwnRecords, SolveCache, Solved
from tests.unit.matrix.toytree import PLATFORM, Record, write_foundation
from tests.unit.plan.conftest import VIRTUAL_PACKAGES

RECORDS: tuple[Record, ...] = (
    ("tool", "1.0", "0", ("lib >=1",)),
    ("lib", "1.0", "0", ()),
    ("other", "1.0", "0", ()),
)


def own(name: str, version: str = "9.0") -> OwnPackage:
    return OwnPackage(
        name=name,
        version=version,
        build_string="0",
        build_number=0,
        subdir=PLATFORM,
        depends=(),
        digest="d",
        run_exports=RunExports(),
    )


class Counted(EnvironmentSolver):
    """Counts what is solved anew."""

    solved = 0

    async def _solve_anew(self, key: tuple[tuple[str, ...], tuple[str, ...]]) -> Solved:
        Counted.solved += 1
        return await super()._solve_anew(key)


@pytest.fixture
def cache() -> SolveCache:
    Counted.solved = 0
    return SolveCache()


def found(folder: Path, cache: SolveCache, *specs: str, packages: tuple[OwnPackage, ...] = ()) -> list[str]:
    """What a solver of a new stack with these own packages finds."""
    index = folder / "foundation"
    foundation = open_foundation(
        index if index.exists() else write_foundation(index, RECORDS), kind="registry", platform=PLATFORM
    )
    records = OwnRecords()
    for package in packages:
        records.add(package)
    solver = Counted(
        foundation=foundation, own=records, platform=PLATFORM, virtual_packages=VIRTUAL_PACKAGES, cache=cache
    )
    return [f"{item.name} {item.version}" for item in asyncio.run(solver.solve(specs))]


def test_an_environment_that_own_packages_do_not_touch_is_solved_once(tmp_path: Path, cache: SolveCache) -> None:
    for packages in ((), (own("mine"),), (own("mine"), own("yours"))):
        assert found(tmp_path, cache, "tool", packages=packages) == ["lib 1.0", "tool 1.0"]
    assert Counted.solved == 1


def test_an_own_package_deep_in_an_environment_is_seen(tmp_path: Path, cache: SolveCache) -> None:
    assert found(tmp_path, cache, "tool") == ["lib 1.0", "tool 1.0"]
    assert found(tmp_path, cache, "tool", packages=(own("lib"),)) == ["lib 9.0", "tool 1.0"]
    assert found(tmp_path, cache, "tool", packages=(own("lib"), own("mine"))) == ["lib 9.0", "tool 1.0"]
    assert Counted.solved == 2
    assert found(tmp_path, cache, "tool", packages=(own("lib", "8.0"),)) == ["lib 8.0", "tool 1.0"]
    assert found(tmp_path, cache, "tool") == ["lib 1.0", "tool 1.0"]
    assert Counted.solved == 3


def test_a_reason_is_given_again_until_the_package_is_there(tmp_path: Path, cache: SolveCache) -> None:
    for _again in range(2):
        with pytest.raises(UnsatisfiableError, match="mine: the registry foundation has no package of this name"):
            found(tmp_path, cache, "mine")
    assert Counted.solved == 1
    assert found(tmp_path, cache, "mine", packages=(own("mine"),)) == ["mine 9.0"]
