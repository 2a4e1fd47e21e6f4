# SPDX-License-Identifier: BSD-3-Clause
"""``mirror create`` and ``mirror update``: lock stacks, plan their bundle, report its size, download, sign."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from urllib.parse import quote

from channel_tools.channel import indexed_files, open_channel
from channel_tools.channel.state import CHANNEL_RECORD
from channel_tools.conda.addresses import (
    channel_address,
    channel_name,
    is_web,
    local_path,
    without_credentials,
)
from channel_tools.conda.clients import make_http_client
from channel_tools.conda.fetch import FetchOptions
from channel_tools.conda.index import read_index
from channel_tools.conda.package import NOARCH, OLD_SUFFIX, PACKAGE_SUFFIX, PackageKey
from channel_tools.conda.platforms import current_platform
from channel_tools.conda.solving import parse_spec
from channel_tools.mirror.exporting.create import check_destination, create_bundle, unfinished_folder
from channel_tools.mirror.exporting.extras import export_sources, export_tree, make_tool
from channel_tools.mirror.exporting.plan import (
    BundlePlan,
    SourceChannel,
    attestation_files,
    index_files,
    locked_packages,
    pip_for_conda,
    plan_packages,
    platforms_of,
    read_since,
    stacks_package,
)
from channel_tools.mirror.format import BOOTSTRAP
from channel_tools.mirror.keys import key_folder, open_signing
from channel_tools.pins import assumed_virtual_packages, solve_lock
from channel_tools.pins.resolve import read_or_solve
from channel_tools.requests.environment import InstallRequest
from channel_tools.requests.plan import PlanRequest, SourcesRequest
from channel_tools.sources.store import SourceStore
from channel_tools.system.counting import counted
from channel_tools.system.errors import UsageError
from channel_tools.system.keys import read_passphrase
from channel_tools.system.settings import find_cache, package_cache_in
from channel_tools.workflow.environment import install_channels, variants_of
from channel_tools.workflow.plan import plan_request
from channel_tools.workflow.sources import fetch_needed, needed_by_tree

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from channel_tools.mirror.exporting.create import CreateReport
    from channel_tools.mirror.exporting.extras import Tool
    from channel_tools.mirror.exporting.plan import ChannelPackage, ExtraFile
    from channel_tools.mirror.format import Received
    from channel_tools.pins import Lock
    from channel_tools.requests.mirror import MirrorRequest
    from channel_tools.requests.names import BaseName
    from channel_tools.system.http.client import HttpClient
    from channel_tools.system.progress import Note, Progress
    from channel_tools.system.settings import Settings

_MEGA = 1e6
_INPUT = "foundation:"


@dataclass(frozen=True, kw_only=True, slots=True)
class MirrorResult:
    """What was planned, and what was made: nothing in a dry run, or if the importing site has everything."""

    plan: BundlePlan
    report: CreateReport | None


def make_mirror(
    settings: Settings | None, request: MirrorRequest, *, environ: Mapping[str, str], progress: Progress
) -> MirrorResult:
    """Make the bundle. Without ``settings``, that is without a tree, the request must have locks or MatchSpecs.

    Raises UsageError if the tree is needed, and as read_since, read_or_solve, solve_lock, plan_packages, open_signing
    and create_bundle do.
    """
    context = _Context(settings=settings, cache=find_cache(environ), environ=environ)
    since = None if request.since is None else read_since(request.since)
    client = make_http_client(environ)
    channels = source_channels(request.channels)
    locks = _make_locks(context, request, progress.note)
    extras: list[ExtraFile] = []
    tool = None
    if not request.dry_run:
        check_destination(request.destination)
        if request.pythons:
            cache = context.cache / "mirror" / "wheels"
            tool = make_tool(request.pythons, platforms_of(locks), cache=cache, progress=progress)
            extras += tool.files
        if request.with_sources:
            folder = unfinished_folder(request.destination)
            extras += _source_files(context.with_tree("--with-sources"), locks, folder, request.jobs, progress)
    plan = _plan(
        context,
        locks,
        channels or source_channels(context.channels_of(locks)),
        client,
        since=since,
        extras=extras,
        tool=tool,
        rebuilt=PlanRequest(python=request.python, pytorch=request.pytorch) if request.with_sources else None,
    )
    if request.dry_run or plan.brings_nothing():
        return MirrorResult(plan=plan, report=None)
    signing = open_signing(
        key_folder(request.keys),
        passphrase=read_passphrase(request.passphrase_file),
        expires_days=request.expires_days,
        now=datetime.now(UTC),
    )
    progress.note(in_words(plan))
    fetching = FetchOptions(client=client, jobs=request.jobs)
    report = create_bundle(plan, request.destination, signing=signing, options=fetching, progress=progress)
    return MirrorResult(plan=plan, report=report)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Context:
    """Where the command runs: in a tree or not, with the user's cache and environment."""

    settings: Settings | None
    cache: Path
    environ: Mapping[str, str]

    @property
    def package_cache(self) -> Path:
        return package_cache_in(self.cache)

    def with_tree(self, feature: str) -> Settings:
        """The settings. Raises UsageError without a tree, which ``feature`` needs."""
        if self.settings is None:
            message = f"{feature} needs a tree of recipes, and there is none here"
            hint = "name the tree with --root; MatchSpecs with --channel, and locks, are mirrored without one"
            raise UsageError(message, hint=hint)
        return self.settings

    def channels_of(self, locks: Sequence[Lock]) -> tuple[str, ...]:
        """The channels where none are given: the default ones for installations, without a tree those of the locks."""
        locked = tuple(dict.fromkeys(channel for lock in locks for channel in lock.channels))
        if self.settings is None and locked:
            return locked
        return install_channels(self.with_tree("the local channel, for lack of --channel,"), InstallRequest())


