# SPDX-License-Identifier: BSD-3-Clause
"""Further channels, from which build and host requirements may come besides: which they are, and what builds see.

They stand below the local channel, with which the registry foundation is linked, and above a foundation at an address.
Locks know each by the last part of its address (channel_name), so a mirror of it gives the same plan.

The foundation, or a further channel, as one build sees it: the locked packages of its environments alone.

It has an index in a folder, whose ``base_url`` (CEP 15) is where the foundation has the packages, so the engine solves
for exactly what was planned and downloads from the foundation.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

from rattler import Gateway
from rattler.exceptions import FetchRepoDataError, GatewayError

from channel_tools.conda.addresses import (
    channel_address,
    channel_name,
    has_credentials,
    is_channel_name,
    local_path,
    with_credentials_of,
    without_credentials,
)
from channel_tools.conda.answers import while_answered
from channel_tools.conda.package import NOARCH
from channel_tools.conda.platforms import SUPPORTED_PLATFORMS, current_platform
from channel_tools.conda.repodata import REPODATA, encode_json
from channel_tools.plan.lock import split_key
from channel_tools.system.errors import FoundationError, NetworkError, UsageError
from channel_tools.system.files import write_bytes_atomically

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from rattler import Channel, RepoDataRecord

    from channel_tools.channel import Foundation
    from channel_tools.conda.package import PackageKey
    from channel_tools.plan import Plan
    from channel_tools.plan.foundation import FoundationIndex
    from channel_tools.plan.lock import FoundationLock

_SHOWN = 10


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


async def find_locked(
    foundation: FoundationIndex, lock: FoundationLock, keys: Collection[str], platform: str
) -> dict[str, str]:
    """Where the channels have these locked packages now: the folder of each subdir, as an address with a final slash.

    A subdir of a further channel is named by ``NAME/subdir``. Raises FoundationError that names the packages that it no
    longer has with the same bytes, NetworkError if its index cannot be read.
    """
    records = await find_records(foundation, {str(lock.records[key]["name"]) for key in keys}, platform)
    problems = []
    for key in sorted(keys):
        sha256 = records[key].sha256 if key in records else None
        if key not in records:
            problems.append(f"{key} is no longer there")
        elif sha256 is not None and sha256.hex() != lock.records[key]["sha256"]:
            problems.append(
                f"{key} has other bytes: sha256 {sha256.hex()[:12]} instead of {lock.records[key]['sha256'][:12]}"
            )
    if problems:
        names = sorted({str(lock.records[line.split(" ")[0]]["name"]) for line in problems})
        more = [f"and {len(problems) - _SHOWN} more"] if len(problems) > _SHOWN else []
        lines = "\n".join([*problems[:_SHOWN], *more])
        message = f"{foundation.label} no longer has what the foundation lock names:\n{lines}"
        hint = (
            f"move the lock, which rebuilds what was made with them: channel_tools foundation update {' '.join(names)}"
        )
        raise FoundationError(
            message, hint=f"{hint}; or build from a mirror that still has them (--foundation-channel)"
        )
    return {key.rpartition("/")[0]: records[key].url.removesuffix(records[key].file_name) for key in keys}


async def find_records(foundation: FoundationIndex, names: Collection[str], platform: str) -> dict[str, RepoDataRecord]:
    """All records of these names that the foundation and further channels have now, by their keys in a lock.

    Raises NetworkError if its index cannot be read.
    """
    try:
        gateway = Gateway(cache_dir=foundation.cache, client=foundation.client)
        sources = cast("list[Channel]", list(foundation.all_sources))
        platforms = [platform, NOARCH]
        query = gateway.query(sources, platforms, sorted(names), recursive=False)  # type: ignore[arg-type]
        groups = await while_answered(query, foundation.asked)
    except (GatewayError, FetchRepoDataError, OSError) as err:
        message = f"the index of {foundation.label} cannot be read: {' '.join(str(err).split())}"
        raise NetworkError(message, hint="check the address and the network, then run it again") from None
    return {foundation.key_of(record): record for group in groups for record in group}


def write_view(
    folder: Path,
    lock: FoundationLock,
    keys: Collection[str],
    *,
    places: Mapping[str, str],
    address: str,
    platform: str,
    further: str = "",
) -> Path:
    """Write the channel with these packages to ``folder`` and return it; ``places`` are those of find_locked.

    Of the keys, those of the further channel of that name count, or without a name those of the foundation. ``address``
    is the channel's as it was given: credentials in it are needed for what is below it.
    """
    plain = without_credentials(address).rstrip("/")
    for subdir in (platform, NOARCH):
        prefix = f"{further}/{subdir}" if further else subdir
        records = {
            key.removeprefix(f"{prefix}/"): lock.records[key] for key in sorted(keys) if key.startswith(f"{prefix}/")
        }
        base = with_credentials_of(address, places.get(prefix, f"{plain}/{subdir}/"))
        old = {name: record for name, record in records.items() if not name.endswith(".conda")}
        index = {
            "info": {"subdir": subdir, "base_url": base},
            "packages": old,
            "packages.conda": {name: record for name, record in records.items() if name not in old},
            "repodata_version": 2,
        }
        (folder / subdir).mkdir(parents=True, exist_ok=True)
        # each run writes it again
        write_bytes_atomically(folder / subdir / REPODATA, encode_json(index), durable=False)
    return folder
