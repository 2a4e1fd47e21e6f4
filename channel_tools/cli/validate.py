# SPDX-License-Identifier: BSD-3-Clause
"""``channel_tools validate``: the distributed allreduce, with its report."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from channel_tools.cli import options
from channel_tools.cli.console import print_json, print_line, print_table
from channel_tools.cli.handling import handled


@handled
def validate(
    *,
    stack: options.Stack = None,
    ranks: Annotated[int, typer.Option("--ranks", "-r", min=1, help="Processes of the allreduce.")] = 2,
    channels: options.Channels = None,
    prefix: Annotated[
        Path | None,
        typer.Option(help="Validate in this environment and keep it.", show_default="a new one, removed after"),
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the new environment and the logs of the run.")] = False,
    timeout_s: Annotated[float, typer.Option("--timeout", min=1, help="Seconds for the run after installing.")] = 600,
    root: options.Root = None,
    output: options.Output = None,
    as_json: options.Json = False,
) -> None:
    """Install a stack from the channel, run a distributed allreduce in it, and report who carried what."""
    from channel_tools.cli.progress import shown_progress  # noqa: PLC0415
    from channel_tools.validate import raise_for_failures, report_document, report_tables  # noqa: PLC0415
    from channel_tools.workflow.installing import (  # noqa: PLC0415
        InstallRequest,
        ValidateOptions,
        validate_installed,
    )

    request = InstallRequest(stack=stack, channels=tuple(channels or ()))
    how = ValidateOptions(ranks=ranks, prefix=prefix, keep=keep, timeout_s=timeout_s, environ=os.environ)
    with shown_progress() as progress:
        report, path = validate_installed(options.settings_from(root, output), request, how, progress=progress)
    if as_json:
        print_json(report_document(report))
    else:
        for table in report_tables(report):
            print_table(table.columns, table.rows, title=table.title)
            print_line("")
        print_line(f"report: {path}")
    raise_for_failures(report, report_file=path)
