# SPDX-License-Identifier: BSD-3-Clause
"""``channel_tools upstream``: the trees that a site's tree builds on.

``channel_tools init``: a tree of a site's own.

``channel_tools bump``: another version of a recipe's software.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from channel_tools.cli import options
from channel_tools.cli.console import handled, print_json, print_line, print_note
from channel_tools.cli.options import asks
from channel_tools.cli.progress import shown_progress
from channel_tools.requests.init import BumpRequest, InitRequest
from channel_tools.system.counting import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from channel_tools.workflow.bump import Bumped, Latest

app = typer.Typer(no_args_is_help=True, help="The trees that a site's tree builds on (site.yaml).")


@app.callback()
def upstream() -> None:
    """The trees that a site's tree builds on (site.yaml)."""


@app.command("update")
@handled
def update(
    *,
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help="Copy only these upstreams.", show_default="all"),
    ] = None,
    root: options.Root = None,
    as_json: options.Json = False,
) -> None:
    """Copy the upstreams that site.yaml names into the tree, and record their commits and files."""
    from channel_tools.workflow.upstream import update_upstreams

    settings = options.settings_from(root, None)
    with shown_progress() as progress:
        changes = update_upstreams(settings.tree, names or (), progress=progress)
    if as_json:
        print_json({"schema": 1, "upstreams": [asdict(change) for change in changes]})
        return
    for change in changes:
        counts = (
            f"{counted(len(change.added), 'file')} added, {len(change.changed)} changed, {len(change.removed)} removed"
        )
        at = f" at {change.commit}" if change.commit else ""
        print_line(f"{settings.tree.upstreams / change.name}{at}: {counts}")
        if change.moved_from is not None:
            print_line(
                f"{change.name}: the tag was moved: it named {change.moved_from} when it was copied before. Tags are "
                "meant to stay; look at what changed, and ask those who keep the repository, before you build"
            )


@handled
@asks(InitRequest)
def init(request: InitRequest, *, as_json: options.Json = False) -> None:
    """Start a tree with two recipes and a stack that can be built and validated at once."""
    from channel_tools.workflow.init import init_tree

    folder = request.folder
    with shown_progress() as progress:
        files = init_tree(request, progress=progress)
    if as_json:
        print_json({"schema": 1, "folder": str(folder.absolute()), "files": list(files)})
        return
    for name in files:
        print_line(name)
    print_line(f"{folder}: a tree with the stack {folder.absolute().name}; next: cd {folder} && channel_tools build")


@handled
@asks(BumpRequest)
def bump(
    request: BumpRequest, *, root: options.Root = None, output: options.Output = None, as_json: options.Json = False
) -> None:
    """Write a new version into a recipe: its sources' sha256 and its patches' paths, if all its patches apply."""
    from channel_tools.workflow.bump import bump as bumped
    from channel_tools.workflow.bump import bump_latest

    if request.latest:
        with shown_progress() as progress:
            rows = bump_latest(options.settings_from(root, output), request, progress)
        _print_latest(rows, check=request.check, as_json=as_json)
        return
    with shown_progress() as progress:
        change = bumped(options.settings_from(root, output), request, progress)
    if as_json:
        print_json(change.as_json())
        return
    _print_bumped(change, check=request.check)


def _print_latest(rows: Sequence[Latest], *, check: bool, as_json: bool) -> None:
    """Print what became of each recipe; raise the first error after all."""
    if as_json:
        print_json({"schema": 1, "recipes": [row.as_json() for row in rows]})
    else:
        for row in rows:
            if row.bumped is not None:
                _print_bumped(row.bumped, check=check)
                if row.changes:
                    print_line(f"{row.recipe}: what is new: {row.changes}")
            elif row.error is None:
                print_line(f"{row.recipe} {row.version}: the newest")
            else:
                print_note(f"{row.recipe}: {row.error.message}")
    if failed := [row.error for row in rows if row.error is not None]:
        raise failed[0]


def _print_bumped(change: Bumped, *, check: bool) -> None:
    for line in change.lines:
        print_line(f"{line.path}:{line.line}: " + (f"{line.before}  ->  {line.after}" if line.before else line.after))
    for source in change.sources:
        print_line(f"{source.url}: sha256 {source.sha256}" + ("" if source.is_checked else " (as given, not fetched)"))
    for name in change.patches:
        print_line(f"{name}: applies")
    for name in change.unchecked:
        print_line(f"{name}: not tried, since the source is not in the store; builds try it")
    for before, after in change.moved:
        print_line(f"{before}  ->  {after}")
    if change.also:
        print_note(f"the key of the version is also used by {', '.join(change.also)}: see channel_tools plan --why")
    would = "would have" if check else "have"
    summary = f"{change.recipe} {', '.join(change.old)} -> {change.new}"
    print_line(
        f"{summary}: {counted(change.variants, 'variant')} {would} it" + (", nothing was written" if check else "")
    )
