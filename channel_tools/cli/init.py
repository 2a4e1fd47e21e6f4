# SPDX-License-Identifier: BSD-3-Clause
"""``channel_tools init``: a tree of a site's own."""

from __future__ import annotations

from channel_tools.cli import options  # noqa: TC001 - typer reads the annotations
from channel_tools.cli.console import handled, print_json, print_line
from channel_tools.cli.options import asks
from channel_tools.cli.progress import shown_progress
from channel_tools.requests.init import InitRequest


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
