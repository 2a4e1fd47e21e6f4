# SPDX-License-Identifier: BSD-3-Clause
"""Which foundation a command works with, and the registry foundation as a channel of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rattler import Channel as RattlerChannel

from channel_tools.channel import Foundation, channel_writer, ensure_channel, link_foundation, open_channel
from channel_tools.errors import UsageError
from channel_tools.foundation.build import build_foundation, remove_superseded
from channel_tools.foundation.listing import list_foundation
from channel_tools.foundation.record import RECORD_NAME, read_record
from channel_tools.foundation.table import load_table
from channel_tools.foundation.verify import verify_foundation
from channel_tools.workflow.platforms import current_platform

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from channel_tools.foundation.build import FoundationResult
    from channel_tools.foundation.listing import FoundationRow
    from channel_tools.foundation.record import FoundationRecord
    from channel_tools.foundation.verify_model import Finding
    from channel_tools.matrix import FoundationKind
    from channel_tools.progress import Progress
    from channel_tools.settings import Settings

DEFAULT_CONDA_FORGE = "conda-forge"


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundationOptions:
    """How the registry foundation is made: with newer versions, or exactly those of an earlier record.

    ``asked`` are optional packages of its table to make as well. ``offline`` downloads nothing and asks no registry.
    """

    update: bool = False
    locked: Path | None = None
    asked: frozenset[str] = frozenset()
    offline: bool = False


def choose_foundation(settings: Settings, *, kind: FoundationKind | None, address: str | None) -> Foundation:
    """The foundation asked for, else the one that the local channel was made with, else the registry's.

    Raises UsageError for an address beside the registry foundation, FoundationError when the local channel was made
    with another one.
    """
    if address is not None and kind != "conda-forge":
        message = f"--foundation-channel {address} goes with --foundation conda-forge"
        raise UsageError(message, hint="the registry foundation is made here and has no address")
    asked = None if kind is None else _asked_foundation(kind, address)
    if settings.channel.exists():
        return open_channel(settings.channel, foundation=asked).foundation
    return asked or Foundation(kind="registry")


def _asked_foundation(kind: FoundationKind, address: str | None) -> Foundation:
    if kind == "registry":
        return Foundation(kind=kind)
    return Foundation(kind=kind, address=RattlerChannel(address or DEFAULT_CONDA_FORGE).base_url.rstrip("/"))


def foundation_location(settings: Settings, foundation: Foundation) -> Path | str:
    """Where the foundation's index is read: the folder of the one made here, or the address."""
    return settings.foundation if foundation.address is None else foundation.address


def make_registry_foundation(
    settings: Settings, *, jobs: int, options: FoundationOptions, dry_run: bool, progress: Progress
) -> FoundationResult:
    """Make or bring up to date the registry foundation in ``output/foundation`` and index it.

    With ``dry_run`` nothing is written. Raises what building it raises, ChannelError when another run is at it.
    """
    subdir = current_platform()
    table = load_table()
    channel = None if dry_run else ensure_channel(settings.foundation, Foundation(kind="registry"), subdirs=(subdir,))
    result = build_foundation(
        table,
        destination=settings.foundation,
        downloads=settings.downloads,
        subdir=subdir,
        jobs=jobs,
        progress=progress,
        update=options.update,
        locked=options.locked,
        asked=options.asked,
        dry_run=dry_run,
        offline=options.offline,
    )
    if channel is not None:
        with channel_writer(channel) as writer:
            link_foundation(writer, foundation_packages(settings))
            remove_superseded(settings.foundation, result)
    return result


def optional_packages() -> frozenset[str]:
    """What the registry foundation makes only when it is asked for."""
    return load_table().optional_names


def optional_packages_of(names: Iterable[str]) -> frozenset[str]:
    """Those of ``names`` that it makes only then."""
    return optional_packages().intersection(names)


def foundation_packages(settings: Settings) -> list[Path]:
    """The package files that the foundation's record names."""
    return [settings.foundation / item.subdir / item.file_name for item in read_registry_record(settings).packages]


def read_registry_record(settings: Settings) -> FoundationRecord:
    """What the registry foundation was made from. Raises FoundationError when there is none yet."""
    return read_record(settings.foundation)


def foundation_rows(settings: Settings) -> list[FoundationRow]:
    """The table's packages beside what was made of them, where a foundation was made already."""
    made = (settings.foundation / RECORD_NAME).is_file()
    return list_foundation(load_table(), read_registry_record(settings) if made else None)


def verify_registry_foundation(
    settings: Settings, *, jobs: int | None, progress: Progress
) -> tuple[int, list[Finding]]:
    """How many packages the foundation has, and every broken promise among them. Raises FoundationError for none."""
    packages = len(read_registry_record(settings).packages)
    return packages, verify_foundation(
        settings.foundation, progress=progress, jobs=jobs, build_folders=[settings.tree.root]
    )
