# SPDX-License-Identifier: BSD-3-Clause
"""What conda needs on the far side beside the packages of a lock.

conda takes pip for a requirement of Python unless ``add_pip_as_python_dependency`` is off (conda's settings), so that
it finds no solution in a channel that has Python and no pip; rattler, pixi and mamba do not.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from channel_tools.errors import SolveError
from channel_tools.mirror.plan import locked_packages
from channel_tools.pins import assumed_virtual_packages, solve_lock

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from channel_tools.mirror.plan import NeededPackage
    from channel_tools.pins import Lock, PlatformLock

_log = logging.getLogger(__name__)


def pip_for_conda(locks: Sequence[Lock], channels: Sequence[str], *, package_cache: Path) -> list[NeededPackage]:
    """pip and what it needs, as solved beside the packages of each lock that has Python and no pip.

    ``channels`` are addresses in order of priority, with any credentials. Where none has a pip that fits, a warning
    says what conda's users have to set there. Raises as solve_lock, but for SolveError.
    """
    found: set[NeededPackage] = set()
    for lock in locks:
        for platform in lock.platforms:
            names = {package.name for package in platform.packages}
            if "python" in names and "pip" not in names:
                only = replace(lock, platforms=(platform,))
                solved = _with_pip(only, platform, channels, package_cache)
                found.update(set(locked_packages([solved])) - set(locked_packages([only])))
    return sorted(found)


def _with_pip(lock: Lock, platform: PlatformLock, channels: Sequence[str], package_cache: Path) -> Lock:
    exact = [f"{package.name} =={package.version} {package.build}" for package in platform.packages]
    virtual = platform.virtual_packages or assumed_virtual_packages([platform.platform])[platform.platform]
    try:
        return solve_lock(
            lock.stack,
            [*exact, "pip"],
            channels,
            [platform.platform],
            virtual_packages={platform.platform: virtual},
            package_cache=package_cache,
        )
    except SolveError:
        _log.warning(
            "%s: no channel has a pip that fits beside the lock's Python; conda installs there only after "
            "`conda config --set add_pip_as_python_dependency false`",
            platform.platform,
        )
        return lock
