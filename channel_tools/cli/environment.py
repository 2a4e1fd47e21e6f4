# SPDX-License-Identifier: BSD-3-Clause
"""``channel_tools env``: environments from the channel."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from channel_tools.cli import options
from channel_tools.cli.console import print_json, print_line
from channel_tools.cli.handling import handled

app = typer.Typer(no_args_is_help=True, help="Environments installed from the channel.")


@app.command("create")
@handled
def create(
    prefix: Annotated[Path, typer.Argument(help="The new environment's folder, or one to bring up to date.")],
    *,
    stack: options.Stack = None,
    channels: options.Channels = None,
    root: options.Root = None,
    output: options.Output = None,
    as_json: options.Json = False,
) -> None:
    """Install a stack from the channel into PREFIX; an environment that is there is brought up to date."""
    from channel_tools.cli.progress import shown_progress  # noqa: PLC0415
    from channel_tools.workflow.installing import InstallRequest, install_stack  # noqa: PLC0415

    request = InstallRequest(stack=stack, channels=tuple(channels or ()))
    with shown_progress() as progress:
        result = install_stack(options.settings_from(root, output), request, prefix, progress=progress)
    if as_json:
        packages = [asdict(record) for record in result.records]
        print_json({"schema": 1, "prefix": str(result.prefix), "changed": result.changed, "packages": packages})
        return
    done = f"{result.changed} packages changed" if result.changed else "nothing to do"
    print_line(
        f"{result.prefix}: {len(result.records)} packages, {result.size_bytes / 1e6:.0f} MB; "
        f"{done} ({result.seconds:.1f} s)"
    )