def _make_locks(context: _Context, request: MirrorRequest, note: Note) -> list[Lock]:
    """The locks of the request: those given, else one for the MatchSpecs or for every stack, solved now.

    ``note`` gets a line for what is left out of a lock. Raises as read_or_solve and solve_lock do, and UsageError for a
    stack that does not exist.
    """
    if request.locks:
        return [_named(asyncio.run(_lock_of(path, context, request, note)), path) for path in request.locks]
    platforms = request.platforms or (current_platform(),)
    virtual = assumed_virtual_packages(platforms, request.virtual_packages)
    asked = InstallRequest(channels=request.channels, python=request.python, pytorch=request.pytorch)
    if request.specs:
        wanted = {_lock_name(parse_spec(request.specs[0]).name.normalized): request.specs}
    else:
        settings = context.with_tree("a stack")
        stacks = [variants_of(settings, name) for name in request.stacks or (None,)]
        wanted = {variants.stack.name: variants.specs(asked) for variants in stacks}
    channels = request.channels or context.channels_of(())

    async def solve_all() -> list[Lock]:
        cache = context.package_cache
        return [
            await solve_lock(name, specs, channels, platforms, virtual_packages=virtual, package_cache=cache)
            for name, specs in wanted.items()
        ]

    return asyncio.run(solve_all())


async def _lock_of(path: Path, context: _Context, request: MirrorRequest, note: Note) -> Lock:
    return await read_or_solve(
        path,
        request.choice,
        channels=request.channels,
        virtual_packages=request.virtual_packages,
        package_cache=context.package_cache,
        environ=context.environ,
        note=note,
    )


def _named(lock: Lock, path: Path) -> Lock:
    """The lock with a name: one whose format does not name the stack is named after its file."""
    return lock if lock.stack else replace(lock, stack=_lock_name(path.stem))


def _lock_name(text: str) -> str:
    """A text as the name of a lock in a bundle."""
    return re.sub(r"[^a-z0-9_.-]+", "-", text.lower()).strip(".-")


def _plan(
    context: _Context,
    locks: Sequence[Lock],
    channels: Sequence[SourceChannel],
    client: HttpClient,
    *,
    since: Received | None,
    extras: Sequence[ExtraFile],
    tool: Tool | None,
    rebuilt: PlanRequest | None,
) -> BundlePlan:
    """Everything that goes into the bundle, with sizes; no package is downloaded.

    ``rebuilt`` is the variant of the stacks that can be built again from the bundle, None if none can.
    """
    platforms = platforms_of(locks)
    addresses = [channel.address for channel in channels]
    needed = locked_packages(locks) | asyncio.run(_added_packages(locks, addresses, context.package_cache))
    if rebuilt is not None:
        settings = context.with_tree("--with-sources")
        stacks = [lock.stack for lock in locks]
        needed |= set(_build_packages(settings, rebuilt, stacks, channels, platforms, client))
    parts = plan_packages(needed, channels, platforms=platforms, client=client, since=since)
    small = index_files(locks, parts, complete=since is None, now=datetime.now(UTC)) | attestation_files(parts, client)
    if tool is not None:
        small[BOOTSTRAP] = tool.script
    return BundlePlan(
        locks=locks,
        parts=parts,
        small=small,
        extras=extras,
        tool=None if tool is None else tool.wheels,
        with_sources=rebuilt is not None,
        since=since,
    )


async def _added_packages(locks: Sequence[Lock], addresses: Sequence[str], cache: Path) -> set[ChannelPackage]:
    """What the importing site needs besides the locks' packages."""
    pip = await pip_for_conda(locks, addresses, package_cache=cache)
    return pip | await stacks_package(locks, addresses, package_cache=cache)


