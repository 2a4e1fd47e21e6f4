# SPDX-License-Identifier: BSD-3-Clause
"""What a tree offers, and what of it would be built into the local channel.

A command expands a request once; all that it says or makes of the packages follows from that one Expansion.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from channel_tools.channel import Foundation, open_channel, published_packages
from channel_tools.conda.addresses import channel_address
from channel_tools.foundation.model import table_summary
from channel_tools.foundation.record import RECORD_NAME, read_record
from channel_tools.matrix import expand_stacks, find_stack, load_tree
from channel_tools.matrix.choice import choices, default_variants, fits, variants_for
from channel_tools.matrix.model import requirement_name
from channel_tools.plan import (
    PublishedPackage,
    current_platform,
    detect_virtual_packages,
    make_plan,
    not_asked_for,
    open_foundation,
)
from channel_tools.system.errors import SolveError, UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from channel_tools.foundation.model import Combination
    from channel_tools.matrix import FoundationKind, RenderedPackage, Stack
    from channel_tools.matrix.choice import Choice
    from channel_tools.plan import Plan
    from channel_tools.plan.model import UnsatisfiablePackage
    from channel_tools.system.schedulers import BuildResources
    from channel_tools.system.settings import Settings

_CONDA_FORGE = "conda-forge"
PYTHON_STACK = "python"
"""The stack that builds the Pythons which the registry foundation does not take from Debian."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanRequest:
    """What to plan, as a user asks for it.

    ``stack`` None is the default one, ``packages`` empty all of it; ``foundation`` None is the channel's own, and
    ``address`` says where a conda-forge foundation is. ``all_variants`` is for every Python and PyTorch; else it is the
    default variant, or the one for the versions in ``python`` and ``pytorch``. ``force`` builds what is in the channel
    already.
    """

    stack: str | None = None
    every_stack: bool = False
    packages: tuple[str, ...] = ()
    all_variants: bool = False
    python: str | None = None
    pytorch: str | None = None
    foundation: FoundationKind | None = None
    address: str | None = None
    force: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Expansion:
    """A request with its foundation and stacks found, and every package and variant of these for this machine."""

    request: PlanRequest
    foundation: Foundation
    stacks: tuple[Stack, ...]
    packages: tuple[RenderedPackage, ...]
    resources: Mapping[str, BuildResources]
    """What builds may use, by recipe, as stacks.yaml says."""
    makes_pythons: bool
    """Whether the tree has the stack that builds Pythons for the registry foundation."""

    @property
    def optional_packages(self) -> frozenset[str]:
        """What the registry foundation makes only when asked, and recipes or environments of the stacks name."""
        recipes = (package.requirement_names() for package in self.packages)
        installed = (requirement_name(spec) for stack in self.stacks for spec in stack.install)
        return table_summary().optional & frozenset(installed).union(*recipes)

    @property
    def combinations(self) -> tuple[Combination, ...]:
        """The Pythons and PyTorches that the registry foundation makes only when asked, and variants are for."""
        wanted = choices(self.packages)
        default = table_summary().default
        return tuple(
            one
            for one in table_summary().combinations
            if (self.makes_pythons or one.python == default.python) and any(_is_for(choice, one) for choice in wanted)
        )


def _is_for(choice: Choice, combination: Combination) -> bool:
    versions = dict(choice)
    return fits(versions["python"], combination.python) and fits(versions["pytorch"], combination.pytorch)


def expand_request(settings: Settings, request: PlanRequest) -> Expansion:
    """Read the tree and render what the request asks for; the foundation is named, not opened.

    Raises ConfigError for the tree, UsageError for names it does not have and for a stack without any package for this
    platform, FoundationError when the local channel was made with another foundation.
    """
    loaded = load_tree(settings.tree)
    foundation = _choose_foundation(settings, kind=request.foundation, address=request.address)
    stacks = tuple(loaded.stacks.values()) if request.every_stack else (find_stack(loaded, request.stack),)
    platform = current_platform()
    packages = expand_stacks(
        loaded, stacks, foundation_kind=foundation.kind, platform=platform, packages=request.packages
    )
    if not packages and not request.every_stack:
        message = f"the stack {stacks[0].name!r} has no package for {platform}: its recipes skip every variant there"
        raise UsageError(message, hint="build.skip in the recipes says why; build on another platform or foundation")
    asked = asked_versions(python=request.python, pytorch=request.pytorch)
    if request.all_variants and asked:
        message = "--all-variants with --python or --pytorch"
        raise UsageError(message, hint="leave one out: all variants, or the one for these versions")
    if not request.all_variants:
        packages = variants_for(packages, asked, offered_versions(foundation.kind))
    return Expansion(
        request=request,
        foundation=foundation,
        stacks=stacks,
        packages=tuple(packages),
        resources=loaded.resources,
        makes_pythons=PYTHON_STACK in loaded.stacks,
    )


def asked_versions(*, python: str | None, pytorch: str | None) -> dict[str, str]:
    """The versions of the keys that a user asks for."""
    return {key: version for key, version in (("pytorch", pytorch), ("python", python)) if version}


def offered_versions(kind: FoundationKind) -> Mapping[str, Sequence[str]]:
    """The Pythons and PyTorches that a foundation has without building one; no key: any."""
    if kind == "conda-forge":
        return {}
    default = table_summary().default
    return {"python": (default.python,), "pytorch": (default.pytorch,)}


