# SPDX-License-Identifier: BSD-3-Clause
"""The stacks and packages of a tree, and the plan for building them into the local channel.

A command expands a request once; everything it prints or builds follows from that one Expansion.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from channel_tools.channel import Foundation, open_channel, published_packages
from channel_tools.conda.platforms import current_platform, machine_glibc
from channel_tools.conda.solving import REPODATA_CACHE, detect_virtual_packages
from channel_tools.foundation.model import table_summary
from channel_tools.matrix import choices_of_recipes, expand_stacks, find_stack, load_tree
from channel_tools.matrix.choice import choices, default_variants, fits, is_ordinary, variants_for
from channel_tools.matrix.model import requirement_name
from channel_tools.plan import (
    PublishedPackage,
    has_index,
    make_plan,
    not_asked_for,
    open_foundation,
)
from channel_tools.plan.further_channels import further_channels, further_names
from channel_tools.plan.lock import lock_path, read_lock
from channel_tools.plan.locking import LockedFoundation
from channel_tools.system.errors import SolveError, UsageError
from channel_tools.system.progress import ignore
from channel_tools.workflow.bases import listed_base, own_base, recorded_pytorch, require_runs

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from channel_tools.foundation.model import Combination, PytorchSource, TableSummary
    from channel_tools.matrix import LoadedTree, RenderedPackage, Stack
    from channel_tools.matrix.choice import Choice
    from channel_tools.plan import FoundationIndex, Plan
    from channel_tools.plan.model import UnsatisfiablePackage
    from channel_tools.requests.names import BaseName, FoundationKind
    from channel_tools.requests.plan import PlanRequest, StackPackages
    from channel_tools.system.progress import Note
    from channel_tools.system.schedulers import BuildResources
    from channel_tools.system.settings import Settings

PYTHON = "python"
PYTHON_STACK = "python"
"""The stack that builds the Pythons that the registry foundation does not get from Debian."""
_PY_SPY = "py-spy"


@dataclass(frozen=True, kw_only=True, slots=True)
class Expansion:
    """A request with its foundation and stacks, and every package and variant of these for this machine."""

    request: PlanRequest
    foundation: Foundation
    stacks: tuple[Stack, ...]
    packages: tuple[RenderedPackage, ...]
    resources: Mapping[str, BuildResources]
    """The resources of builds by recipe, from stacks.yaml."""
    choices: Mapping[str, Mapping[str, Collection[str]]]
    """The tree's values of variant keys, by recipe."""
    makes_pythons: bool
    """Whether the tree has the stack that builds Pythons for the registry foundation."""
    pytorch: PytorchSource
    """Where the registry foundation's PyTorch comes from; before there is a foundation, what is looked for first."""

    @property
    def table(self) -> TableSummary:
        """The registry foundation's table."""
        return table_summary(self.foundation.release, current_platform(), self.pytorch)

    @property
    def asks_for_debian_pytorch(self) -> bool:
        """Whether the request names the version of Debian's own PyTorch."""
        return _asks_for_debian_pytorch(self.foundation, self.request.pytorch)

    @property
    def optional_packages(self) -> frozenset[str]:
        """The optional packages of the registry foundation that recipes or environments of the stacks name."""
        return self.table.optional & required_names(self.packages, self.stacks)

    @property
    def wants_cuda(self) -> bool:
        """Whether a recipe or an environment of the stack that was named wants PyTorch's build with CUDA."""
        stated = (spec for stack in self.stacks for spec in stack.install)
        required = (spec for item in self.packages for group in (item.build, item.host, item.run) for spec in group)
        specs = [spec for spec in (*stated, *required) if isinstance(spec, str)]
        named = (spec for spec in specs if requirement_name(spec) == "pytorch")
        return not self.request.every_stack and any("cuda" in spec for spec in named)

    @property
    def combinations(self) -> tuple[Combination, ...]:
        """The optional pairs of Python and PyTorch of the registry foundation that variants need."""
        wanted = choices(self.packages)
        table = self.table
        return tuple(
            combination
            for combination in table.combinations
            if (self.makes_pythons or combination.python == table.default.python)
            and any(_is_for(choice, combination) for choice in wanted)
        )


