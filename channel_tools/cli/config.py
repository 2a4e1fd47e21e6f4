# SPDX-License-Identifier: BSD-3-Clause
"""``channel_tools config``: what the user's settings for conda, rattler and pixi say here, and in which file."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import Annotated

import typer

from channel_tools.cli import options  # noqa: TC001 - typer reads the annotations at run time
from channel_tools.cli.console import handled, print_json, print_note, print_table

_NONE = "no settings of conda, rattler or pixi say where channels are or how they are reached"


@handled
def config(
    *,
    channels: Annotated[
        list[str] | None,
        typer.Option(
            "--channel", "-c", help="Show the addresses of this channel; may be repeated.", show_default=False
        ),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Show the settings for channels and connections from .condarc and config.toml, and the file of each."""
    from channel_tools.conda.addresses import without_credentials
    from channel_tools.conda.user_settings import find_user_settings

    settings = find_user_settings(os.environ)
    addresses = {channel: [*map(without_credentials, settings.addresses_of([channel]))] for channel in channels or ()}
    lines = list(settings.lines())
    if as_json:
        print_json({"schema": 1, "settings": [asdict(line) for line in lines], "channels": addresses})
        return
    if addresses:
        print_table(
            ("channel", "address"),
            [(name, address) for name, of_channel in addresses.items() for address in of_channel],
        )
        return
    if not lines:
        print_note(_NONE)
        return
    rows = [(line.key, line.value or "-", line.origin, line.note or "used") for line in lines]
    print_table(("setting", "value", "from", ""), rows)
