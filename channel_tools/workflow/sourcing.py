# SPDX-License-Identifier: BSD-3-Clause
"""Handing sources from the store to builds, complete and checked before the first build starts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from channel_tools.errors import ChannelToolsError, FoundationError, IntegrityError, NetworkError
from channel_tools.plan.buildfiles import located
from channel_tools.sources.fetch import fetch_sources
from channel_tools.sources.model import file_name_of
from channel_tools.sources.needed import need_of, needed_sources, source_excludes
from channel_tools.sources.patchcheck import check_patches
from channel_tools.sources.store import SourceStore
from channel_tools.workflow.foundations import make_registry_foundation, optional_packages_of
from channel_tools.workflow.planning import expand_stacks, plan_stacks, required_names
from channel_tools.workflow.source_store import debian_sources, missing_error

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from channel_tools.channel import Foundation
    from channel_tools.matrix import LoadedTree, RenderedPackage
    from channel_tools.matrix.model import Source
    from channel_tools.plan import Plan, PlannedPackage
    from channel_tools.progress import Progress
    from channel_tools.settings import Settings
    from channel_tools.sources.model import NeededSource
    from channel_tools.workflow.foundations import FoundationOptions
    from channel_tools.workflow.planning import PlanRequest
    from channel_tools.yamlfile import YamlValue

_KEPT_KEYS = frozenset({"file_name", "patches", "target_directory"})
"""What a source entry says beside where the bytes are."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SuppliedSources:
    """The store as the sources of a build: checked, complete for the plan it was made for."""

    store: SourceStore

    def entries_for(self, package: PlannedPackage) -> list[dict[str, YamlValue]]:
        """The package's sources in the recipe's order; what a store can hold is taken from it."""
        excludes = source_excludes(package.rendered.recipe)
        return [self._entry(source, excludes) for source in package.rendered.sources]

    def origins_of(self, package: PlannedPackage) -> list[YamlValue]:
        """What ``extra.channel_tools.sources`` says: what each source is, and upstream's addresses of it."""
        origins: list[YamlValue] = []
        for source in package.rendered.sources:
            if source.kind != "path":
                upstream: list[YamlValue] = [source.location, *source.mirrors]
                identity = {"sha256": source.sha256} if source.kind == "url" else {"rev": source.revision}
                origins.append({source.kind: upstream, **identity})
        return origins

    def _entry(self, source: Source, excludes: tuple[str, ...]) -> dict[str, YamlValue]:
        need = need_of(source, excludes)
        entry = dict(source.entry)
        if need is None:
            return entry
        stored = self.store.known(need)
        name = stored.path.name if need.kind == "git" else file_name_of(source.location)
        kept = {key: value for key, value in entry.items() if key in _KEPT_KEYS}
        address = self.store.supply(need, name).as_uri()
        return {"url": address, "sha256": stored.sha256, **kept}


def provide_sources(settings: Settings, plan: Plan, *, offline: bool, jobs: int, progress: Progress) -> SuppliedSources:
    """The store as the sources of what the plan builds: complete, hashed, and the recipes' patches fit them.

    What is missing is fetched unless ``offline``; then one NetworkError lists all of it. Raises what fetch_sources and
    check_patches raise; nothing was built until then.
    """
    store = SourceStore(folder=settings.sources)
    needs = needed_sources(package.rendered for package in plan.to_build)
    missing = [need for need in needs if not _is_sound(store, need, progress)]
    if missing and offline:
        raise missing_error(missing, store)
    fetch_sources(missing, store, jobs=jobs, progress=progress, debian=debian_sources(settings))
    _check_patches(store, plan)
    return SuppliedSources(store=store)


def _check_patches(store: SourceStore, plan: Plan) -> None:
    """Try the patches of every source that comes from the store; variants of a recipe share most of them."""
    seen: set[tuple[Path, ...]] = set()
    for package in plan.to_build:
        folder = package.rendered.recipe_file.folder
        excludes = source_excludes(package.rendered.recipe)
        for source in package.rendered.sources:
            need = need_of(source, excludes)
            if need is None or not source.patches:
                continue
            archive = store.known(need).path
            patches = tuple(located(folder, name) for name in source.patches)
            if (archive, *patches) not in seen:
                seen.add((archive, *patches))
                check_patches(archive, patches, what=f"{source.location} of {package.name} {package.version}")


def check_offline(
    settings: Settings,
    loaded: LoadedTree,
    foundation: Foundation,
    request: PlanRequest,
    *,
    options: FoundationOptions,
    progress: Progress,
) -> None:
    """Raise one NetworkError for all that an offline build lacks, before anything is written.

    With a foundation that is up to date these are the sources of the plan's builds. Without one there is no plan yet,
    so every source of the request counts; a foundation that kept downloads suffice for is made first instead.
    """
    packages: Sequence[RenderedPackage] = expand_stacks(loaded, foundation, request)
    problem: ChannelToolsError | None = None
    try:
        if not _is_foundation_ready(settings, loaded, foundation, request, options, progress):
            return
        packages = [package.rendered for package in plan_stacks(settings, loaded, foundation, request).to_build]
    except (NetworkError, FoundationError) as err:
        problem = err
    store = SourceStore(folder=settings.sources)
    missing = [need for need in needed_sources(packages) if store.find(need) is None]
    lacking = ([problem] if problem else []) + ([missing_error(missing, store)] if missing else [])
    if lacking:
        hints = [error.hint for error in lacking if error.hint is not None]
        raise NetworkError("\n".join(error.message for error in lacking), hint="; and for sources: ".join(hints))


def _is_foundation_ready(
    settings: Settings,
    loaded: LoadedTree,
    foundation: Foundation,
    request: PlanRequest,
    options: FoundationOptions,
    progress: Progress,
) -> bool:
    """Whether there is nothing to do for the foundation; False when it is to be made of what was downloaded before.

    Raises NetworkError for a foundation that is out of reach.
    """
    if foundation.address is not None:
        if not foundation.address.startswith("file:"):
            message = f"the foundation {foundation.address} is read over the network"
            hint = "mirror it into a folder and name that with --foundation-channel file:///FOLDER"
            raise NetworkError(message, hint=hint)
        return True
    asked = options.asked | optional_packages_of(required_names(loaded, foundation, request))
    result = make_registry_foundation(
        settings, jobs=1, options=replace(options, asked=asked), dry_run=True, progress=progress
    )
    return not result.made


def _is_sound(store: SourceStore, need: NeededSource, progress: Progress) -> bool:
    """Whether the store holds the source undamaged; a damaged one is moved aside and counts as missing."""
    if store.find(need) is None:
        return False
    try:
        store.check(need)
    except IntegrityError as err:
        progress.note(f"{err}; moved aside to {store.move_aside(store.entry(need))}")
        return False
    return True
