# SPDX-License-Identifier: BSD-3-Clause
"""What a tree offers: a row per package and variant, without looking at any foundation."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from channel_tools.matrix import expand_stack, find_stack, load_tree
from channel_tools.workflow.platforms import current_platform

if TYPE_CHECKING:
    from collections.abc import Mapping

    from channel_tools.matrix import FoundationKind, RenderedPackage, VariantScalar
    from channel_tools.settings import Settings


@dataclass(frozen=True, kw_only=True, slots=True)
class PackageRow:
    """One package of a stack in one variant."""

    stack: str
    package: str
    version: str
    subdir: str
    variant: Mapping[str, VariantScalar]

    def as_json(self) -> dict[str, object]:
        """The row as plain values."""
        return {**asdict(self), "variant": dict(self.variant)}


def list_tree(settings: Settings, *, stack: str | None, kind: FoundationKind) -> list[PackageRow]:
    """The packages of every stack, or of one, as a foundation of this kind has them built.

    Raises ConfigError for the tree, UsageError for a stack it does not have.
    """
    loaded = load_tree(settings.tree)
    stacks = list(loaded.stacks.values()) if stack is None else [find_stack(loaded, stack)]
    return [
        _row(package)
        for item in stacks
        for package in expand_stack(loaded, item, foundation_kind=kind, platform=current_platform())
    ]


def _row(package: RenderedPackage) -> PackageRow:
    return PackageRow(
        stack=package.stack,
        package=package.name,
        version=package.version,
        subdir=package.subdir,
        variant=package.variant,
    )
