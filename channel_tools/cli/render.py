# SPDX-License-Identifier: BSD-3-Clause
"""``channel_tools render``: the generated conda-build recipes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from channel_tools.cli import options
from channel_tools.cli.console import print_json, print_line, print_note
from channel_tools.cli.handling import handled


@handled
def render(
    *,
    destination: Annotated[Path, typer.Option("--output-dir", "-o", help="Folder for the recipe folders.")],
    stack: options.Stack = None,
    every_stack: options.Every = False,
    packages: options.Packages = None,
    foundation: options.Foundation = None,
    address: options.FoundationAddress = None,
    root: options.Root = None,
    output: options.Output = None,
    as_json: options.Json = False,
) -> None:
    """Write one self-contained recipe folder per package and variant, buildable by conda-build as it stands."""
    from channel_tools.workflow.planning import PlanRequest  # noqa: PLC0415
    from channel_tools.workflow.rendering import render_stacks  # noqa: PLC0415

    request = PlanRequest(
        stack=stack, every_stack=every_stack, packages=tuple(packages or ()), foundation=foundation, address=address
    )
    plan, folders = render_stacks(options.settings_from(root, output), request, destination=destination)
    if as_json:
        print_json({"schema": 1, "folders": [str(folder) for folder in folders]})
        return
    if plan.unserved:
        print_note(f"{len(plan.unserved)} variants are not rendered, since the foundation cannot serve them: see plan")
    for folder in folders:
        print_line(str(folder))
