# SPDX-License-Identifier: BSD-3-Clause
"""Finds stacks where no tree of recipes is: in an environment or a channel that has the package channel_tools-stacks.

recipes/channel_tools-stacks copies ``variants/stacks.yaml`` into it, so that every channel carries what it defines to
wherever its packages go: other servers, bundles, environments without a network.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from channel_tools.conda.addresses import split_last, without_credentials
from channel_tools.environments import create_environment, installed_addresses
from channel_tools.pins.virtual import machine_virtual_packages
from channel_tools.plan import current_platform
from channel_tools.system.errors import SolveError, UsageError
from channel_tools.system.progress import SilentProgress
from channel_tools.system.settings import (
    INSTALLED_STACKS,
    STACKS_PACKAGE,
    find_cache,
    make_stacks_settings,
    package_cache_in,
)
from channel_tools.system.work_folder import temporary_folder
from channel_tools.workflow.verify import attestation_check

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from channel_tools.provenance.trust import Trust
    from channel_tools.system.settings import Settings, Tree


@contextlib.contextmanager
def settings_of_channels(
    channels: Sequence[str],
    *,
    output: Path | None,
    environ: Mapping[str, str],
    cwd: Path,
    trust: Trust | None = None,
) -> Iterator[Settings]:
    """Settings for the stacks that channels have, while the block runs.

    ``trust`` says who must have signed the package with them. Raises as create_environment does, and UsageError for
    channels without that package.
    """
    cache = find_cache(environ)
    package_cache = package_cache_in(cache)
    package_cache.mkdir(parents=True, exist_ok=True)
    with temporary_folder(package_cache) as folder:
        try:
            asyncio.run(
                create_environment(
                    folder / "stacks",
                    [STACKS_PACKAGE],
                    channels,
                    package_cache=package_cache,
                    subdir=current_platform(),
                    progress=SilentProgress(),
                    virtual_packages=machine_virtual_packages(()),
                    check=attestation_check(trust, tuple(channels), environ),
                )
            )
        except SolveError:
            names = ", ".join(map(without_credentials, channels))
            message = f"{names}: has no package {STACKS_PACKAGE}, which says what the channel's stacks are"
            hint = "name what to install by MatchSpecs, or the tree of recipes by --root"
            raise UsageError(message, hint=hint) from None
        yield make_stacks_settings(folder / "stacks" / INSTALLED_STACKS, output=output, environ=environ, cwd=cwd)


def channels_of_stacks(tree: Tree) -> tuple[str, ...]:
    """The addresses that the environment with the stacks of ``tree`` was installed from, that of the stacks first."""
    prefix = tree.root.parents[INSTALLED_STACKS.count("/")]
    addresses = installed_addresses(prefix)
    first = addresses.get(STACKS_PACKAGE)
    ordered = [*([] if first is None else [first]), *addresses.values()]
    found = tuple(dict.fromkeys(split_last(split_last(address)[0])[0] for address in ordered))
    if not found:
        message = f"{prefix}: was not installed from a channel, so nothing says where the stack's packages are"
        raise UsageError(message, hint="name the channel: --channel ADDRESS")
    return found
