# SPDX-License-Identifier: BSD-3-Clause
"""The commands that install from a channel, as its pages show them."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from channel_tools.conda.addresses import without_credentials

if TYPE_CHECKING:
    from collections.abc import Sequence

    from channel_tools.page.model import Site

_ADDRESS = "CHANNEL"
"""Stands for the channel's address where nobody said it; with JavaScript, the browser's own takes its place."""


def install_commands(site: Site, environment: str, specs: Sequence[str]) -> list[tuple[str, str]]:
    """For each client, the command that makes an environment with ``specs`` from the channel."""
    address = site.settings.address or _ADDRESS
    foundation = site.foundation
    others = [] if foundation.kind == "registry" else [without_credentials(foundation.address or "conda-forge")]
    channels = " ".join(f"-c {shlex.quote(one)}" for one in (address, *others))
    wanted, name = shlex.join(specs), shlex.quote(environment)
    return [
        ("conda", f"conda create -n {name} --override-channels {channels} {wanted}"),
        ("mamba", f"mamba create -n {name} --override-channels {channels} {wanted}"),
        ("pixi", f"pixi init {channels} {name} && cd {name} && pixi add {wanted}"),
    ]


def lock_commands(environment: str) -> list[tuple[str, str]]:
    """For each client, how to install the very same packages again, here or on another machine (conda 26.7 does)."""
    name, file = shlex.quote(environment), shlex.quote(f"{environment}.txt")
    again = shlex.quote(f"{environment}-again")
    return [
        (client, f"{client} list -n {name} --explicit > {file} && {client} create -n {again} --file {file}")
        for client in ("conda", "mamba")
    ] + [("pixi", "pixi install --locked")]
