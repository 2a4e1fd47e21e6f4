# SPDX-License-Identifier: BSD-3-Clause
"""Brings a prefix to the solution of a set of specs."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import rattler

from channel_tools.addresses import channel_address
from channel_tools.clients import make_client
from channel_tools.environments.transaction import Target, apply_solution, usable_target
from channel_tools.solving import make_gateway, parse_spec, solve_specs

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from channel_tools.environments.model import EnvironmentResult
    from channel_tools.progress import Progress


def create_environment(
    prefix: Path,
    specs: Sequence[str],
    channels: Sequence[str],
    *,
    package_cache: Path,
    subdir: str,
    progress: Progress,
    virtual_packages: Sequence[rattler.GenericVirtualPackage | rattler.VirtualPackage] | None = None,
) -> EnvironmentResult:
    """Install ``specs`` from ``channels`` alone (in order of priority) into ``prefix``, or update it to the solution.

    ``channels`` are addresses (``file://``, ``http://``) or folders; credentials in them are used and not written.
    Nothing is done where the prefix already holds the solution. ``virtual_packages`` None means those of this machine.
    Raises UsageError (the prefix is something else, a spec does not parse), SolveError, NetworkError, ChannelError (no
    such channel; the prefix is in use by another run), IntegrityError (a damaged package, by name) and DiskFullError;
    the same call afterwards completes the environment.
    """
    started = time.monotonic()
    addresses, client = make_client([channel_address(channel) for channel in channels])
    target = Target(
        prefix=prefix.absolute(),
        specs={spec: parse_spec(spec) for spec in specs},
        package_cache=package_cache.absolute(),
        subdir=subdir,
        client=client,
    )
    with usable_target(target):
        solution = asyncio.run(
            solve_specs(
                specs,
                addresses,
                subdir=subdir,
                gateway=make_gateway(target.package_cache, client),
                virtual_packages=rattler.VirtualPackage.detect() if virtual_packages is None else virtual_packages,
            )
        )
        return apply_solution(target, solution, started=started, progress=progress)
