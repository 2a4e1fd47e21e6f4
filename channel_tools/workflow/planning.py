# SPDX-License-Identifier: BSD-3-Clause
"""From a tree and a channel to a plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from channel_tools.channel import open_channel, published_packages
from channel_tools.errors import UsageError
from channel_tools.matrix import expand_stack, find_stack, load_tree
from channel_tools.matrix.model import requirement_name
from channel_tools.plan import DiskFiles, PublishedPackage, detect_virtual_packages, make_plan, open_foundation
from channel_tools.workflow.foundations import choose_foundation, foundation_location, optional_packages
from channel_tools.workflow.platforms import current_platform

if TYPE_CHECKING:
    from channel_tools.channel import Foundation
    from channel_tools.matrix import FoundationKind, LoadedTree, RenderedPackage, Stack
    from channel_tools.plan import Plan
    from channel_tools.settings import Settings


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanRequest:
    """What to plan, as a user asks for it.

    ``stack`` None is the default one, ``packages`` empty all of it; ``foundation`` None is the channel's own, and
    ``address`` says where a conda-forge foundation is. ``force`` builds what is in the channel already.
    """

    stack: str | None = None
    every_stack: bool = False
    packages: tuple[str, ...] = ()
    foundation: FoundationKind | None = None
    address: str | None = None
    force: bool = False


def plan_for(settings: Settings, request: PlanRequest) -> Plan:
    """Plan against the foundation's index and what the local channel holds; nothing is written.

    Raises ConfigError for the tree, UsageError for names it does not have, FoundationError when the foundation has not
    been made, NetworkError when it cannot be reached.
    """
    loaded = load_tree(settings.tree)
    foundation = choose_foundation(settings, kind=request.foundation, address=request.address)
    return plan_stacks(settings, loaded, foundation, request)


def plan_stacks(settings: Settings, loaded: LoadedTree, foundation: Foundation, request: PlanRequest) -> Plan:
    """As plan_for, for a tree and a foundation that are known."""
    platform = current_platform()
    rendered = expand_stacks(loaded, foundation, request)
    index = open_foundation(
        foundation_location(settings, foundation),
        kind=foundation.kind,
        platform=platform,
        optional=optional_packages() if foundation.kind == "registry" else frozenset(),
    )
    return make_plan(
        rendered,
        root=settings.tree.root,
        foundation=index,
        published=_published(settings),
        virtual_packages=detect_virtual_packages(),
        reader=DiskFiles(),
        force=request.force,
    )


def expand_stacks(loaded: LoadedTree, foundation: Foundation, request: PlanRequest) -> list[RenderedPackage]:
    """Every package and variant of the stacks that the request asks for."""
    return [
        package
        for stack in _stacks_of(loaded, request)
        for package in expand_stack(
            loaded,
            stack,
            foundation_kind=foundation.kind,
            platform=current_platform(),
            packages=request.packages,
        )
    ]


def required_names(loaded: LoadedTree, foundation: Foundation, request: PlanRequest) -> frozenset[str]:
    """The packages that recipes of the request and the environments of its stacks name."""
    recipes = (package.requirement_names() for package in expand_stacks(loaded, foundation, request))
    installed = (requirement_name(spec) for stack in _stacks_of(loaded, request) for spec in stack.install)
    return frozenset(installed).union(*recipes)


def _expanded(
    loaded: LoadedTree, stack: Stack, kind: FoundationKind, platform: str, request: PlanRequest
) -> list[RenderedPackage]:
    found = expand_stack(loaded, stack, foundation_kind=kind, platform=platform, packages=request.packages)
    if not found and not request.every_stack:
        message = f"the stack {stack.name!r} has no package for {platform}: its recipes skip every variant there"
        raise UsageError(message, hint="build.skip in the recipes says why; build on another platform")
    return found


def _stacks_of(loaded: LoadedTree, request: PlanRequest) -> list[Stack]:
    return list(loaded.stacks.values()) if request.every_stack else [find_stack(loaded, request.stack)]


def _published(settings: Settings) -> dict[str, PublishedPackage]:
    if not settings.channel.exists():
        return {}
    return {
        package.file_name: PublishedPackage(
            name=package.name, file_name=package.file_name, digest=package.digest, inputs=package.inputs
        )
        for package in published_packages(open_channel(settings.channel))
        if package.digest is not None
    }
