# SPDX-License-Identifier: BSD-3-Clause
"""What goes into a bundle beside packages: this program, and with ``--with-sources`` all that a rebuild needs."""

from __future__ import annotations

import importlib.resources
from dataclasses import dataclass
from typing import TYPE_CHECKING

from channel_tools.addresses import local_path
from channel_tools.channel import held_files, open_channel
from channel_tools.channel.model import NOARCH, PACKAGE_SUFFIX
from channel_tools.mirror.model import BOOTSTRAP
from channel_tools.mirror.plan import OLD_SUFFIX, NeededPackage
from channel_tools.mirror.rebuild import export_sources, export_tree
from channel_tools.mirror.upstream import read_records
from channel_tools.mirror.wheels import WheelRequest, tool_wheels
from channel_tools.sources.store import SourceStore
from channel_tools.workflow.planning import PlanRequest, plan_for
from channel_tools.workflow.source_store import SourceRequest, fetch_needed, needs_of_tree

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from channel_tools.mirror.contents import ExtraFile
    from channel_tools.mirror.http import HttpReader
    from channel_tools.mirror.model import ToolWheels
    from channel_tools.mirror.plan import SourceChannel
    from channel_tools.progress import Progress
    from channel_tools.settings import Settings

_INPUT = "foundation:"


@dataclass(frozen=True, kw_only=True, slots=True)
class Extras:
    """Files of this machine, and files made here, that go into a bundle."""

    files: tuple[ExtraFile, ...] = ()
    small: tuple[tuple[str, bytes], ...] = ()
    tool: ToolWheels | None = None


def tool_extras(settings: Settings, pythons: Sequence[str], platforms: Sequence[str], progress: Progress) -> Extras:
    """This program's wheels and the script that installs them. Raises as tool_wheels."""
    request = WheelRequest(
        pythons=tuple(pythons), platforms=tuple(platforms), cache=settings.cache / "mirror" / "wheels"
    )
    tool, files = tool_wheels(request, progress)
    script = importlib.resources.files("channel_tools.mirror") / "data" / "bootstrap.py"
    return Extras(files=tuple(files), small=((BOOTSTRAP, script.read_bytes()),), tool=tool)


def source_extras(settings: Settings, stacks: Iterable[str], folder: Path, *, jobs: int, progress: Progress) -> Extras:
    """The tree of recipes, and the sources of the stacks, written below ``folder``; those not stored are fetched.

    Raises as fetch_needed and export_sources.
    """
    store = SourceStore(folder=settings.sources)
    entries = set()
    for stack in stacks:
        request = SourceRequest(stack=stack)
        fetch_needed(settings, request, dry_run=False, jobs=jobs, progress=progress)
        entries |= {store.entry(need) for need in needs_of_tree(settings, request, progress)}
    files = [export_tree(settings.tree, folder), *export_sources(store, sorted(entries), folder, progress)]
    return Extras(files=tuple(files))


def build_packages(
    settings: Settings,
    stacks: Iterable[str],
    channels: Sequence[SourceChannel],
    platforms: Sequence[str],
    reader: HttpReader,
) -> list[NeededPackage]:
    """The foundation packages that a rebuild of the stacks needs.

    Of a registry foundation in a local channel all of them; of any other those that the environments of the stacks'
    builds resolve to here. Raises as plan_for and read_records.
    """
    own = channels[0]
    local = local_path(own.address)
    if local is not None and open_channel(local).foundation.kind == "registry":
        return _whole_foundation(own, local, platforms)
    wanted = {}
    for stack in stacks:
        for package in plan_for(settings, PlanRequest(stack=stack)).packages:
            for key, value in package.inputs.items():
                if key.startswith(_INPUT):
                    version, build, sha256 = value.split()
                    wanted[sha256] = f"{key.rpartition('/')[2]}-{version}-{build}"
    return sorted(_find(wanted, channels, platforms, reader))


def _whole_foundation(own: SourceChannel, local: Path, platforms: Sequence[str]) -> list[NeededPackage]:
    held = held_files(open_channel(local), [NOARCH, *platforms])
    return [
        NeededPackage(
            channel=own.shown,
            subdir=key.partition("/")[0],
            file_name=key.partition("/")[2],
            sha256=file.sha256,
            size_bytes=file.size_bytes,
        )
        for key, file in sorted(held.items())
        if file.foundation and file.hidden is None
    ]


def _find(
    wanted: dict[str, str], channels: Sequence[SourceChannel], platforms: Sequence[str], reader: HttpReader
) -> Iterable[NeededPackage]:
    names = {stem + suffix for stem in wanted.values() for suffix in (PACKAGE_SUFFIX, OLD_SUFFIX)}
    for channel in channels:
        for subdir in (NOARCH, *platforms):
            for file_name, row in read_records(channel.address, subdir, names, reader).all.items():
                sha256, size_bytes = row.get("sha256"), row.get("size")
                if isinstance(sha256, str) and sha256 in wanted and isinstance(size_bytes, int):
                    yield NeededPackage(
                        channel=channel.shown,
                        subdir=subdir,
                        file_name=file_name,
                        sha256=sha256,
                        size_bytes=size_bytes,
                    )
