# SPDX-License-Identifier: BSD-3-Clause
"""From specs to a lock, one solve per platform.

The earlier lock is handed to the solver as a preference and never as a source: a package is kept only while a channel
still lists it with the same bytes, so what was yanked or deleted leaves a lock as soon as that is solved again.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import rattler
from rattler.exceptions import FetchRepoDataError, GatewayError, ParseSubdirError

from channel_tools.addresses import channel_address
from channel_tools.clients import make_client
from channel_tools.errors import ChannelError, SolveError, UsageError
from channel_tools.pins.model import Lock, LockedPackage, PlatformLock
from channel_tools.pins.records import in_installation_order, locked_package
from channel_tools.pins.virtual import to_generic
from channel_tools.solving import gateway_error, make_gateway, shown_channels, solve_specs

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path


def solve_lock(
    stack: str,
    specs: Sequence[str],
    channels: Sequence[str],
    platforms: Sequence[str],
    *,
    virtual_packages: Mapping[str, Sequence[str]],
    package_cache: Path,
    previous: Lock | None = None,
    update: Collection[str] = (),
) -> Lock:
    """Solve ``specs`` from ``channels`` alone (addresses or folders, in order of priority) for every platform.

    ``virtual_packages`` are those assumed, by platform, as ``name=version=build``. With a ``previous`` lock its
    packages stay wherever that is possible, apart from those named in ``update``. Channel addresses may carry
    credentials: they are used and not written. Raises UsageError (no platform; ``update`` names what is nowhere in
    ``previous``), SolveError, NetworkError, ChannelError (no such channel, or nothing in it for a platform) and
    IntegrityError (a package without a sha256 in its channel's index).
    """
    addresses, client = make_client(list(dict.fromkeys(channel_address(channel) for channel in channels)))
    _check_update(previous, update)
    _check_platforms(platforms)
    gateway = make_gateway(package_cache, client)

    async def solve_all() -> list[PlatformLock]:
        return [
            PlatformLock(
                platform=platform,
                virtual_packages=tuple(sorted(virtual_packages[platform])),
                packages=await _solve_platform(
                    specs,
                    addresses,
                    platform,
                    gateway=gateway,
                    virtual=to_generic(virtual_packages[platform]),
                    kept=_kept(previous, platform, update),
                ),
            )
            for platform in sorted(set(platforms))
        ]

    return Lock(
        stack=stack,
        specs=tuple(specs),
        channels=addresses,
        platforms=tuple(asyncio.run(solve_all())),
    )


async def _solve_platform(
    specs: Sequence[str],
    channels: Sequence[str],
    platform: str,
    *,
    gateway: rattler.Gateway,
    virtual: Sequence[rattler.GenericVirtualPackage],
    kept: Sequence[LockedPackage],
) -> tuple[LockedPackage, ...]:
    preferred = await _records_of(kept, channels, platform, gateway)
    try:
        records = await solve_specs(
            specs, channels, subdir=platform, gateway=gateway, virtual_packages=virtual, preferred=preferred
        )
    except SolveError as err:
        raise await _with_platform(err, channels, platform, gateway) from err
    return tuple(locked_package(record) for record in in_installation_order(records))


async def _records_of(
    kept: Sequence[LockedPackage], channels: Sequence[str], platform: str, gateway: rattler.Gateway
) -> list[rattler.RepoDataRecord]:
    """The channels' own records of locked packages; those that no channel lists with these bytes are left out."""
    if not kept:
        return []
    try:
        groups = await gateway.query(
            list(channels),
            [rattler.Subdir(platform), rattler.Subdir("noarch")],
            [package.name for package in kept],
            recursive=False,
            channel_relations="disabled",
        )
    except (GatewayError, FetchRepoDataError) as err:
        raise gateway_error(err, channels=channels) from err
    wanted = {(package.file_name, package.sha256) for package in kept}
    found = {
        (record.file_name, record.sha256.hex()): record
        for group in reversed(groups)
        for record in group
        if record.sha256 is not None
    }
    return [record for key, record in sorted(found.items()) if key in wanted]


async def _with_platform(
    err: SolveError, channels: Sequence[str], platform: str, gateway: rattler.Gateway
) -> SolveError | ChannelError:
    """The error with its platform; where no channel has anything for the platform, that is the reason."""
    names = await gateway.names(list(channels), [rattler.Subdir(platform)], channel_relations="disabled")
    if names:
        return SolveError(f"{platform}: {err.message}", hint=err.hint)
    message = f"{shown_channels(channels)}: no packages for {platform}"
    hint = f"build on a {platform} machine and publish there, or lock without --platform {platform}"
    return ChannelError(message, hint=hint)


def _kept(previous: Lock | None, platform: str, update: Collection[str]) -> list[LockedPackage]:
    locks = previous.platforms if previous else ()
    return [
        package
        for lock in locks
        if lock.platform == platform
        for package in lock.packages
        if package.name not in update
    ]


def _check_update(previous: Lock | None, update: Collection[str]) -> None:
    locks = previous.platforms if previous else ()
    known = {package.name for lock in locks for package in lock.packages}
    unknown = sorted(set(update) - known)
    if unknown:
        message = f"{', '.join(unknown)}: not in the earlier lock, so there is nothing to update"
        raise UsageError(message, hint="name packages of the lock, or none to update all")


def _check_platforms(platforms: Sequence[str]) -> None:
    for platform in platforms:
        try:
            known = str(rattler.Subdir(platform)) != "noarch"
        except ParseSubdirError:
            known = False
        if not known:
            raise UsageError(f"{platform!r} is no platform", hint="write it as conda does: linux-64, linux-aarch64")
