# SPDX-License-Identifier: BSD-3-Clause
"""Locks made from local channels, written for the address where the packages are published.

That a package of the published channel is the one that was locked is seen in its index, by sha256; nothing is
downloaded.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import rattler
from rattler.exceptions import FetchRepoDataError, GatewayError

from channel_tools.addresses import channel_address, local_path, without_credentials
from channel_tools.clients import make_client
from channel_tools.errors import ChannelError, UsageError
from channel_tools.solving import gateway_error, make_gateway

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from channel_tools.pins.model import Lock, LockedPackage

_LISTED_AT_MOST = 3


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

    def moved(package: LockedPackage) -> LockedPackage:
        channel = plain.get(package.channel)
        if channel is None:
            return package
        return replace(package, channel=channel, url=channel + package.url.removeprefix(package.channel))

    return replace(
        lock,
        channels=tuple(dict.fromkeys(plain.get(channel, channel) for channel in lock.channels)),
        platforms=tuple(
            replace(platform, packages=tuple(moved(package) for package in platform.packages))
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
    subdirs = [*sorted({platform for platform, _ in packages}), "noarch"]
    try:
        groups = await gateway.query(
            [address],
            [rattler.Subdir(subdir) for subdir in subdirs],
            sorted({package.name for _, package in packages}),
            recursive=False,
            channel_relations="disabled",
        )
    except (GatewayError, FetchRepoDataError) as err:
        error = gateway_error(err, channels=[address])
        error.hint = f"{error.hint}; --offline leaves this check out"
        raise error from err
    listed = {(record.subdir, record.file_name): record for group in groups for record in group}
    missing = sorted({p.file_name for _, p in packages if (p.subdir, p.file_name) not in listed})
    if missing:
        shown = ", ".join(missing[:_LISTED_AT_MOST]) + (", ..." if len(missing) > _LISTED_AT_MOST else "")
        message = f"{address}: its index does not list {len(missing)} of the locked packages: {shown}"
        hint = (
            "publish them there first (channel_tools publish); what was yanked there leaves the lock with --update; "
            "--offline leaves this check out"
        )
        raise ChannelError(message, hint=hint)
    for _, package in packages:
        sha256 = listed[package.subdir, package.file_name].sha256
        if sha256 is None or sha256.hex() != package.sha256:
            found = "no sha256" if sha256 is None else f"sha256 {sha256.hex()}"
            message = f"{address}: its index says {found} for {package.file_name}; locked is {package.sha256}"
            raise ChannelError(message, hint="the channel has other bytes under this name: lock from that channel")
