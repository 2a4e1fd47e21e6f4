# SPDX-License-Identifier: BSD-3-Clause
"""``channel_tools init``: a tree of a site's own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from channel_tools.cli import options  # noqa: TC001 - typer reads the annotations
from channel_tools.cli.console import handled, print_json, print_line
from channel_tools.cli.options import grouped
from channel_tools.cli.progress import shown_progress
from channel_tools.requests.init import CiService, InitRequest

_INIT: options.Declared = {
    "folder": Annotated[Path, typer.Argument(help="The new folder; its name is the stack's.", show_default=False)],
    "upstream": Annotated[
        str | None,
        typer.Option(
            "--upstream",
            metavar="FOLDER|ADDRESS@REV",
            help="A tree to build on: a folder, or a git repository and a tag, branch or commit of it.",
            show_default="none",
        ),
    ],
    "ci": Annotated[
        CiService | None,
        typer.Option("--ci", help="Write a workflow that plans, builds and publishes.", show_default="none"),
    ],
}
"""The options, by the fields of InitRequest."""


@handled
@grouped(InitRequest, _INIT)
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
