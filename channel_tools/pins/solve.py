# SPDX-License-Identifier: BSD-3-Clause
"""From specs to a lock, one solve per platform, and from local channels to where they are published.

The earlier lock is handed to the solver as a preference and never as a source: a package is kept only while a channel
still lists it with the same bytes, so what was yanked or deleted leaves a lock as soon as that is solved again. That a
package of a published channel is the one that was locked is seen in its index, by sha256; nothing is downloaded.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import rattler
from rattler.exceptions import FetchRepoDataError, GatewayError, ParseSubdirError

from channel_tools.conda.addresses import channel_address, local_path, without_credentials
from channel_tools.conda.clients import make_client
from channel_tools.conda.package import PackageKey
from channel_tools.conda.solving import gateway_error, make_gateway, shown_channels, solve_specs
from channel_tools.pins.lock import Lock, LockedPackage, PlatformLock, in_installation_order, locked_package
from channel_tools.pins.virtual import to_generic
from channel_tools.system.errors import ChannelError, ChannelToolsError, SolveError, UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from channel_tools.pins.lock import LockedPackage

_LISTED_AT_MOST = 3


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
    groups = await _query(gateway, channels, [platform], [package.name for package in kept])
    wanted = {(package.file_name, package.sha256) for package in kept}
    found = {
        (record.file_name, record.sha256.hex()): record
        for group in reversed(groups)
        for record in group
        if record.sha256 is not None
    }
    return [record for key, record in sorted(found.items()) if key in wanted]


async def _query(
    gateway: rattler.Gateway, channels: Sequence[str], platforms: Sequence[str], names: Sequence[str]
) -> list[list[rattler.RepoDataRecord]]:
    """What each channel lists under these names, for the platforms and for noarch."""
    subdirs = [rattler.Subdir(subdir) for subdir in (*platforms, "noarch")]
    try:
        return await gateway.query(list(channels), subdirs, names, recursive=False, channel_relations="disabled")
    except (GatewayError, FetchRepoDataError) as err:
        raise gateway_error(err, channels=channels) from err


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
            raise UsageError(f"{platform!r} is not a platform", hint="write it as conda does: linux-64, linux-aarch64")


def published_addresses(channels: Sequence[str], published: Sequence[str]) -> dict[str, str]:
    """For the local channels, in order, where they are published (credentials included, for reading there).

    Raises UsageError when more addresses than local channels are given.
    """
    local = [channel for channel in channels if local_path(channel) is not None]
    if len(published) > len(local):
        message = f"{len(published)} published addresses, but {len(local)} of the channels are local"
        raise UsageError(message, hint="give --published once for each local channel, in their order")
    return dict(zip(local, map(channel_address, published), strict=False))


def with_addresses(lock: Lock, addresses: Mapping[str, str]) -> Lock:
    """The lock with channels replaced; the new addresses are written without credentials."""
    plain = {channel: without_credentials(address) for channel, address in addresses.items()}
    return replace(
        lock,
        channels=tuple(dict.fromkeys(plain.get(channel, channel) for channel in lock.channels)),
        platforms=tuple(
            replace(platform, packages=tuple(package.moved(plain) for package in platform.packages))
            for platform in lock.platforms
        ),
    )


def check_published(lock: Lock, addresses: Sequence[str], *, package_cache: Path) -> None:
    """Compare the packages of ``lock`` that come from ``addresses`` (credentials allowed) with the indexes there.

    Raises ChannelError when a package is not listed or has other bytes there, NetworkError when it cannot be asked.
    """
    for address in addresses:
        (plain,), client = make_client([address])
        packages = [
            (platform.platform, package)
            for platform in lock.platforms
            for package in platform.packages
            if package.channel == plain
        ]
        if packages:
            asyncio.run(_check_channel(plain, packages, make_gateway(package_cache, client, fresh=True)))


async def _check_channel(address: str, packages: Sequence[tuple[str, LockedPackage]], gateway: rattler.Gateway) -> None:
    platforms, names = sorted({platform for platform, _ in packages}), sorted({package.name for _, package in packages})
    try:
        groups = await _query(gateway, [address], platforms, names)
    except ChannelToolsError as err:
        err.hint = f"{err.hint}; --offline leaves this check out"
        raise
    listed = {PackageKey(record.subdir, record.file_name): record for group in groups for record in group}
    missing = sorted({package.file_name for _, package in packages if package.ref.key not in listed})
    if missing:
        shown = ", ".join(missing[:_LISTED_AT_MOST]) + (", ..." if len(missing) > _LISTED_AT_MOST else "")
        message = f"{address}: its index does not list {len(missing)} of the locked packages: {shown}"
        hint = (
            "publish them there first (channel_tools publish); what was yanked there leaves the lock with --update; "
            "--offline leaves this check out"
        )
        raise ChannelError(message, hint=hint)
    for _, package in packages:
        sha256 = listed[package.ref.key].sha256
        if sha256 is None or sha256.hex() != package.sha256:
            found = "no sha256" if sha256 is None else f"sha256 {sha256.hex()}"
            message = f"{address}: its index says {found} for {package.file_name}; locked is {package.sha256}"
            raise ChannelError(message, hint="the channel has other bytes under this name: lock from that channel")
