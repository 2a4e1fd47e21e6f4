# SPDX-License-Identifier: BSD-3-Clause
"""``channel_tools render`` and ``export``: recipes of the tree in forms that other programs build from."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from channel_tools.cli import options
from channel_tools.cli.console import handled, print_json, print_line, print_note
from channel_tools.requests.environment import PaperRequest
from channel_tools.requests.init import FeedstockRequest
from channel_tools.requests.plan import RenderRequest
from channel_tools.system.counting import counted

app = typer.Typer(no_args_is_help=True, help="Recipes for other people's build services, and environments for papers.")


@handled
@options.asks(RenderRequest)
def render(
    request: RenderRequest,
    *,
    destination: Annotated[Path, typer.Option("--output-dir", "-o", help="Folder for the recipe folders.")],
    root: options.Root = None,
    output: options.Output = None,
    as_json: options.Json = False,
) -> None:
    """Write one self-contained recipe folder per package and variant, which conda-build can build unchanged."""
    from channel_tools.workflow.render import render_stacks

    settings = options.settings_from(root, output)
    plan, folders = render_stacks(settings, request, destination=destination, note=print_note)
    if as_json:
        print_json({"schema": 1, "folders": [str(folder) for folder in folders]})
        return
    if plan.unsatisfiable:
        print_note(
            f"{counted(len(plan.unsatisfiable), 'variant')} left out, which the foundation cannot serve: "
            "see channel_tools plan"
        )
    for folder in folders:
        print_line(str(folder))


@app.command("paper")
@handled
@options.asks(PaperRequest)
def paper(request: PaperRequest) -> None:
    """Write what an environment is made of, and how to make it again, into a folder: for a paper, or an archive."""
    from channel_tools.workflow.images import export_paper

    files = export_paper(request, environ=os.environ)
    print_line(f"{request.folder}: wrote: {', '.join([*sorted(files), 'SHA256SUMS'])}")


@app.command("feedstock")
@handled
@options.asks(FeedstockRequest)
def feedstock(
    request: FeedstockRequest,
    *,
    root: options.Root = None,
    output: options.Output = None,
    as_json: options.Json = False,
) -> None:
    """Write recipe/, conda_build_config.yaml and conda-forge.yml, from which conda-smithy generates the rest."""
    from channel_tools.workflow.render import export_feedstock

    written = export_feedstock(options.settings_from(root, output), request)
    for line in written.variants.left_out:
        print_note(line)
    if not as_json:
        print_line(str(written.folder))
        return
    result = {
        "schema": 1,
        "folder": str(written.folder),
        "platforms": list(written.platforms),
        "variants": {key: list(values) for key, values in written.variants.keys.items()},
        "left_out": list(written.variants.left_out),
    }
    print_json(result)
