# SPDX-License-Identifier: BSD-3-Clause
"""Recipes of the tree as feedstocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from channel_tools.errors import UsageError
from channel_tools.feedstock import write_feedstock
from channel_tools.feedstock.variants import COMPILER_KEYS
from channel_tools.matrix import expand_stack, find_stack, load_tree, nearest_names_hint
from channel_tools.matrix.load import foundation_file
from channel_tools.workflow.platforms import SUPPORTED

if TYPE_CHECKING:
    from pathlib import Path

    from channel_tools.feedstock import Feedstock, FeedstockRequest
    from channel_tools.matrix import LoadedTree, RenderedPackage, Stack
    from channel_tools.settings import Settings


def export_feedstock(
    settings: Settings, package: str, destination: Path, *, stack: str | None, request: FeedstockRequest
) -> Feedstock:
    """Write the feedstock of ``package``, with the variants of ``stack`` or else of every stack that has it.

    Variants are those on conda-forge, for every supported platform. Raises ConfigError for the tree, UsageError for
    names it does not have and for what write_feedstock refuses.
    """
    loaded = load_tree(settings.tree)
    chosen = [find_stack(loaded, stack)] if stack is not None else list(loaded.stacks.values())
    rendered = [item for one in chosen if package in one.packages for item in _variants(loaded, one, package)]
    if not rendered:
        known = sorted({name for one in chosen for name in one.packages})
        where = f"the stack {chosen[0].name!r}" if stack is not None else "any stack"
        message = f"{package!r} is no recipe of {where} in {settings.tree.stacks_file}"
        raise UsageError(message, hint=nearest_names_hint(package, known, what="recipe"))
    conda_forge = loaded.variant_files.get(foundation_file("conda-forge"))
    pinned = COMPILER_KEYS | {"python"} | (conda_forge.values.keys() if conda_forge is not None else set())
    return write_feedstock(rendered, destination, tree=settings.tree, request=request, pinned_elsewhere=pinned)


def _variants(loaded: LoadedTree, stack: Stack, package: str) -> list[RenderedPackage]:
    return [
        item
        for platform in SUPPORTED
        for item in expand_stack(loaded, stack, foundation_kind="conda-forge", platform=platform)
        if item.recipe_file.name == package
    ]
