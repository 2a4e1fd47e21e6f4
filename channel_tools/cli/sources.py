# SPDX-License-Identifier: BSD-3-Clause
"""``channel_tools sources``: upstream's sources, kept once for all builds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from channel_tools.cli import options
from channel_tools.cli.console import print_json, print_line, print_table
from channel_tools.cli.handling import handled

app = typer.Typer(no_args_is_help=True, help="The source store: upstream's sources by sha256 and by commit.")

_SHORT = 12


@app.command("list")
@handled
def list_sources(
    *,
    stack: options.Stack = None,
    packages: options.Packages = None,
    foundation: options.Foundation = None,
    root: options.Root = None,
    as_json: options.Json = False,
) -> None:
    """Show what the recipes need (of all stacks, or of one with --variant), and what the store has of it."""
    from channel_tools.cli.progress import shown_progress  # noqa: PLC0415
    from channel_tools.workflow.sourcing import SourceRequest  # noqa: PLC0415
    from channel_tools.workflow.sourcing import list_sources as rows_of  # noqa: PLC0415

    settings = options.settings_from(root, None)
    request = SourceRequest(stack=stack, packages=tuple(packages or ()), foundation=foundation)
    with shown_progress() as progress:
        rows = rows_of(settings, request, progress)
    if as_json:
        print_json({"schema": 1, "store": str(settings.sources), "sources": [row.as_json() for row in rows]})
        return
    print_table(
        ("source", "identity", "state", "kB", "origin", "packages"),
        [
            (
                row.need.urls[0],
                f"{row.need.word} {row.need.identity[:_SHORT]}",
                "missing" if row.stored is None else "present",
                "" if row.stored is None else str(round(row.stored.size_bytes / 1000)),
                row.origin or "",
                ", ".join(row.need.packages),
            )
            for row in rows
        ],
    )


@app.command("add")
@handled
def add(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH...", help="Files, and folders of git clones.")],
    *,
    dry_run: options.DryRun = False,
    root: options.Root = None,
) -> None:
    """Take files by their sha256, and commits from clones, that some recipe names; nothing else is accepted."""
    from channel_tools.cli.progress import shown_progress  # noqa: PLC0415
    from channel_tools.workflow.sourcing import add_sources  # noqa: PLC0415

    with shown_progress() as progress:
        added = add_sources(options.settings_from(root, None), paths, dry_run=dry_run, progress=progress)
    for need, place in added:
        print_line(f"{need.word} {need.identity}: {'would be in' if dry_run else 'is in'} {place}")