def required_names(packages: Iterable[RenderedPackage], stacks: Iterable[Stack]) -> frozenset[str]:
    """The packages that recipes or the environments of stacks name, their own ones among them.

    Also of environments in which a stack is validated without a GPU, and what users add to one whose ranks ``launch``
    starts.
    """
    specs = (spec for stack in stacks for spec in (*stack.install, *_without_gpu(stack), *_beside(stack)))
    return frozenset(map(requirement_name, specs)).union(*(package.requirement_names() for package in packages))


def _beside(stack: Stack) -> Sequence[str]:
    return [_PY_SPY] if stack.validation else []


def _without_gpu(stack: Stack) -> Sequence[str]:
    specs = stack.validation.get("without_gpu", ())
    return [spec for spec in specs if isinstance(spec, str)] if isinstance(specs, (list, tuple)) else []


def foundation_needs(settings: Settings, expansion: Expansion) -> frozenset[str]:
    """The names from which the registry foundation is made: those of the request and, the first time, of every stack.

    So a second stack of the tree finds its foundation made; the foundation keeps what it was made for once. What builds
    the Python of a base that has none is made before all else.
    """
    names = required_names(expansion.packages, expansion.stacks)
    if _has_rows_with_modules(settings, expansion, names):
        return names
    loaded = load_tree(settings.tree, settings.environ)
    stacks = _served(loaded.own_stacks, expansion.foundation, expansion.pytorch, every_stack=True, note=ignore)
    packages = expand_stacks(
        loaded,
        stacks,
        foundation_kind=expansion.foundation.kind,
        base=expansion.foundation.base,
        platform=current_platform(),
    )
    return names | required_names(packages, stacks)


def pythons_to_build(settings: Settings, expansion: Expansion) -> list[str]:
    """The Pythons that recipes have to build for the registry foundation of a request, by minor version."""
    own = expansion.table.default.python
    wanted = {combination.python for combination in expansion.combinations} - {own}
    if _lacks_python(expansion, foundation_needs(settings, expansion)):
        wanted.add(own)
    return sorted(wanted)


def _has_rows_with_modules(settings: Settings, expansion: Expansion, names: frozenset[str]) -> bool:
    """Whether the foundation is made already, with its Python, or the names need no Python that is not there yet."""
    from channel_tools.foundation.record import RECORD_NAME, read_record  # noqa: PLC0415 - only this kind has a record

    is_made = (settings.foundation / RECORD_NAME).is_file()
    if PYTHON in expansion.table.rows:
        return is_made
    return not _lacks_python(expansion, names) or (
        is_made and any(package.name == PYTHON for package in read_record(settings.foundation).packages)
    )


def _lacks_python(expansion: Expansion, names: frozenset[str]) -> bool:
    """Whether rows that the names lead to need a Python that Debian does not have on the request's base."""
    if PYTHON in expansion.table.rows:
        return False
    from channel_tools.foundation.table import load_table  # noqa: PLC0415 - slow to import, and for some bases only

    base, subdir = expansion.foundation.release, current_platform()
    return load_table(base=base, subdir=subdir, pytorch=expansion.pytorch).limited_to(names).lacks_python


def _is_for(choice: Choice, combination: Combination) -> bool:
    versions = dict(choice)
    ordinary = is_ordinary(versions["python"]) and fits(versions["python"], combination.python)
    return ordinary and fits(versions["pytorch"], combination.pytorch)


