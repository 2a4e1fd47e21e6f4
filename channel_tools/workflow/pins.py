# SPDX-License-Identifier: BSD-3-Clause
"""Locks a stack and writes the files.

An earlier conda-lock.yml in the folder is kept if the request is the same: the same specs, channels, platforms and
assumed virtual packages. Otherwise it is solved again, and the earlier packages are preferred.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from channel_tools.conda.addresses import channel_address, local_path, without_credentials
from channel_tools.conda.platforms import current_platform
from channel_tools.pins import assumed_virtual_packages, solve_lock
from channel_tools.pins.files import CONDA_LOCK, FORMATS, formats_in, pin_files, read_lock, write_pin_files
from channel_tools.pins.lock import compare_locks
from channel_tools.pins.solve import check_published, published_addresses, with_addresses
from channel_tools.system.errors import ConfigError, IntegrityError, UsageError
from channel_tools.system.files import absolute_path
from channel_tools.workflow.environment import install_channels, stacks_specs, variants_of

if TYPE_CHECKING:
    from pathlib import Path

    from channel_tools.matrix.model import Stack
    from channel_tools.pins import Lock
    from channel_tools.pins.lock import PinChange
    from channel_tools.requests.pins import PinRequest
    from channel_tools.system.settings import Settings


@dataclass(frozen=True, kw_only=True, slots=True)
class PinResult:
    """The lock, its changes from the earlier one, and the files; ``local`` are channels that only this machine has."""

    lock: Lock
    folder: Path
    files: tuple[str, ...]
    changes: tuple[PinChange, ...]
    kept: bool
    local: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Wanted:
    """A request with all defaults filled in; ``published`` maps local channels to addresses."""

    stack: Stack
    specs: tuple[str, ...]
    channels: tuple[str, ...]
    platforms: tuple[str, ...]
    virtual_packages: dict[str, tuple[str, ...]]
    published: dict[str, str]

    @property
    def written_channels(self) -> tuple[str, ...]:
        addresses = [self.published.get(channel, channel) for channel in self.channels]
        return tuple(dict.fromkeys(without_credentials(address) for address in addresses))


def pin_stack(settings: Settings, request: PinRequest) -> PinResult:
    """Lock a stack and write its files (with ``dry_run``, only determine what they would be).

    Raises as solve_lock, read_lock and check_published do, and UsageError if the folder has another stack's lock.
    """
    variants = variants_of(settings, request.install.stack)
    stack = variants.stack
    folder = absolute_path(request.folder or settings.output / "pins" / stack.name)
    earlier = _earlier_lock(folder, stack)
    channels = tuple(channel_address(channel) for channel in install_channels(settings, request.install))
    locked = {part.platform: part.virtual_packages for part in earlier.platforms} if earlier else {}
    platforms = tuple(sorted(set(request.platforms or locked or (current_platform(),))))
    wanted = _Wanted(
        stack=variants.stack,
        specs=variants.specs(request.install) + stacks_specs(settings, request.install),
        channels=channels,
        platforms=platforms,
        virtual_packages=assumed_virtual_packages(platforms, request.virtual_packages, earlier=locked),
        published=published_addresses(channels, request.published) or _published_before(channels, earlier),
    )
    still_valid = (
        not request.update
        and earlier is not None
        and (
            earlier.stack == wanted.stack.name
            and earlier.specs == wanted.specs
            and earlier.channels == wanted.written_channels
            and {part.platform: part.virtual_packages for part in earlier.platforms} == wanted.virtual_packages
        )
    )
    lock = earlier if still_valid and earlier is not None else _solve(settings, request, wanted, earlier)
    if not request.offline and (request.published or not still_valid):
        lock = asyncio.run(check_published(lock, list(wanted.published.values()), package_cache=settings.package_cache))
    named = {name for name in FORMATS if name in request.formats}
    formats = named if named and "all" not in request.formats else FORMATS
    files = pin_files(lock, {*formats, *formats_in(folder)})
    if not request.dry_run:
        write_pin_files(folder, files)
    return PinResult(
        lock=lock,
        folder=folder,
        files=tuple(files),
        changes=compare_locks(earlier, lock) if earlier else (),
        kept=still_valid,
        local=tuple(channel for channel in lock.channels if local_path(channel) is not None),
    )


def _earlier_lock(folder: Path, stack: Stack) -> Lock | None:
    path = folder / CONDA_LOCK
    if not path.exists():
        return None
    try:
        lock = read_lock(path)
    except (ConfigError, IntegrityError) as err:
        err.hint = "restore the file; to lock without it, from the start, give another folder with -o"
        raise
    if lock.stack not in {"", stack.name}:
        message = f"{path}: the lock of the stack {lock.stack}, not of {stack.name}"
        raise UsageError(message, hint=f"give another folder with -o, or --variant {lock.stack}")
    return lock


def _published_before(channels: tuple[str, ...], earlier: Lock | None) -> dict[str, str]:
    """The addresses that an earlier lock of the same channels has in place of local paths."""
    if earlier is None or len(earlier.channels) != len(channels):
        return {}
    pairs = [(now, before) for now, before in zip(channels, earlier.channels, strict=True) if now != before]
    return dict(pairs) if all(local_path(now) and not local_path(before) for now, before in pairs) else {}


def _solve(settings: Settings, request: PinRequest, wanted: _Wanted, earlier: Lock | None) -> Lock:
    if request.packages and earlier is None:
        message = f"{', '.join(request.packages)}: no earlier lock to update"
        raise UsageError(message, hint="run the command without --update first, or name its folder with -o")
    lock = asyncio.run(
        solve_lock(
            wanted.stack.name,
            wanted.specs,
            wanted.channels,
            wanted.platforms,
            virtual_packages=wanted.virtual_packages,
            package_cache=settings.package_cache,
            previous=None if request.update and not request.packages else earlier,
            update=request.packages,
        )
    )
    return with_addresses(lock, wanted.published)
