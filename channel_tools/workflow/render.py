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
from channel_tools.system.errors import SolveError, UsageError, nearest_names_hint
from channel_tools.system.progress import ignore
from channel_tools.workflow.plan import check_served, plan_request

if TYPE_CHECKING:
    from pathlib import Path

    from channel_tools.feedstock import Feedstock
    from channel_tools.matrix import LoadedTree, RenderedPackage, VariantScalar
    from channel_tools.plan import Plan
    from channel_tools.requests.init import FeedstockRequest
    from channel_tools.requests.plan import PlanRequest
    from channel_tools.system.progress import Note
    from channel_tools.system.settings import Settings

_OWN_PINS = frozenset({"pytorch"})
"""Keys of pins.yaml for which conda-forge has one value but we build several."""


def render_stacks(
    settings: Settings, request: PlanRequest, *, destination: Path, note: Note = ignore
) -> tuple[Plan, list[Path]]:
    """Write a folder for every package that the foundation can serve, including those already in the channel.

    Raises the errors of planning, SolveError for a package that the foundation serves in no variant, and UsageError if
    ``destination`` cannot be used; nothing is written then.
    """
    plan = plan_request(settings, request, note=note)
    try:
        check_served(plan, request)
    except SolveError as err:
        hint = "build the same first, which has the foundation make what is optional; see channel_tools plan --why"
        raise SolveError(err.message, hint=hint) from None
    return plan, [render_folder(package, destination, tree=settings.tree) for package in plan.packages]


def export_feedstock(settings: Settings, request: FeedstockRequest) -> Feedstock:
    """Write the feedstock of a recipe, with the variants on conda-forge, for every supported platform.

    Raises ConfigError for faults in the tree, UsageError for names it does not have and for a recipe that is not built
    on conda-forge, and the errors of write_feedstock.
    """
    loaded = load_tree(settings.tree, settings.environ)
    rendered = _variants(loaded, request)
    base = _conda_forge_values(loaded)
    set_there = {key for values in base.values() for key in values}
    if loaded.pinning is None:
        set_there &= {
            name.replace("-", "_") for package in rendered for name in package.requirement_names()
        }  # the tree's own files have keys of its own, too
    # no variant uses the key, and conda-forge does not set it: any value does
    recipe = rendered[0].recipe_file
    known = set_there | {key for package in rendered for key in package.variant}
    values = choices_of_recipes(loaded, "conda-forge")[recipe.name]
    pinned, read = (
        ZIPPED_KEYS | set_there,
        {key: min(values[key]) for key in sorted((recipe.used_keys & values.keys()) - known) if values[key]},
    )
    return write_feedstock(rendered, request, tree=settings.tree, pinned=pinned, base=base, read=read)


def _conda_forge_values(loaded: LoadedTree) -> dict[str, dict[str, tuple[VariantScalar, ...]]]:
    """conda-forge's values by platform: those of the pinning.

    Where the tree names no pinning, the values of pins.yaml and of foundation-conda-forge.yaml count as conda-forge's.
    """
    names = (PINS_FILE, foundation_file("conda-forge"))
    own = [file for name in names for file in loaded.variant_files.get(name, ())]
    files = own if loaded.pinning is None else [loaded.pinning]
    return {
        platform: {
            key: values for file in files for key, values in file.on(platform).values.items() if key not in _OWN_PINS
        }
        for platform in SUPPORTED_PLATFORMS
    }


def _variants(loaded: LoadedTree, request: FeedstockRequest) -> list[RenderedPackage]:
    """The recipe's variants on conda-forge. Raises UsageError if the stacks lack it, or all are skipped."""
    name = request.package
    stacks = list(loaded.stacks.values()) if request.stack is None else [find_stack(loaded, request.stack)]
    rendered = [
        package
        for stack in stacks
        if name in stack.packages
        for platform in SUPPORTED_PLATFORMS
        for package in expand_stacks(loaded, [stack], foundation_kind="conda-forge", platform=platform)
        if package.recipe_file.name == name
    ]
    if rendered:
        return rendered
    known = sorted({package for stack in stacks for package in stack.packages})
    scope = "any stack" if request.stack is None else f"the stack {stacks[0].name!r}"
    if name in known:
        message = f"{name!r} has no variant on conda-forge in {scope}: its recipe skips them all there"
        raise UsageError(message, hint="a feedstock is for conda-forge; use `channel_tools render` for the others")
    message = f"{name!r} is not a recipe of {scope} in {loaded.tree.stacks_file}"
    raise UsageError(message, hint=nearest_names_hint(name, known, noun="recipe"))