def expand_request(
    settings: Settings,
    request: PlanRequest,
    *,
    note: Note = ignore,
    foundation: Foundation | None = None,
) -> Expansion:
    """Read the tree and render the recipes of the request; the foundation is not opened.

    ``note`` gets a line for each key of a variant file that no recipe uses. ``foundation`` replaces the request's,
    without regard to the local channel's.

    Raises ConfigError for faults in the tree, UsageError for names it does not have and for a stack without any package
    for this platform, FoundationError if the local channel was made with another foundation.
    """
    loaded = _noted_tree(settings, note)
    foundation = foundation or choose_foundation(settings, request)
    stacks = loaded.own_stacks if request.every_stack else (find_stack(loaded, request.stack),)
    pytorch = _pytorch_source(settings, foundation, request.pytorch)
    stacks = _served(stacks, foundation, pytorch, every_stack=request.every_stack, note=note)
    platform = current_platform()
    packages = expand_stacks(
        loaded,
        stacks,
        foundation_kind=foundation.kind,
        base=foundation.base,
        platform=platform,
        packages=request.packages,
    )
    if not packages and not request.every_stack:
        message = f"the stack {stacks[0].name!r} has no package for {platform}: its recipes skip every variant there"
        filters = "build.skip in the recipes, and target_platform in the variant files"
        raise UsageError(message, hint=f"see {filters}; build on another platform or foundation")
    asked = asked_versions(python=request.python, pytorch=request.pytorch)
    if request.all_variants and asked:
        message = "--all-variants with --python or --pytorch: they contradict each other"
        raise UsageError(message, hint="leave one out: build all variants, or the one for these versions")
    if not request.all_variants:
        packages = variants_for(packages, asked, offered_versions(settings, foundation, asked=request.pytorch))
    return Expansion(
        request=request,
        foundation=foundation,
        stacks=stacks,
        packages=tuple(packages),
        resources=loaded.resources,
        choices=choices_of_recipes(loaded, foundation.kind, base=foundation.base),
        makes_pythons=PYTHON_STACK in loaded.stacks,
        pytorch=pytorch,
    )


def _pytorch_source(settings: Settings, foundation: Foundation, asked: str | None) -> PytorchSource:
    """Where the registry foundation's PyTorch comes from; of one to be made, a wheel unless Debian's is asked for."""
    if not foundation.is_made_here:
        return "wheel"
    is_asked = _asks_for_debian_pytorch(foundation, asked)
    return recorded_pytorch(settings, foundation.release) or ("debian" if is_asked else "wheel")


def _asks_for_debian_pytorch(foundation: Foundation, asked: str | None) -> bool:
    of_debian = table_summary(foundation.release, current_platform()).debian_pytorch
    return asked is not None and of_debian is not None and fits(asked, of_debian)


def unserved_on(foundation: Foundation, pytorch: PytorchSource, stack: Stack) -> str | None:
    """Why a stack is not built on a registry foundation of this base and PyTorch; None if it is."""
    if not foundation.is_made_here:
        return None
    keys = [foundation.release, *(["debian-pytorch"] if pytorch == "debian" else [])]
    return next((stack.unserved[key] for key in keys if key in stack.unserved), None)


def _served(
    stacks: Sequence[Stack], foundation: Foundation, pytorch: PytorchSource, *, every_stack: bool, note: Note
) -> tuple[Stack, ...]:
    """Those of the stacks that the foundation's base serves, with a line to ``note`` for each that is left out.

    Raises UsageError for one that was named.
    """
    reasons = {stack.name: reason for stack in stacks if (reason := unserved_on(foundation, pytorch, stack))}
    if reasons and not every_stack:
        (name, reason), *_ = reasons.items()
        message = f"the stack {name!r} is not served on base {foundation.release}: {reason}"
        hint = "name another --base for a new channel (--output), or another stack"
        # for its PyTorch alone; build --update would end here, too
        if foundation.release not in next(stack.unserved for stack in stacks if stack.name == name):
            hint = f"look for a wheel of PyTorch again: channel_tools foundation build --update; or {hint}"
        raise UsageError(message, hint=hint)
    for name, reason in reasons.items():
        note(f"{name} is left out: base {foundation.release} does not serve it: {reason}")
    return tuple(stack for stack in stacks if stack.name not in reasons)


def asked_versions(*, python: str | None, pytorch: str | None) -> dict[str, str]:
    """The requested versions, by variant key."""
    return {key: version for key, version in (("pytorch", pytorch), ("python", python)) if version}


def offered_versions(
    settings: Settings, foundation: Foundation, *, asked: str | None = None
) -> Mapping[str, Sequence[str]]:
    """The Pythons and PyTorches that a foundation has without building one; any, if a key is absent.

    ``asked`` is a PyTorch that was asked for, which one that is to be made may have.
    """
    if not foundation.is_made_here:
        return {}
    pytorch = _pytorch_source(settings, foundation, asked)
    default = table_summary(foundation.release, current_platform(), pytorch).default
    return {"python": (default.python,), "pytorch": (default.pytorch,)}


