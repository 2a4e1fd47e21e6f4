# SPDX-License-Identifier: BSD-3-Clause
"""The lock that a file of pins means: what it has, or for an environment.yml what its specs are solved to now."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from channel_tools.conda.addresses import channel_address
from channel_tools.conda.clients import make_http_client
from channel_tools.conda.index import read_index
from channel_tools.conda.platforms import current_platform
from channel_tools.pins.choice import LockChoice, refuse_options
from channel_tools.pins.environment_file import EnvironmentFile
from channel_tools.pins.files import read_pins
from channel_tools.pins.solve import solve_lock
from channel_tools.pins.virtual import assumed_virtual_packages
from channel_tools.system.errors import ChannelError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from channel_tools.conda.contents import JsonObject
    from channel_tools.pins import Lock
    from channel_tools.pins.lock import LockedPackage
    from channel_tools.pins.md5 import LookUp
    from channel_tools.system.progress import Note


async def read_or_solve(
    path: Path,
    choice: LockChoice,
    *,
    channels: Sequence[str] = (),
    virtual_packages: Sequence[str] = (),
    package_cache: Path,
    environ: Mapping[str, str],
    note: Note,
) -> Lock:
    """The lock in the file ``path``; an environment.yml is solved from ``channels``, or its own if these are empty.

    ``environ`` is as for make_http_client, for the indexes in which a missing sha256 is looked up. Raises as read_pins,
    solve_lock and read_index do.
    """
    pins = read_pins(path, choice, note=note, look_up=index_look_up(channels, environ))
    if not isinstance(pins, EnvironmentFile):
        return pins
    platforms = platforms_of_file(pins, choice)
    note_unsolved(pins, note)
    return await solve_lock(
        pins.name,
        pins.specs,
        tuple(channels) or pins.required_channels(environ),
        platforms,
        virtual_packages=assumed_virtual_packages(platforms, virtual_packages),
        package_cache=package_cache,
    )


def index_look_up(channels: Sequence[str], environ: Mapping[str, str]) -> LookUp:
    """A function that finds packages' records in ``channels``, or in each package's own channel if these are empty.

    ``environ`` is as for make_http_client. It raises as read_index does; a channel without an index has no records.
    """

    def look_up(packages: Iterable[LockedPackage]) -> dict[str, list[JsonObject]]:
        client = make_http_client(environ)
        files: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        for package in packages:
            for channel in channels or [package.channel]:
                files[channel_address(channel), package.subdir].add(package.file_name)
        records: defaultdict[str, list[JsonObject]] = defaultdict(list)
        for (address, subdir), names in files.items():
            try:
                index = read_index(address, subdir, names, client)
            except ChannelError:
                continue
            for name, record in index.records.items():
                records[f"{subdir}/{name}"].append(record)
        return records

    return look_up


def platforms_of_file(file: EnvironmentFile, choice: LockChoice) -> tuple[str, ...]:
    """The platforms to solve an environment.yml for: those chosen, else the one it was written for, else this one.

    Raises UsageError for a file that was written for another platform, or a choice that it does not have.
    """
    refuse_options(LockChoice(categories=choice.categories, environment=choice.environment), file.path, file_kind="it")
    platforms = choice.platforms or (file.platform or current_platform(),)
    if file.platform is not None and (other := [platform for platform in platforms if platform != file.platform]):
        message = f"{file.path}: written for {file.platform}, not for {other[0]}"
        raise UsageError(message, hint=f"take the file for {other[0]}, or --platform {file.platform}")
    return tuple(platforms)


def note_unsolved(file: EnvironmentFile, note: Note) -> None:
    """Say what an environment.yml does not determine, and what of it has no effect here."""
    note(f"note: {file.path} has no hashes: its specs are solved now")
    if file.variables:
        note(
            f"note: {file.path}: its variables are not set ({', '.join(file.variables)}); "
            "conda env config vars set -p PREFIX NAME=VALUE sets one"
        )
