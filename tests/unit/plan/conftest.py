# SPDX-License-Identifier: BSD-3-Clause
"""Planning the toy tree in one call."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from rattler import GenericVirtualPackage, PackageName, Version
from rattler.package import BuildString

from channel_tools.matrix import choices_of_recipes, expand_stacks, load_tree
from channel_tools.plan import Plan, PlannedPackage, PublishedPackage, make_plan, open_foundation
from tests.unit.matrix.toytree import FOUNDATION, PLATFORM, Record, write_foundation, write_tree

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from channel_tools.system.settings import Tree

VIRTUAL_PACKAGES = (
    GenericVirtualPackage(PackageName("__glibc"), Version("2.36"), BuildString("0")),
    GenericVirtualPackage(PackageName("__linux"), Version("6.1"), BuildString("0")),
)


def publish(plan: Plan) -> dict[str, PublishedPackage]:
    """What the channel would say after everything in ``plan`` was built."""
    return {
        package.file_name: PublishedPackage(
            name=package.name, file_name=package.file_name, digest=package.digest, inputs=package.inputs
        )
        for package in plan.packages
    }


def by_name(plan: Plan) -> dict[str, PlannedPackage]:
    """The plan's packages; the toy tree has one per name that is served."""
    return {package.name: package for package in plan.packages}


@dataclass(frozen=True, kw_only=True, slots=True)
class Toy:
    """A place for a tree and its foundation."""

    root: Path

    @property
    def tree_root(self) -> Path:
        return self.root / "tree"

    def tree(self, changes: Mapping[str, str | None] | None = None) -> Tree:
        return write_tree(self.tree_root, changes)

    def plan(
        self,
        changes: Mapping[str, str | None] | None = None,
        *,
        published: Mapping[str, PublishedPackage] | None = None,
        foundation: Sequence[Record] = FOUNDATION,
        stacks: Sequence[str] = ("udp",),
        force: bool = False,
    ) -> Plan:
        loaded = load_tree(self.tree(changes))
        rendered = [
            package
            for name in stacks
            for package in expand_stacks(
                loaded, [loaded.stacks[name]], foundation_kind="registry", platform=PLATFORM, packages=()
            )
        ]
        folder = write_foundation(self.root / "foundation", foundation)
        return asyncio.run(
            make_plan(
                rendered,
                root=self.tree_root,
                foundation=open_foundation(folder, kind="registry", platform=PLATFORM),
                published=published or {},
                virtual_packages=VIRTUAL_PACKAGES,
                choices=choices_of_recipes(loaded, "registry"),
                force=force,
            )
        )


@pytest.fixture
def toy(tmp_path: Path) -> Toy:
    return Toy(root=tmp_path)
