# SPDX-License-Identifier: BSD-3-Clause
"""Solves specs to a lock, one solve per platform, and replaces local channels by their published addresses.

The earlier lock is passed to the solver as a preference, not as a source: a package is kept only while a channel still
lists it with the same bytes, so yanked or deleted packages leave the lock when it is solved again. Whether a published
channel has the locked packages is checked by the sha256 in its index; nothing is downloaded.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import rattler
from rattler.exceptions import FetchRepoDataError, GatewayError, ParseSubdirError

from channel_tools.conda.addressed import addressed_packages
from channel_tools.conda.addresses import channel_address, local_path, without_credentials
from channel_tools.conda.answers import index_addresses, while_answered
from channel_tools.conda.clients import make_client
from channel_tools.conda.package import NOARCH, PackageKey
from channel_tools.conda.solving import (
    check_local_indexes,
    gateway_error,
    make_gateway,
    parse_spec,
    shown_channels,
    solve_specs,
)
from channel_tools.pins.lock import Lock, LockedPackage, PlatformLock, in_installation_order, locked_package
from channel_tools.pins.virtual import to_generic
from channel_tools.system.errors import ChannelError, ChannelToolsError, NoPackagesError, SolveError, UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from channel_tools.conda.solving import AddressedPackages
    from channel_tools.pins.lock import LockedPackage

_LISTED_AT_MOST = 3


async def solve_lock(
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
    """Solve ``specs`` only from ``channels`` (addresses or folders, in order of priority) for every platform.

    ``virtual_packages`` are the assumed ones, by platform, as ``name=version=build``. The packages of a ``previous``
    lock are kept if possible, except those named in ``update``. Channel addresses may have credentials, which are used
    but not written. Raises UsageError (no platform; ``update`` names packages that are not in ``previous``),
    SolveError, NetworkError, ChannelError (no such channel), NoPackagesError (nothing in it for a platform) and
    IntegrityError (a package without a sha256 in its channel's index).
    """
    addresses, client = make_client(list(dict.fromkeys(channel_address(channel) for channel in channels)))
    locks = previous.platforms if previous else ()
    known = {package.name for lock in locks for package in lock.packages}
    unknown = sorted(set(update) - known)
    if unknown:
        message = f"{', '.join(unknown)}: not in the earlier lock, so there is nothing to update"
        raise UsageError(message, hint="name packages of the lock, or none to update all")
    _check_platforms(platforms)
    gateway = make_gateway(package_cache, client)

    async def solve_all(addressed: AddressedPackages) -> list[PlatformLock]:
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
                    preferred_packages=_packages_to_keep(previous, platform, update),
                    addressed=addressed,
                ),
            )
            for platform in sorted(set(platforms))
        ]

    with addressed_packages(specs, package_cache) as addressed:
        return Lock(
            stack=stack,
            specs=tuple(specs),
            channels=addresses,
            platforms=tuple(await solve_all(addressed)),
        )


async def _solve_platform(
    specs: Sequence[str],
    channels: Sequence[str],
    platform: str,
    *,
    gateway: rattler.Gateway,
    virtual: Sequence[rattler.GenericVirtualPackage],
    preferred_packages: Sequence[LockedPackage],
    addressed: AddressedPackages,
) -> tuple[LockedPackage, ...]:
    preferred = await _records_of(preferred_packages, channels, platform, gateway)
    try:
        records = await solve_specs(
            specs,
            channels,
            subdir=platform,
            gateway=gateway,
            virtual_packages=virtual,
            preferred=preferred,
            addressed=addressed,
        )
    except SolveError as err:
        raise await _with_platform(err, specs, channels, platform, gateway) from err
    return tuple(locked_package(record) for record in in_installation_order(records))


async def _records_of(
    packages: Sequence[LockedPackage], channels: Sequence[str], platform: str, gateway: rattler.Gateway
) -> list[rattler.RepoDataRecord]:
    """The channels' own records of locked packages; those that no channel lists with these bytes are left out."""
    if not packages:
        return []
    groups = await query_records(gateway, channels, [platform], [package.name for package in packages])
    identities = {(package.file_name, package.sha256) for package in packages}
    records = {
        (record.file_name, record.sha256.hex()): record
        for group in reversed(groups)
        for record in group
        if record.sha256 is not None
    }
    return [record for key, record in sorted(records.items()) if key in identities]


async def query_records(
    gateway: rattler.Gateway, channels: Sequence[str], platforms: Sequence[str], names: Sequence[str]
) -> list[list[rattler.RepoDataRecord]]:
    """The records of these names in each channel, for the platforms and for noarch."""
    check_local_indexes(channels, [*platforms, NOARCH])
    subdirs = [rattler.Subdir(subdir) for subdir in (*platforms, NOARCH)]
    try:
        query = gateway.query(list(channels), subdirs, names, recursive=False, channel_relations="disabled")
        return await while_answered(query, index_addresses(channels))
    except (GatewayError, FetchRepoDataError) as err:
        raise gateway_error(err, channels=channels) from err


async def _names_in(gateway: rattler.Gateway, channels: Sequence[str], subdir: str) -> set[str]:
    query = gateway.names(list(channels), [rattler.Subdir(subdir)], channel_relations="disabled")
    names = await while_answered(query, index_addresses(channels))
    return {name.normalized for name in names}


async def _with_platform(
    err: SolveError, specs: Sequence[str], channels: Sequence[str], platform: str, gateway: rattler.Gateway
) -> SolveError | NoPackagesError:
    """The error with its platform; if no channel has anything for the platform that was asked for, that is the reason.

    A channel may have only noarch packages; if all of ``specs`` are among these, the solver's reason is the right one.
    """
    own = await _names_in(gateway, channels, platform)
    noarch = await _names_in(gateway, channels, NOARCH)
    requested = {parse_spec(spec).name.normalized for spec in specs}
    if own or (noarch and noarch >= requested):
        return SolveError(f"{platform}: {err.message}", hint=err.hint)
    message = f"{shown_channels(channels)}: no packages for {platform}"
    hint = f"publish packages built for {platform} there, or lock without --platform {platform}"
    return NoPackagesError(message, hint=hint)


def _packages_to_keep(previous: Lock | None, platform: str, update: Collection[str]) -> list[LockedPackage]:
    locks = previous.platforms if previous else ()
    return [
        package
        for lock in locks
        if lock.platform == platform
        for package in lock.packages
        if package.name not in update
    ]


def _check_platforms(platforms: Sequence[str]) -> None:
    for platform in platforms:
        try:
            known = str(rattler.Subdir(platform)) != "noarch"
        except ParseSubdirError:
            known = False
        if not known:
            raise UsageError(f"{platform!r} is not a platform", hint="write it as conda does: linux-64, linux-aarch64")


def published_addresses(channels: Sequence[str], published: Sequence[str]) -> dict[str, str]:
    """The published addresses of the local channels, in order (with credentials, for reading them).

    Raises UsageError if there are more addresses than local channels.
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


async def check_published(lock: Lock, addresses: Sequence[str], *, package_cache: Path) -> Lock:
    """Compare the packages of ``lock`` that come from ``addresses`` (credentials allowed) with the indexes there.

    Returns the lock with each package's address as the index there has it, which need not be below the channel's
    (CEP 15).
    Raises ChannelError if a package is not listed or has other bytes there, NetworkError if it cannot be reached.
    """
    urls: dict[tuple[str, PackageKey], str] = {}
    for address in addresses:
        (plain,), client = make_client([address])
        packages = [
            (platform.platform, package)
            for platform in lock.platforms
            for package in platform.packages
            if package.channel == plain
        ]
        if packages:
            channel_urls = await _check_channel(plain, packages, make_gateway(package_cache, client, fresh=True))
            urls |= {(plain, key): url for key, url in channel_urls.items()}
    return replace(
        lock,
        platforms=tuple(
            replace(
                platform,
                packages=tuple(
                    replace(package, url=urls.get((package.channel, package.ref.key), package.url))
                    for package in platform.packages
                ),
            )
            for platform in lock.platforms
        ),
    )


async def _check_channel(
    address: str, packages: Sequence[tuple[str, LockedPackage]], gateway: rattler.Gateway
) -> dict[PackageKey, str]:
    """The addresses of the packages, without credentials. Raises as check_published."""
    platforms, names = sorted({platform for platform, _ in packages}), sorted({package.name for _, package in packages})
    try:
        groups = await query_records(gateway, [address], platforms, names)
    except ChannelToolsError as err:
        err.hint = f"{err.hint}; --offline skips this check"
        raise
    listed = {PackageKey(record.subdir, record.file_name): record for group in groups for record in group}
    missing = sorted({package.file_name for _, package in packages if package.ref.key not in listed})
    if missing:
        file_names = ", ".join(missing[:_LISTED_AT_MOST]) + (", ..." if len(missing) > _LISTED_AT_MOST else "")
        message = f"{address}: its index does not list {len(missing)} of the locked packages: {file_names}"
        hint = (
            "publish them there first (channel_tools publish); --update removes yanked packages from the lock; "
            "--offline skips this check"
        )
        raise ChannelError(message, hint=hint)
    for _, package in packages:
        sha256 = listed[package.ref.key].sha256
        if sha256 is None or sha256.hex() != package.sha256:
            indexed = "no sha256" if sha256 is None else f"sha256 {sha256.hex()}"
            message = f"{address}: its index says {indexed} for {package.file_name}; the lock has {package.sha256}"
            raise ChannelError(message, hint="the channel has other bytes under this name: lock from that channel")
    return {package.ref.key: without_credentials(listed[package.ref.key].url) for _, package in packages}
