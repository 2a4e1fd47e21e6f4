# SPDX-License-Identifier: BSD-3-Clause
"""The lock that a file of pins means: what it has, or for an environment.yml what its specs are solved to now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from channel_tools.pins import assumed_virtual_packages, solve_lock
from channel_tools.pins.choice import LockChoice, refuse_options
from channel_tools.pins.environment_file import EnvironmentFile
from channel_tools.pins.files import read_pins
from channel_tools.plan import current_platform
from channel_tools.system.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from channel_tools.pins import Lock
    from channel_tools.pins.choice import Note


def read_or_solve(
    path: Path,
    choice: LockChoice,
    *,
    channels: Sequence[str] = (),
    virtual_packages: Sequence[str] = (),
    package_cache: Path,
    note: Note,
) -> Lock:
    """The lock in the file ``path``; an environment.yml is solved from ``channels``, or its own if these are empty.

    Raises as read_pins and solve_lock do.
    """
    found = read_pins(path, choice, note=note)
    if not isinstance(found, EnvironmentFile):
        return found
    platforms = platforms_of_file(found, choice)
    note_unsolved(found, note)
    return solve_lock(
        found.name,
        found.specs,
        tuple(channels) or found.required_channels(),
        platforms,
        virtual_packages=assumed_virtual_packages(platforms, virtual_packages),
        package_cache=package_cache,
    )


def platforms_of_file(file: EnvironmentFile, choice: LockChoice) -> tuple[str, ...]:
    """The platforms to solve an environment.yml for: those chosen, else the one it was written for, else this one.

    Raises UsageError for a file that was written for another platform, or a choice that it does not have.
    """
    refuse_options(LockChoice(categories=choice.categories, environment=choice.environment), file.path, what="it")
    wanted = choice.platforms or (file.platform or current_platform(),)
    if file.platform is not None and (other := [one for one in wanted if one != file.platform]):
        message = f"{file.path}: written for {file.platform}, not for {other[0]}"
        raise UsageError(message, hint=f"take the file for {other[0]}, or --platform {file.platform}")
    return tuple(wanted)


def note_unsolved(file: EnvironmentFile, note: Note) -> None:
    """Say what an environment.yml does not determine, and what of it has no effect here."""
    note(f"note: {file.path} has no hashes: its specs are solved now")
    if file.variables:
        note(
            f"note: {file.path}: its variables are not set ({', '.join(file.variables)}); "
            "conda env config vars set -p PREFIX NAME=VALUE sets one"
        )