def _source_files(
    settings: Settings, locks: Iterable[Lock], folder: Path, jobs: int, progress: Progress
) -> list[ExtraFile]:
    """Write the tree of recipes and the sources of the stacks into ``folder``; ``jobs`` download what is missing.

    Raises as fetch_needed and export_sources do.
    """
    store = SourceStore(folder=settings.sources)
    entries = set()
    for lock in locks:
        of_stack = SourcesRequest(stack=lock.stack)
        fetch_needed(settings, of_stack, dry_run=False, jobs=jobs, progress=progress)
        entries |= {store.entry(need) for need in needed_by_tree(settings, of_stack, progress)}
    return [export_tree(settings.tree, folder), *export_sources(store, sorted(entries), folder, progress)]


def _build_packages(
    settings: Settings,
    variant: PlanRequest,
    stacks: Iterable[str],
    channels: Sequence[SourceChannel],
    platforms: Sequence[str],
    client: HttpClient,
) -> Iterable[ChannelPackage]:
    """The packages of the foundation and of further channels that a rebuild of the stacks needs.

    From a registry foundation in a local channel, all of them; from any other channel, those that the environments of
    the stacks' builds resolve to on this machine. Raises as plan_request and read_index do.
    """
    own = channels[0]
    local = local_path(own.address)
    foundation_packages: list[ChannelPackage] = []
    if local is not None and open_channel(local).foundation.is_made_here:
        foundation_packages = list(_whole_foundation(own, local, platforms))
        channels = channels[1:]
        if not channels:
            return foundation_packages
    names = {}
    for stack in stacks:
        for package in plan_request(settings, replace(variant, stack=stack)).packages:
            for key, value in package.inputs.items():
                if key.startswith(_INPUT):
                    version, build, sha256 = value.split()
                    names[sha256] = f"{key.rpartition('/')[2]}-{version}-{build}"
    return [*foundation_packages, *_find(names, channels, platforms, client)]


def _whole_foundation(own: SourceChannel, local: Path, platforms: Sequence[str]) -> Iterable[ChannelPackage]:
    for key, file in indexed_files(open_channel(local), [NOARCH, *platforms]).items():
        if file.ref.foundation and file.hidden is None:
            yield (
                own.plain_address,
                key.ref(file.ref.sha256, file.ref.size_bytes),
            )  # in the form of locks, so that a package is included once


def _find(
    names: Mapping[str, str], channels: Sequence[SourceChannel], platforms: Sequence[str], client: HttpClient
) -> Iterable[ChannelPackage]:
    """The packages with the hashes in ``names`` (hash to file name without suffix), in any of the channels."""
    file_names = {stem + suffix for stem in names.values() for suffix in (PACKAGE_SUFFIX, OLD_SUFFIX)}
    for channel in channels:
        for subdir in (NOARCH, *platforms):
            for file_name, record in read_index(channel.address, subdir, file_names, client).records.items():
                sha256, size_bytes = record.get("sha256"), record.get("size")
                if isinstance(sha256, str) and sha256 in names and isinstance(size_bytes, int):
                    yield channel.plain_address, PackageKey(subdir, file_name).ref(sha256, size_bytes)


def in_words(plan: BundlePlan) -> str:
    """The planned content of a bundle, in one line."""
    present = len(plan.packages) - len(plan.new_packages)
    already = f"; the importing site has {counted(present, 'package')} already" if present else ""
    files = len(plan.new_packages) + len(plan.new_extras) + len(plan.small)
    packages = counted(len(plan.new_packages), "package")
    return f"{packages}, {counted(files, 'file')}, {plan.size_bytes / _MEGA:.1f} MB{already}"


def source_channels(addresses: Iterable[str]) -> list[SourceChannel]:
    """The channels, with names for their folders; the first is ours.

    Raises UsageError for one without a name, and for one that only rattler reads.
    """
    named: dict[str, SourceChannel] = {}
    for number, address in enumerate(dict.fromkeys(channel_address(address) for address in addresses)):
        shown = without_credentials(address)
        name = re.sub(r"[^A-Za-z0-9_.-]+", "-", quote(channel_name(address))).strip(".-")
        if not name:
            raise UsageError(
                f"{shown}: the address does not end in a channel's name", hint="give the full address of a channel"
            )
        while name in named:
            name += "-2"
        if not is_web(address) and local_path(address) is None:
            message = f"{shown}: channels are mirrored from folders, http:// and https:// addresses only"
            raise UsageError(message, hint="mirror the channel that it was published from, or the bucket over https")
        named[name] = SourceChannel(
            name=name, address=address, own=number == 0, base=_recorded_base(address) if number == 0 else None
        )
    return list(named.values())


def _recorded_base(address: str) -> BaseName | None:
    """The Debian release that a channel in a folder records of its foundation."""
    folder = local_path(address)
    if folder is None or not (folder / CHANNEL_RECORD).is_file():
        return None
    foundation = open_channel(folder).foundation
    return foundation.release if foundation.is_made_here else None
