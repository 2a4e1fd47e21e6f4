# SPDX-License-Identifier: BSD-3-Clause
"""Makes a plan from rendered packages.

Packages are planned from the leaves upward, because a digest needs the digests below it. Each stack is planned by
itself: two stacks with different builds of one package must not see each other's builds, or the digest of a package
would depend on which stacks were requested together. Equal packages of several stacks are then merged.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from channel_tools.conda.metadata import UNDATED_S
from channel_tools.conda.specs import is_virtual, spec_name
from channel_tools.plan.environments import EnvironmentSolver, UnsatisfiableError
from channel_tools.plan.inputs import (
    TreeFiles,
    digest_of,
    environment_inputs,
    file_inputs,
    final_build_string,
    find_predecessor,
    influences,
    reasons_for,
    recipe_inputs,
)
from channel_tools.plan.model import Plan, PlannedPackage, UnsatisfiablePackage
from channel_tools.plan.own import OwnPackage, OwnRecords, SolveCache
from channel_tools.plan.resolve import own_run_exports, resolve_environments, resolve_pin
from channel_tools.system.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from pathlib import Path

    from rattler import GenericVirtualPackage

    from channel_tools.conda.package import PackageKey
    from channel_tools.matrix.model import RenderedPackage, Requirement
    from channel_tools.plan.foundation import FoundationIndex
    from channel_tools.plan.model import BuildFile, PublishedPackage
    from channel_tools.plan.own import Resolved
    from channel_tools.plan.resolve import ResolvedEnvironments

_PlannedStack = tuple[list[PlannedPackage], list[UnsatisfiablePackage]]
FORCED = "--force"


async def make_plan(
    rendered: Sequence[RenderedPackage],
    *,
    root: Path,
    foundation: FoundationIndex,
    published: Mapping[str, PublishedPackage],
    virtual_packages: Sequence[GenericVirtualPackage],
    choices: Mapping[str, Mapping[str, Collection[str]]] | None = None,
    force: bool = False,
) -> Plan:
    """Plan every package: its digest and name, whether it is built, and what it waits for.

    ``published`` are the channel's own packages by file name, ``choices`` the tree's values of variant keys by recipe
    folder (choices_of_recipes). Raises ConfigError for a cycle or a recipe that names
    missing files, NetworkError if the foundation's index cannot be reached. A variant that the foundation cannot serve
    is not an error: it is listed in ``Plan.unsatisfiable``.
    """
    stacks: dict[str, list[RenderedPackage]] = {}
    for package in rendered:
        stacks.setdefault(package.stack, []).append(package)
    planned: dict[PackageKey, PlannedPackage] = {}
    unsatisfiable: dict[tuple[object, ...], UnsatisfiablePackage] = {}
    for packages, missing in await _plan_stacks(
        list(stacks.values()), files=TreeFiles(root), foundation=foundation, virtual_packages=virtual_packages
    ):
        planned.update((package.key, package) for package in packages)
        for item in missing:  # stacks share packages: each is reported once
            variant = tuple(sorted(item.rendered.variant.items()))
            unsatisfiable.setdefault((item.rendered.name, item.rendered.version, variant, item.reason), item)
    locked = foundation.locked
    plan = Plan(
        packages=tuple(planned.values()),
        unsatisfiable=tuple(unsatisfiable.values()),
        choices=choices or {},
        lock=None if locked is None else locked.result(),
        locks=() if locked is None else tuple(locked.added),
    )
    return judge_again(plan, published, force=force)


async def _plan_stacks(
    stacks: Sequence[Sequence[RenderedPackage]],
    *,
    files: TreeFiles,
    foundation: FoundationIndex,
    virtual_packages: Sequence[GenericVirtualPackage],
) -> list[_PlannedStack]:
    """Plan each stack by itself. Of several errors, the first stack's is raised."""
    caches: dict[str, SolveCache] = {}

    async def plan_stack(packages: Sequence[RenderedPackage]) -> _PlannedStack:
        platform = packages[0].platform
        solver = EnvironmentSolver(
            foundation=foundation,
            own=OwnRecords(foundation.own_channel),
            platform=platform,
            virtual_packages=virtual_packages,
            cache=caches.setdefault(platform, SolveCache()),
        )
        all_records = foundation.shares_channel
        return await _StackPlanner(files=files, solver=solver, results={}, all_records=all_records).plan(packages)

    if foundation.locked is not None:  # what one adds to the lock, the next takes from it: their order must not vary
        return [await plan_stack(packages) for packages in stacks]
    # in parallel, since the solver has its own threads
    results = await asyncio.gather(*map(plan_stack, stacks), return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return [result for result in results if not isinstance(result, BaseException)]


def judge_again(plan: Plan, published: Mapping[str, PublishedPackage], *, force: bool = False) -> Plan:
    """Update a plan after the channel has changed: what is built and why, from ``published``."""
    current = frozenset(package.digest for package in plan.packages)
    results = []
    for package in plan.packages:
        existing = published.get(package.file_name)
        if existing is not None and existing.digest == package.digest:
            results.append(replace(package, status="build" if force else "skip", reasons=(FORCED,) if force else ()))
        else:
            choices = plan.choices.get(package.rendered.recipe_file.name, {})
            predecessor = find_predecessor(
                package.name, package.inputs, published.values(), current=current, choices=choices
            )
            results.append(replace(package, status="build", reasons=reasons_for(package.inputs, predecessor)))
    return replace(plan, packages=tuple(results))


@dataclass(frozen=True, kw_only=True, slots=True)
class _StackPlanner:
    """Plans one stack; ``results`` and the solver's own records grow from the leaves upward."""

    files: TreeFiles
    solver: EnvironmentSolver
    results: dict[str, tuple[PlannedPackage, OwnPackage]]
    all_records: bool
    """Whether digests cover every package of an environment."""

    async def plan(self, packages: Sequence[RenderedPackage]) -> _PlannedStack:
        by_name: dict[str, list[RenderedPackage]] = {}
        for package in packages:
            by_name.setdefault(package.name, []).append(package)
        unsatisfiable = []
        for name in _build_order(by_name):
            for rendered in by_name[name]:
                try:
                    await self._plan_package(rendered)
                except UnsatisfiableError as err:
                    self.solver.own.unsatisfiable.setdefault(name, str(err))
                    unsatisfiable.append(UnsatisfiablePackage(rendered=rendered, reason=str(err)))
        return [planned for planned, _ in self.results.values()], unsatisfiable

    async def _plan_package(self, rendered: RenderedPackage) -> None:
        environments = await resolve_environments(rendered, self.solver, self._find_sibling)
        files = self.files.of_build(rendered)
        inputs = _all_inputs(rendered, files, environments, all_records=self.all_records)
        digest = digest_of(inputs)
        own = _own_package(rendered, digest, environments, all_records=self.all_records)
        self.solver.own.add(own)
        try:
            itself = f"{own.name} =={own.version} {own.build_string}"
            resolved = [
                *environments.build,
                *environments.host,
                *await self.solver.solve([itself], beneath=own.depends),
            ]
            for test in rendered.tests:
                resolved += await self.solver.solve(_plain(test.build))
                resolved += await self._of_test(own, [itself, *_plain(test.run)]) if test.run else []
        except UnsatisfiableError:
            self.solver.own.remove(own)
            raise
        planned = PlannedPackage(
            rendered=rendered,
            build_string=own.build_string,
            digest=digest,
            date_s=own.date_s,
            inputs=inputs,
            files=files,
            own_pins=environments.own_pins,
            foundation=tuple(sorted({item.key for item in resolved if item.digest is None})),
            sibling_specs={
                pin: resolve_pin(pin, item.version, item.build_string) for pin, item in environments.siblings.items()
            },
            waits_for=tuple(sorted({item.file_name for item in resolved if item.digest is not None} - {own.file_name})),
            status="skip",
            reasons=(),
        )
        self.results[own.file_name] = (planned, own)

    async def _of_test(self, own: OwnPackage, specs: Sequence[str]) -> list[Resolved]:
        """The environment of a test, which runs on this machine, even if the package may need another one."""
        try:
            return await self.solver.solve(specs)
        except UnsatisfiableError as err:
            if not any(is_virtual(spec_name(text)) for text in own.depends):
                raise
            message = f"{err}; a test of {own.name} would run on this machine: build it where the package runs"
            raise UnsatisfiableError(message) from None

    def _find_sibling(self, rendered: RenderedPackage, name: str) -> OwnPackage | None:
        """The planned output ``name`` of the same recipe: the exact build, or the one with the same variant."""
        meant = rendered.siblings.get(name)
        for planned, own in self.results.values():
            other = planned.rendered
            if other.name != name or other.recipe_file.path != rendered.recipe_file.path:
                continue
            shared = rendered.variant.keys() & other.variant.keys() - {"target_platform"}
            same = all(rendered.variant[key] == other.variant[key] for key in shared)
            if other.engine_build_string == meant if meant is not None else same:
                return own
        return None


def _plain(requirements: Iterable[Requirement]) -> list[str]:
    return [item if isinstance(item, str) else item.name for item in requirements]


def _all_inputs(
    rendered: RenderedPackage, files: Iterable[BuildFile], environments: ResolvedEnvironments, *, all_records: bool
) -> dict[str, str]:
    siblings = {
        **{f"output:{pin.name}": item.version for pin, item in environments.siblings.items() if not pin.exact},
        **{f"package:{pin.name}": item.digest for pin, item in environments.siblings.items() if pin.exact},
    }
    inputs = {
        **recipe_inputs(rendered),
        **file_inputs(files),
        **environment_inputs("build", environments.build, all_records=all_records),
        **environment_inputs("host", environments.host, all_records=all_records),
        **siblings,
    }
    return dict(sorted(inputs.items()))


def _own_package(
    rendered: RenderedPackage, digest: str, environments: ResolvedEnvironments, *, all_records: bool
) -> OwnPackage:
    made_of = [
        *(record for record in environments.build if all_records or influences("build", record)),
        *(record for record in environments.host if all_records or influences("host", record)),
    ]
    build_string = final_build_string(rendered, digest)
    # the engine writes track_features for a build with lower priority (build.variant in CEP 14)
    build = rendered.recipe.get("build")
    variant = build.get("variant") if isinstance(build, dict) else None
    count = variant.get("down_prioritize_variant") if isinstance(variant, dict) else None
    return OwnPackage(
        name=rendered.name,
        version=rendered.version,
        build_string=build_string,
        build_number=rendered.build_number,
        subdir=rendered.subdir,
        depends=environments.depends,
        digest=digest,
        run_exports=own_run_exports(rendered, build_string),
        date_s=max((record.date_s for record in made_of), default=UNDATED_S),
        track_features=(
            tuple(f"{rendered.name}-p-{index}" for index in range(count)) if isinstance(count, int) else ()
        ),
    )


def _build_order(by_name: Mapping[str, Sequence[RenderedPackage]]) -> list[str]:
    dependencies = {
        name: frozenset().union(*(package.requirement_names() for package in items)) for name, items in by_name.items()
    }
    try:
        return topological_order(dependencies)
    except CycleFoundError as err:
        files = [by_name[name][0].recipe_file.path for name in err.cycle[:-1]]
        seen = f" (with {', '.join(str(path) for path in files[1:])})" if files[1:] else ""
        message = f"packages depend on each other in a cycle: {' -> '.join(err.cycle)}{seen}"
        hint = "a package must not depend on itself for building, running or testing; move a test to the last package"
        raise ConfigError(message, path=files[0], hint=hint) from None


class CycleFoundError(Exception):
    """Names that depend on each other in a cycle; the first is repeated at the end of ``cycle``."""

    def __init__(self, cycle: tuple[str, ...]) -> None:
        super().__init__(" -> ".join(cycle))
        self.cycle = cycle


def topological_order(dependencies: Mapping[str, Collection[str]]) -> list[str]:
    """Sort the keys so that each comes after those it depends on; other names and itself are ignored.

    >>> topological_order({"app": ["lib"], "lib": ["gcc"], "tool": []})
    ['lib', 'app', 'tool']

    Raises CycleFoundError.
    """
    order: dict[str, None] = {}
    for name in dependencies:
        _visit(name, dependencies, order, ())
    return list(order)


def _visit(
    name: str, dependencies: Mapping[str, Collection[str]], order: dict[str, None], path: tuple[str, ...]
) -> None:
    if name in order:
        return
    if name in path:
        raise CycleFoundError((*path[path.index(name) :], name))
    for item in dependencies:
        if item != name and item in dependencies[name]:
            _visit(item, dependencies, order, (*path, name))
    order[name] = None
