# SPDX-License-Identifier: BSD-3-Clause
"""Runs a shell, or a command, in a failed build."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from channel_tools.build.environment import shell_environment
from channel_tools.build.failed import find_failed, shell_command, work_folder_of
from channel_tools.build.node import lock_of
from channel_tools.build.resume import mark_opened
from channel_tools.build.schedule import locked_builds
from channel_tools.system.files import exclusive_lock
from channel_tools.system.processes import run_in_foreground

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

    No build can start meanwhile. ``on_found`` is called with the folder first. Raises the errors of find_failed and
    work_folder_of, and ChannelError while a build runs.
    """
    nodes = settings.nodes
    with contextlib.ExitStack() as locks:
        locks.enter_context(locked_builds(settings.work))
        build = find_failed([settings.work, nodes], package)
        if build.folder.parent == nodes:  # a job that has outlived its driver may be building there
            subject = f"the build folder {build.folder}"
            locks.enter_context(exclusive_lock(lock_of(build.folder), resource=subject))
        folder = work_folder_of(build)
        on_found(folder)
        mark_opened(build.folder)
        environment = shell_environment(build.folder, environ, cores=cores, cache=settings.cache)
        return run_in_foreground(shell_command(folder, command), cwd=folder, env=environment)