def choose_foundation(settings: Settings, request: PlanRequest) -> Foundation:
    """The requested foundation, else the one that the local channel was made with, else the registry's.

    With the request's further channels, and those that the local channel records. Raises as further_channels, and
    FoundationError for a base that this machine does not run.
    """
    asked = Foundation.named(request.foundation, request.address, request.base)
    glibc = machine_glibc()
    if request.base is not None:
        require_runs(request.base, glibc=glibc)
    elif asked is not None and asked.is_made_here:
        asked = asked.on(own_base(settings, glibc=glibc))
    if settings.channel.exists():
        foundation = open_channel(settings.channel, foundation=asked).foundation
    else:
        foundation = asked or Foundation().on(own_base(settings, glibc=glibc))
    return foundation.with_further(further_channels(request.further, own=settings.channel, foundation=foundation))


def _noted_tree(settings: Settings, note: Note) -> LoadedTree:
    loaded = load_tree(settings.tree, settings.environ)
    for line in loaded.notes:
        note(line)
    return loaded


def plan_request(settings: Settings, request: PlanRequest, *, note: Note = ignore) -> Plan:
    """Plan by the foundation's index and the local channel's content; writes nothing. ``note`` as in expand_request.

    It is also told of a foundation that a build makes again, since no plan knows the packages that it then has. Raises
    the errors of expand_request and plan_expansion.
    """
    expansion = expand_request(settings, request, note=note)
    plan = plan_expansion(settings, expansion)
    if expansion.foundation.is_made_here:
        from channel_tools.foundation.build import is_outdated  # noqa: PLC0415 - slow to import, and for this kind only
        from channel_tools.foundation.table import load_table  # noqa: PLC0415

        subdir = current_platform()
        table = load_table(base=expansion.foundation.release, subdir=subdir, pytorch=expansion.pytorch)
        if is_outdated(table, settings.foundation, subdir):
            note(
                f"{expansion.foundation.traits.label} was made by another version of channel_tools: build makes it "
                "again, and may then build what is skipped here"
            )
    return plan


def lacks_foundation(settings: Settings, request: PlanRequest) -> bool:
    """Whether the request plans with the registry foundation, and none has been made. Raises as expand_request does."""
    chosen = choose_foundation(settings, request)
    return chosen.is_made_here and not has_index(settings.foundation, current_platform())


def open_index(settings: Settings, foundation: Foundation) -> FoundationIndex:
    """The foundation's index. Raises FoundationError if the foundation has not been made."""
    address = foundation.address
    return open_foundation(
        settings.foundation if address is None else address,
        kind=foundation.kind,
        platform=current_platform(),
        optional=table_summary(foundation.release, current_platform()).rows if foundation.is_made_here else frozenset(),
        environ=settings.environ,
        cache=settings.package_cache / REPODATA_CACHE,
        further=foundation.further,
    )


def plan_expansion(settings: Settings, expansion: Expansion, *, locked: LockedFoundation | None = None) -> Plan:
    """Plan the packages of an expanded request, with the tree's foundation lock unless ``locked`` is given.

    Raises ConfigError for a cycle, a recipe that names missing files and a lock that cannot be read, FoundationError if
    the foundation has not been made, NetworkError if it cannot be reached.
    """
    kind, root = expansion.foundation.kind, settings.tree.root
    is_locked = expansion.foundation.is_updated_by_others and settings.tree.recipe is None  # else there is no tree
    if locked is None and is_locked:
        lock = read_lock(root, kind, current_platform())
        locked = LockedFoundation(lock, further=further_names(expansion.foundation))
    index = replace(open_index(settings, expansion.foundation), locked=locked)
    plan = asyncio.run(
        make_plan(
            expansion.packages,
            root=root,
            foundation=index,
            published=published_by_name(settings),
            virtual_packages=detect_virtual_packages(),
            choices=expansion.choices,
            force=expansion.request.force,
        )
    )
    if expansion.foundation.is_made_here:
        plan = _with_unmade(settings, expansion, plan)
    if not is_locked:
        return plan
    return replace(plan, lock_file=lock_path(root, kind, current_platform()).relative_to(root).as_posix())


