# SPDX-License-Identifier: BSD-3-Clause
"""Finds stacks where no tree of recipes is: in an environment or a channel that has the package channel_tools-stacks.

recipes/channel_tools-stacks copies ``variants/stacks.yaml`` into it, so that every channel carries what it defines to
wherever its packages go: other servers, bundles, environments without a network.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from channel_tools.conda.addresses import without_credentials
from channel_tools.conda.package import split_package_address
from channel_tools.conda.platforms import current_platform
from channel_tools.environments.create import create_environment
from channel_tools.environments.transaction import installed_addresses
from channel_tools.pins.virtual import machine_virtual_packages
from channel_tools.system.errors import SolveError, UsageError
from channel_tools.system.progress import SilentProgress
from channel_tools.system.settings import INSTALLED_STACKS, STACKS_PACKAGE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from rattler import RepoDataRecord

    from channel_tools.system.settings import Tree


async def install_stacks(
    prefix: Path,
    channels: Sequence[str],
    *,
    package_cache: Path,
    check: Callable[[Sequence[RepoDataRecord]], None] | None,
) -> Path:
    """Install the stacks that channels have into ``prefix``; returns the folder there that has them.

    ``check`` as in create_environment. Raises as create_environment does, and UsageError for channels without stacks.
    """
    try:
        await create_environment(
            prefix,
            [STACKS_PACKAGE],
            channels,
            package_cache=package_cache,
            subdir=current_platform(),
            progress=SilentProgress(),
            virtual_packages=machine_virtual_packages(()),
            check=check,
        )
    except SolveError:
        names = ", ".join(map(without_credentials, channels))
        message = f"{names}: has no package {STACKS_PACKAGE}, which says what the channel's stacks are"
        hint = "name what to install by MatchSpecs, or the tree of recipes by --root"
        raise UsageError(message, hint=hint) from None
    return prefix / INSTALLED_STACKS


def channels_of_stacks(tree: Tree) -> tuple[str, ...]:
    """The addresses that the environment with the stacks of ``tree`` was installed from, that of the stacks first."""
    prefix = tree.root.parents[INSTALLED_STACKS.count("/")]
    addresses = installed_addresses(prefix)
    first = addresses.get(STACKS_PACKAGE)
    ordered = [*([] if first is None else [first]), *addresses.values()]
    channels = tuple(dict.fromkeys(split_package_address(address)[0] for address in ordered))
    if not channels:
        message = f"{prefix}: was not installed from a channel, so nothing says where the stack's packages are"
        raise UsageError(message, hint="name the channel: --channel ADDRESS")
    return channels
