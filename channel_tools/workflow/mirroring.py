# SPDX-License-Identifier: BSD-3-Clause
"""From stacks to a signed bundle: lock, plan, say how much, fetch, sign."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from channel_tools.addresses import channel_address, without_credentials
from channel_tools.errors import UsageError
from channel_tools.matrix import find_stack, load_tree
from channel_tools.mirror.contents import BundleRequest, check_destination, index_files, unfinished_folder
from channel_tools.mirror.credentials import Credentials
from channel_tools.mirror.fetch import FetchOptions
from channel_tools.mirror.http import HttpReader
from channel_tools.mirror.plan import SourceChannel, locked_packages, plan_packages
from channel_tools.mirror.ratelimit import RateLimit
from channel_tools.pins import assumed_virtual_packages, solve_lock
from channel_tools.pins.read import read_lock
from channel_tools.workflow.mirror_conda import pip_for_conda
from channel_tools.workflow.platforms import current_platform

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from channel_tools.mirror.model import Received
    from channel_tools.pins import Lock
    from channel_tools.progress import Progress
    from channel_tools.settings import Settings
    from channel_tools.workflow.mirror_extras import Extras

_MEGA = 1e6


@dataclass(frozen=True, kw_only=True, slots=True)
class MirrorRequest:
    """What is to be mirrored: stacks (none: the default one) for platforms (none: this machine's), from channels.

    ``channels`` are addresses or folders in order of priority, ours first (none: the local channel and its
    foundation). ``virtual_packages`` are assumed as ``[PLATFORM:]NAME=VERSION``. ``with_sources`` brings what a rebuild
    needs, ``tool_pythons`` this program for these Pythons (none: without it). With ``locks`` these files say what
    is mirrored, and nothing is solved.
    """

    stacks: tuple[str, ...] = ()
    platforms: tuple[str, ...] = ()
    channels: tuple[str, ...] = ()
    virtual_packages: tuple[str, ...] = ()
    locks: tuple[Path, ...] = ()
    with_sources: bool = False
    tool_pythons: tuple[str, ...] = ()


def make_reader(environ: Mapping[str, str]) -> HttpReader:
    """What reads channels over HTTP, with the credentials that users keep for them."""
    return HttpReader(credentials=Credentials(environ))


def make_fetching(*, jobs: int, bytes_per_s: int | None, environ: Mapping[str, str]) -> FetchOptions:
    """How to fetch."""
    reader = make_reader(environ)
    return FetchOptions(reader=reader, jobs=jobs, limit=None if bytes_per_s is None else RateLimit(bytes_per_s))


def lock_stacks(settings: Settings, request: MirrorRequest) -> list[Lock]:
    """The locks of the request: those given, else one for every stack, solved now.

    Raises as read_lock and solve_lock, UsageError for a stack that there is not.
    """
    if request.locks:
        return [_named(read_lock(path), path) for path in request.locks]
    loaded = load_tree(settings.tree)
    platforms = request.platforms or (current_platform(),)
    virtual = assumed_virtual_packages(platforms, request.virtual_packages)
    stacks = [find_stack(loaded, name) for name in request.stacks or (None,)]
    return [
        solve_lock(
            stack.name,
            stack.install,
            _addresses(settings, request),
            platforms,
            virtual_packages=virtual,
            package_cache=settings.package_cache,
        )
        for stack in stacks
    ]


def _named(lock: Lock, path: Path) -> Lock:
    """Formats that do not say which stack it is are named after their file."""
    return lock if lock.stack else replace(lock, stack=re.sub(r"[^a-z0-9_.-]+", "-", path.stem.lower()).strip(".-"))


def plan_bundle(
    settings: Settings,
    request: MirrorRequest,
    locks: Sequence[Lock],
    *,
    fetching: FetchOptions,
    extras: Sequence[Extras] = (),
    since: Received | None = None,
) -> BundleRequest:
    """Everything that goes into the bundle, with sizes; no package is fetched.

    Raises as plan_packages and pip_for_conda.
    """
    channels = source_channels(_addresses(settings, request))
    platforms = platforms_of(locks)
    for_conda = pip_for_conda(locks, [channel.address for channel in channels], package_cache=settings.package_cache)
    needed = sorted({*locked_packages(locks), *for_conda})
    if request.with_sources:
        from channel_tools.workflow.mirror_extras import build_packages  # noqa: PLC0415 - imports planning

        stacks = [lock.stack for lock in locks]
        needed = sorted({*needed, *build_packages(settings, stacks, channels, platforms, fetching.reader)})
    packages = plan_packages(needed, channels, platforms=platforms, reader=fetching.reader, since=since)
    small = index_files(locks, packages, complete=since is None, now=datetime.now(UTC))
    return BundleRequest(
        locks=locks,
        packages=packages,
        small={**small, **{path: content for extra in extras for path, content in extra.small}},
        extras=[file for extra in extras for file in extra.files],
        tool=next((extra.tool for extra in extras if extra.tool is not None), None),
        with_sources=request.with_sources,
        since=since,
    )


def gather_extras(
    settings: Settings,
    request: MirrorRequest,
    locks: Sequence[Lock],
    destination: Path,
    *,
    jobs: int,
    progress: Progress,
) -> list[Extras]:
    """What the request wants beside packages, made or fetched. Raises as tool_extras and source_extras."""
    from channel_tools.workflow.mirror_extras import source_extras, tool_extras  # noqa: PLC0415 - imports planning

    check_destination(destination)
    found = []
    if request.tool_pythons:
        found.append(tool_extras(settings, request.tool_pythons, platforms_of(locks), progress))
    if request.with_sources:
        stacks = [lock.stack for lock in locks]
        folder = unfinished_folder(destination)
        found.append(source_extras(settings, stacks, folder, jobs=jobs, progress=progress))
    return found


def platforms_of(locks: Sequence[Lock]) -> list[str]:
    """The platforms that are mirrored, in order."""
    return sorted({platform.platform for lock in locks for platform in lock.platforms})


def in_words(bundle: BundleRequest) -> str:
    """What a bundle will hold, in one line."""
    omitted = len(bundle.packages.omitted)
    known = f"; {omitted} packages are on the far side already" if omitted else ""
    files = len(bundle.wanted) + len(bundle.brought) + len(bundle.small)
    return f"{len(bundle.wanted)} packages, {files} files, {bundle.size_bytes / _MEGA:.1f} MB{known}"


def source_channels(addresses: Sequence[str]) -> list[SourceChannel]:
    """The channels with names for their folders, the first one ours. Raises UsageError for one without a name."""
    named: dict[str, SourceChannel] = {}
    for number, address in enumerate(dict.fromkeys(channel_address(address) for address in addresses)):
        name = re.sub(r"[^A-Za-z0-9_.-]+", "-", without_credentials(address).rstrip("/").rpartition("/")[2]).strip(".-")
        if not name:
            raise UsageError(
                f"{without_credentials(address)}: the address ends in no name", hint="name a channel in it"
            )
        while name in named:
            name += "-2"
        named[name] = SourceChannel(name=name, address=address, own=number == 0)
    return list(named.values())


def _addresses(settings: Settings, request: MirrorRequest) -> tuple[str, ...]:
    """The channels of the request, else those that stacks are installed from."""
    if request.channels:
        return request.channels
    from channel_tools.workflow.installing import InstallRequest, install_channels  # noqa: PLC0415 - imports validate

    return install_channels(settings, InstallRequest())