def _with_unmade(settings: Settings, expansion: Expansion, plan: Plan) -> Plan:
    """The plan, in which the reason says how the foundation comes by the Python and PyTorch that a variant is for."""
    if not plan.unsatisfiable:
        return plan
    from channel_tools.foundation.record import RECORD_NAME, read_record  # noqa: PLC0415 - as above

    recorded = (settings.foundation / RECORD_NAME).is_file()
    made = {combination.name for combination in read_record(settings.foundation).combinations} if recorded else set()
    reasons = {
        combination: f"{combination}: {not_asked_for(combination.name)}"
        for combination in expansion.combinations
        if combination.name not in made
    }
    if expansion.table.debian_pytorch is not None:
        reasons |= _reasons_of_other_pytorch(expansion)

    def explained(package: UnsatisfiablePackage) -> UnsatisfiablePackage:
        for choice in choices([package.rendered]):
            for combination, reason in reasons.items():
                if _is_for(choice, combination):
                    return replace(package, reason=reason)
        return package

    return replace(plan, unsatisfiable=tuple(map(explained, plan.unsatisfiable)))


def _reasons_of_other_pytorch(expansion: Expansion) -> dict[Combination, str]:
    """Why there is no package for the PyTorches of the source from which the foundation's does not come."""
    base = expansion.foundation.release
    if expansion.pytorch == "wheel":
        other = table_summary(base, current_platform(), "debian")
        version = other.default.pytorch
        why = (
            f"the foundation has PyTorch's wheel; build --update --pytorch {version} takes that of {base} in its place"
        )
    else:
        other = table_summary(base, current_platform(), "wheel")
        why = f"the foundation has the PyTorch of {base} itself; build --update looks for a wheel for the CPU again"
    return {combination: f"{combination}: {why}" for combination in (other.default, *other.combinations)}


def stack_options(request: StackPackages, stack: Stack | None) -> tuple[str, ...]:
    """The options by which what a request builds is recorded, with the stack's name; None: every stack."""
    named = replace(request, stack=None if stack is None else stack.name, packages=tuple(sorted(set(request.packages))))
    return named.options


def check_served(plan: Plan, request: PlanRequest) -> None:
    """Raise SolveError for a package of the request that the foundation cannot serve in any variant.

    If all stacks are requested, some may be for another foundation: then it is an error only if nothing is served.
    """
    served = {package.name for package in plan.packages}
    if request.every_stack and served:
        return
    missing = {item.rendered.name: item.reason for item in plan.unsatisfiable if item.rendered.name not in served}
    if missing:
        reasons = "; ".join(f"{name} ({reason})" for name, reason in missing.items())
        message = f"{request.in_words}: cannot be built in any requested variant: {reasons}"
        raise SolveError(message, hint="correct the recipe or choose another foundation; see channel_tools plan --why")


def published_by_name(settings: Settings) -> dict[str, PublishedPackage]:
    """The earlier builds in the local channel, by file name."""
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
    """A stack and its packages in every variant."""

    stack: Stack
    packages: tuple[RenderedPackage, ...]
    default: frozenset[int]
    """The indices in ``packages`` of those that belong to the default variant."""
    unserved: str | None
    """Why it is not built on the foundation; None if it is."""


def listed_foundation(settings: Settings, kind: FoundationKind | None, base: BaseName | None) -> Foundation:
    """The foundation that stacks are listed for: the named one, by default a registry foundation of the tree's base.

    Raises UsageError as Foundation.named does.
    """
    foundation = Foundation.named(kind, None, base) or Foundation()
    if not foundation.is_made_here:
        return foundation
    return foundation.on(base or listed_base(settings))


def list_stacks(
    settings: Settings, *, stack: str | None, foundation: Foundation, note: Note = ignore
) -> list[ListedStack]:
    """Every stack, or one, with its packages on a foundation; none is read.

    ``note`` as in expand_request.

    Raises ConfigError for faults in the tree, UsageError for a stack it does not have.
    """
    loaded = _noted_tree(settings, note)
    stacks = list(loaded.stacks.values()) if stack is None else [find_stack(loaded, stack)]
    rendered = expand_stacks(
        loaded, stacks, foundation_kind=foundation.kind, base=foundation.base, platform=current_platform()
    )
    chosen = {id(package) for package in default_variants(rendered, offered_versions(settings, foundation))}
    pytorch = _pytorch_source(settings, foundation, None)

    def listed(item: Stack) -> ListedStack:
        packages = tuple(package for package in rendered if package.stack == item.name)
        default = frozenset(index for index, package in enumerate(packages) if id(package) in chosen)
        reason = unserved_on(foundation, pytorch, item)
        return ListedStack(stack=item, packages=packages, default=default, unserved=reason)

    return [listed(item) for item in stacks]
