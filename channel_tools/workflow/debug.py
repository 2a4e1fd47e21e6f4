# SPDX-License-Identifier: BSD-3-Clause
"""A shell, or a command, where a build failed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from channel_tools.build.failed import find_failed, shell_command, work_folder_of
from channel_tools.build.resume import mark_opened
from channel_tools.build.schedule import locked_builds
from channel_tools.build.worker import shell_environment
from channel_tools.system.processes import run_in_foreground
from channel_tools.workflow.cluster import nodes_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from channel_tools.system.settings import Settings


def debug_build(
    settings: Settings,
    package: str,
    command: Sequence[str],
    *,
    cores: int,
    environ: Mapping[str, str],
    on_found: Callable[[Path], None],
) -> int:
    """Run ``command``, or a shell, in the work folder and environment of a failed build; returns its exit status.

    No build can begin meanwhile. ``on_found`` hears of the folder first. Raises what find_failed and work_folder_of
    raise, ChannelError while a build runs.
    """
    with locked_builds(settings.work):
        build = find_failed([settings.work, nodes_folder(settings)], package)
        folder = work_folder_of(build)
        on_found(folder)
        mark_opened(build.folder)
        environment = shell_environment(build.folder, environ, cores=cores, cache=settings.cache)
        return run_in_foreground(shell_command(folder, command), cwd=folder, env=environment)
