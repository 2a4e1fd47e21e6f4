# SPDX-License-Identifier: BSD-3-Clause
"""Further channels, from which build and host requirements may come besides: which they are, and what builds see.

They stand below the local channel, with which the registry foundation is linked, and above a foundation at an address.
Locks know each by the last part of its address (channel_name), so a mirror of it gives the same plan.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from channel_tools.conda.addresses import (
    channel_address,
    channel_name,
    has_credentials,
    is_channel_name,
    local_path,
    without_credentials,
)
from channel_tools.conda.package import NOARCH
from channel_tools.conda.platforms import SUPPORTED_PLATFORMS, current_platform
from channel_tools.plan.lock import split_key
from channel_tools.plan.view import find_locked, write_view
from channel_tools.system.errors import NetworkError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from channel_tools.channel import Foundation
    from channel_tools.conda.package import PackageKey
    from channel_tools.plan import FoundationIndex, Plan


def further_channels(addresses: Sequence[str], *, own: Path, foundation: Foundation) -> tuple[str, ...]:
    """The addresses of further channels, given as addresses or folders; the foundation's own is left out.

    Raises UsageError for the local channel in ``own``, for an address with credentials, since it is recorded, and for
    one whose last part cannot name the channel in locks, or names another one, too.
    """
    named: dict[str, str] = {}
    for address in dict.fromkeys(map(channel_address, addresses)):
        shown, name = without_credentials(address), channel_name(address)
        if has_credentials(address):
            message = f"-c {shown}: given with credentials, and the address is recorded in the channel and its packages"
            raise UsageError(message, hint="store them: in ~/.netrc, or by rattler auth login")
        if address == channel_address(str(own.absolute())):
            raise UsageError(f"-c {shown}: is the local channel itself", hint="leave it out: it always comes first")
        if not is_channel_name(name) or name == NOARCH or name in SUPPORTED_PLATFORMS:
            message = f"-c {shown}: locks would know it as {name!r}, by the last part of its address"
            raise UsageError(message, hint="give an address or a folder that ends in a channel's name, such as lab")
        if name in named:
            message = f"-c {shown} and -c {without_credentials(named[name])}: locks would know both as {name!r}"
            raise UsageError(message, hint="give one of them at an address or folder with another last part")
        if address != foundation.address:
            named[name] = address
    return tuple(named.values())


def further_names(foundation: Foundation) -> tuple[str, ...]:
    """The names by which locks know a foundation's further channels, in order of priority."""
    return tuple(map(channel_name, foundation.further))


async def write_views(
    index: FoundationIndex, foundation: Foundation, plan: Plan, rendered: Path
) -> dict[PackageKey, tuple[Path, ...]]:
    """The channels at ``foundation.addresses`` as each build sees them, in that order, beside the rendered recipes.

    None without a lock. Raises FoundationError for locked packages that a channel no longer has, NetworkError if it
    cannot be read.
    """
    if plan.lock is None or not plan.to_build:
        return {}
    platform, names = current_platform(), [*further_names(foundation), ""]
    keys = {key for package in plan.to_build for key in package.foundation if key in plan.lock.records}
    used = {split_key(key)[0] for key in keys}
    index = replace(index, further=tuple(channel for channel in index.further if channel.name in used))
    places = await find_locked(index, plan.lock, keys, platform) if keys else {}
    folder = rendered.with_name(f"{rendered.name}-foundation").absolute()
    return {
        package.key: tuple(
            write_view(
                folder / package.folder_name / (f"further/{name}" if name else "foundation"),
                plan.lock,
                package.foundation,
                places=places,
                address=address,
                platform=platform,
                further=name,
            )
            for name, address in zip(names, foundation.addresses, strict=False)  # a foundation at an address comes last
        )
        for package in plan.to_build
    }


def require_here(foundation: Foundation, plan: Plan) -> None:
    """Raise NetworkError for packages of further channels that are not folders, if the plan's builds need any."""
    remote = {channel_name(address): address for address in foundation.further if local_path(address) is None}
    lines = []
    for key in sorted({key for package in plan.to_build for key in package.foundation}):
        channel, subdir, name = split_key(key)
        if channel in remote:
            record = {} if plan.lock is None else plan.lock.records.get(key, {})
            lines.append(f"{without_credentials(remote[channel])}/{subdir}/{name} {record.get('sha256', '')}".rstrip())
    if lines:
        message = "the builds need packages of further channels, which need the network:\n" + "\n".join(lines)
        hint = (
            "bring them in a bundle (channel_tools mirror create NAME=VERSION -c CHANNEL), or copy them into a folder "
            "of the channel's name and index it (channel_tools channel index); then give it: -c FOLDER/NAME"
        )
        raise NetworkError(message, hint=hint)
