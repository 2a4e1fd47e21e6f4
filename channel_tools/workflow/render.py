# SPDX-License-Identifier: BSD-3-Clause
"""Writes recipes of the tree for other programs to build: as a plan's recipe folders, or as feedstocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from channel_tools.conda.platforms import SUPPORTED_PLATFORMS
from channel_tools.feedstock import write_feedstock
from channel_tools.feedstock.variants import ZIPPED_KEYS
from channel_tools.matrix import choices_of_recipes, expand_stacks, find_stack, load_tree
from channel_tools.matrix.variants import PINS_FILE, foundation_file
from channel_tools.plan import render_folder
from channel_tools.system.errors import UsageError, nearest_names_hint
from channel_tools.system.progress import ignore
from channel_tools.workflow.plan import plan_request

if TYPE_CHECKING:
    from collections.abc import Sequence
    from collections.abc import Set as AbstractSet
    from pathlib import Path

    from channel_tools.feedstock import Feedstock, FeedstockRequest
    from channel_tools.matrix import LoadedTree, RenderedPackage, Stack, VariantScalar
    from channel_tools.plan import Plan
    from channel_tools.requests.plan import PlanRequest
    from channel_tools.system.progress import Note
    from channel_tools.system.settings import Settings

_OWN_PINS = frozenset({"pytorch"})
"""Keys of pins.yaml for which conda-forge has one value but we build several."""


def render_stacks(
    settings: Settings, request: PlanRequest, *, destination: Path, note: Note = ignore
) -> tuple[Plan, list[Path]]:
    """Write a folder for every package that the foundation can serve, including those already in the channel.

    Raises the errors of planning, and UsageError if ``destination`` cannot be used.
    """
    plan = plan_request(settings, request, note=note)
    return plan, [render_folder(package, destination, tree=settings.tree) for package in plan.packages]


def export_feedstock(
    settings: Settings, package: str, destination: Path, *, stack: str | None, request: FeedstockRequest
) -> Feedstock:
    """Write the feedstock of ``package``, with the variants of ``stack`` or else of every stack that has it.

    Variants are those on conda-forge, for every supported platform. Raises ConfigError for faults in the tree,
    UsageError for names it does not have and for a recipe that is not built on conda-forge, and the errors of
    write_feedstock.
    """
    loaded = load_tree(settings.tree, settings.environ)
    chosen = [find_stack(loaded, stack)] if stack is not None else list(loaded.stacks.values())
    rendered = [item for stack in chosen if package in stack.packages for item in _variants(loaded, stack, package)]
    if not rendered:
        known = sorted({name for stack in chosen for name in stack.packages})
        where = f"the stack {chosen[0].name!r}" if stack is not None else "any stack"
        if package in known:
            message = f"{package!r} has no variant on conda-forge in {where}: its recipe skips them all there"
            raise UsageError(message, hint="a feedstock is for conda-forge; use `channel_tools render` for the others")
        message = f"{package!r} is not a recipe of {where} in {settings.tree.stacks_file}"
        raise UsageError(message, hint=nearest_names_hint(package, known, noun="recipe"))
    base = _conda_forge_values(loaded)
    set_there = {key for values in base.values() for key in values}
    if loaded.pinning is None:
        set_there &= _requirement_keys(rendered)  # the tree's own files have keys of its own, too
    pinned = ZIPPED_KEYS | set_there
    return write_feedstock(
        rendered,
        destination,
        tree=settings.tree,
        request=request,
        pinned=pinned,
        base=base,
        read=_only_read(loaded, rendered, set_there),
    )


def _only_read(
    loaded: LoadedTree, rendered: Sequence[RenderedPackage], set_there: AbstractSet[str]
) -> dict[str, VariantScalar]:
    """The keys that the recipe's text names, but no variant uses and conda-forge does not set; any value does."""
    recipe = rendered[0].recipe_file
    known = set_there | {key for package in rendered for key in package.variant}
    values = choices_of_recipes(loaded, "conda-forge")[recipe.name]
    return {key: min(values[key]) for key in sorted((recipe.used_keys & values.keys()) - known) if values[key]}


def _conda_forge_values(loaded: LoadedTree) -> dict[str, dict[str, tuple[VariantScalar, ...]]]:
    """conda-forge's values by platform: those of the pinning, without the tree's migrations.

    Where the tree names no pinning, the values of pins.yaml and of foundation-conda-forge.yaml count as conda-forge's.
    """
    names = (PINS_FILE, foundation_file("conda-forge"))
    own = [file for name in names for file in loaded.variant_files.get(name, ())]
    files = own if loaded.pinning is None else [loaded.pinning.unmigrated]
    return {
        platform: {
            key: values for file in files for key, values in file.on(platform).values.items() if key not in _OWN_PINS
        }
        for platform in SUPPORTED_PLATFORMS
    }


def _requirement_keys(rendered: Sequence[RenderedPackage]) -> set[str]:
    """The packages in the environments, spelled like variant keys."""
    return {name.replace("-", "_") for package in rendered for name in package.requirement_names()}


def _variants(loaded: LoadedTree, stack: Stack, package: str) -> list[RenderedPackage]:
    return [
        item
        for platform in SUPPORTED_PLATFORMS
        for item in expand_stacks(loaded, [stack], foundation_kind="conda-forge", platform=platform)
        if item.recipe_file.name == package
    ]
