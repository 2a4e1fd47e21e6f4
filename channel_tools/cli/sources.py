# SPDX-License-Identifier: BSD-3-Clause
"""``channel_tools sources``: the store of upstream sources for all builds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from channel_tools.cli import options
from channel_tools.cli.console import handled, print_json, print_line, print_table
from channel_tools.cli.progress import shown_progress
from channel_tools.requests.plan import FetchRequest, SourcesRequest
from channel_tools.system.counting import counted

app = typer.Typer(no_args_is_help=True, help="The source store: upstream sources by sha256 and by commit.")

_SHORT = 12


@app.command("list")
@handled
@options.asks(SourcesRequest)
def list_sources(request: SourcesRequest, *, root: options.Root = None, as_json: options.Json = False) -> None:
    """Show the sources that recipes need (of all stacks, or of one with --variant) and whether the store has them."""
    from channel_tools.workflow.sources import list_sources as rows_of

    settings = options.settings_from(root, None)
    with shown_progress() as progress:
        rows = rows_of(settings, replace(request, every_stack=request.stack is None), progress)
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
    """Add files and commits from clones to the store; only those that a recipe names by sha256 or commit."""
    from channel_tools.workflow.sources import add_sources

    with shown_progress() as progress:
        added = add_sources(options.settings_from(root, None), paths, dry_run=dry_run, progress=progress)
    for need, path in added:
        print_line(f"{need.word} {need.identity}: {'would be in' if dry_run else 'is in'} {path}")


@app.command("fetch")
@handled
@options.asks(FetchRequest)
def fetch(
    request: FetchRequest,
    *,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, help="Downloads at once.")] = 4,
    dry_run: options.DryRun = False,
    root: options.Root = None,
) -> None:
    """Download the sources of a stack that the store lacks; interrupted downloads are resumed."""
    from channel_tools.workflow.sources import fetch_needed

    settings = options.settings_from(root, None)
    with shown_progress() as progress:
        fetched = fetch_needed(settings, request, dry_run=dry_run, jobs=jobs, progress=progress)
    for need in fetched:
        print_line(f"{need.word} {need.identity}: {'would be fetched from' if dry_run else 'fetched:'} {need.urls[0]}")
    print_line(f"{settings.sources}: {counted(len(fetched), 'source')} {'to fetch' if dry_run else 'fetched'}")


@app.command("verify")
@handled
def verify(*, dry_run: options.DryRun = False, root: options.Root = None, as_json: options.Json = False) -> None:
    """Hash everything in the store again; damaged sources are moved aside, never deleted."""
    from channel_tools.sources.store import SourceStore, verify_store
    from channel_tools.system.errors import IntegrityError

    settings = options.settings_from(root, None)
    with shown_progress() as progress:
        entries, damaged = verify_store(SourceStore(folder=settings.sources), dry_run=dry_run, progress=progress)
    if as_json:
        rows = [
            {"entry": str(item.entry), "problem": item.problem, "moved_to": item.moved_to and str(item.moved_to)}
            for item in damaged
        ]
        print_json({"schema": 1, "store": str(settings.sources), "entries": entries, "damaged": rows})
    else:
        for item in damaged:
            print_line(f"{item.problem}; " + ("it is kept" if item.moved_to is None else f"moved to {item.moved_to}"))
        print_line(f"{settings.sources}: {counted(entries, 'source')}, {len(damaged)} damaged")
    if damaged:
        are = counted(len(damaged), "source is", "sources are")
        message = f"{settings.sources}: {are} damaged, of {entries}: {damaged[0].problem}"
        raise IntegrityError(message, hint="add them again with channel_tools sources fetch, or sources add FILE")


@app.command("export")
@handled
@options.asks(SourcesRequest)
def export(
    request: SourcesRequest,
    destination: Annotated[Path, typer.Argument(metavar="FILE|DIR", help="The file to write, or a folder for it.")],
    *,
    dry_run: options.DryRun = False,
    root: options.Root = None,
) -> None:
    """Write the store, or with --variant the sources of a stack, to one file for a site without a network."""
    from channel_tools.workflow.sources import export_sources

    settings = options.settings_from(root, None)
    is_chosen = request.stack or request.packages or request.foundation
    wanted = replace(request, every_stack=request.stack is None) if is_chosen else None
    with shown_progress() as progress:
        target, entries = export_sources(settings, destination, wanted, dry_run=dry_run, progress=progress)
    size = "" if dry_run else f", {target.stat().st_size / 1e6:.1f} MB"
    print_line(f"{target}: {counted(len(entries), 'source')}{' would be written' if dry_run else size}")


@app.command("import")
@handled
def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE|DIR", help="A file that export wrote, or its folder.")],
    *,
    dry_run: options.DryRun = False,
    root: options.Root = None,
) -> None:
    """Import what export wrote; all of it is checked before anything is added to the store."""
    from channel_tools.sources.store import SourceStore
    from channel_tools.sources.transfer import import_file

    settings = options.settings_from(root, None)
    with shown_progress() as progress:
        added, known = import_file(SourceStore(folder=settings.sources), file, dry_run=dry_run, progress=progress)
    for name in added:
        print_line(name)
    would = "would be " if dry_run else ""
    print_line(f"{settings.sources}: {len(added)} {would}added, {len(known)} already there")