def _choose_foundation(settings: Settings, *, kind: FoundationKind | None, address: str | None) -> Foundation:
    """The foundation asked for, else the one that the local channel was made with, else the registry's."""
    if address is not None and kind != "conda-forge":
        message = f"--foundation-channel {address} goes with --foundation conda-forge"
        raise UsageError(message, hint="the registry foundation is made here and has no address")
    asked = None
    if kind is not None:
        found = None if kind == "registry" else channel_address(_CONDA_FORGE if address is None else address)
        asked = Foundation(kind=kind, address=found)
    if settings.channel.exists():
        return open_channel(settings.channel, foundation=asked).foundation
    return asked or Foundation(kind="registry")


def plan_request(settings: Settings, request: PlanRequest) -> Plan:
    """Plan against the foundation's index and what the local channel holds; nothing is written.

    Raises what expand_request and plan_expansion raise.
    """
    return plan_expansion(settings, expand_request(settings, request))


def plan_expansion(settings: Settings, expansion: Expansion) -> Plan:
    """Plan the packages of an expanded request.

    Raises ConfigError for a cycle or a recipe that names missing files, FoundationError when the foundation has not
    been made, NetworkError when it cannot be reached.
    """
    kind, address = expansion.foundation.kind, expansion.foundation.address
    index = open_foundation(
        settings.foundation if address is None else address,
        kind=kind,
        platform=current_platform(),
        optional=table_summary().optional if kind == "registry" else frozenset(),
    )
    plan = make_plan(
        expansion.packages,
        root=settings.tree.root,
        foundation=index,
        published=published_by_name(settings),
        virtual_packages=detect_virtual_packages(),
        force=expansion.request.force,
    )
    return _with_unmade(settings, expansion, plan) if kind == "registry" else plan


def _with_unmade(settings: Settings, expansion: Expansion, plan: Plan) -> Plan:
    """The plan; of a variant for a combination that the foundation was not asked for yet, that is the reason."""
    if not plan.unsatisfiable:
        return plan
    recorded = (settings.foundation / RECORD_NAME).is_file()
    made = {one.name for one in read_record(settings.foundation).combinations} if recorded else set()
    unmade = [one for one in expansion.combinations if one.name not in made]

    def explained(package: UnsatisfiablePackage) -> UnsatisfiablePackage:
        for choice in choices([package.rendered]):
            for one in unmade:
                if _is_for(choice, one):
                    return replace(package, reason=f"{one}: {not_asked_for(one.name)}")
        return package

    return replace(plan, unsatisfiable=tuple(map(explained, plan.unsatisfiable)))


def request_in_words(request: PlanRequest) -> str:
    """What is asked for, as a message says it."""
    stacks = "all stacks" if request.every_stack else f"stack {request.stack}" if request.stack else "the default stack"
    return f"{', '.join(request.packages)} of {stacks}" if request.packages else stacks


def check_served(plan: Plan, request: PlanRequest) -> None:
    """Raise SolveError for a package of the request that the foundation serves in no variant.

    Of all stacks some may be for another foundation: only where nothing at all is served, that is an error.
    """
    served = {package.name for package in plan.packages}
    if request.every_stack and served:
        return
    missing = {item.rendered.name: item.reason for item in plan.unsatisfiable if item.rendered.name not in served}
    if missing:
        reasons = "; ".join(f"{name} ({reason})" for name, reason in missing.items())
        message = f"{request_in_words(request)}: not servable in any variant asked for: {reasons}"
        raise SolveError(message, hint="correct the recipe, or take a foundation that has it: channel_tools plan --why")


def published_by_name(settings: Settings) -> dict[str, PublishedPackage]:
    """What was built before and is in the local channel, by file name."""
    if not settings.channel.exists():
        return {}
    return {
        file.ref.file_name: PublishedPackage(
            name=file.row.name, file_name=file.ref.file_name, digest=origin.digest, inputs=origin.inputs
        )
        for file in published_packages(open_channel(settings.channel))
        if (origin := file.row.origin).digest is not None
    }


@dataclass(frozen=True, kw_only=True, slots=True)
class ListedStack:
    """A stack, and its packages in every variant; of which foundation, is not asked."""

    stack: Stack
    packages: tuple[RenderedPackage, ...]
    default: frozenset[int]
    """The places in ``packages`` of those that belong to the default variant."""


def list_stacks(settings: Settings, *, stack: str | None, kind: FoundationKind) -> list[ListedStack]:
    """Every stack, or one, as a foundation of this kind has its packages built; no foundation is looked at.

    Raises ConfigError for the tree, UsageError for a stack it does not have.
    """
    loaded = load_tree(settings.tree)
    stacks = list(loaded.stacks.values()) if stack is None else [find_stack(loaded, stack)]
    rendered = expand_stacks(loaded, stacks, foundation_kind=kind, platform=current_platform())
    chosen = {id(package) for package in default_variants(rendered, offered_versions(kind))}
    return [_listed(item, [package for package in rendered if package.stack == item.name], chosen) for item in stacks]


def _listed(stack: Stack, packages: Sequence[RenderedPackage], chosen: Collection[int]) -> ListedStack:
    default = frozenset(place for place, package in enumerate(packages) if id(package) in chosen)
    return ListedStack(stack=stack, packages=tuple(packages), default=default)
