# SPDX-License-Identifier: BSD-3-Clause
"""``channel_tools render`` and ``export``: recipes of the tree in forms that other programs build from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from channel_tools.cli import options
from channel_tools.cli.console import handled, print_json, print_line, print_note
from channel_tools.requests.feedstock import FeedstockRequest
from channel_tools.requests.plan import PlanRequest
from channel_tools.system.counting import counted

app = typer.Typer(no_args_is_help=True, help="Recipes for other people's build services.")


@handled
@options.grouped(PlanRequest, options.ON_FOUNDATION)
def render(
    request: PlanRequest,
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


_FEEDSTOCK: options.Declared = {
    "package": Annotated[str, typer.Argument(help="A recipe, by its folder's name.", show_default=False)],
    "destination": Annotated[Path, typer.Option("--output-dir", "-o", help="The feedstock's folder; must not exist.")],
    "maintainers": Annotated[
        list[str], typer.Option("--maintainer", help="GitHub name of a maintainer; may be repeated.")
    ],
    "homepage": Annotated[
        str | None, typer.Option(help="The homepage, for a recipe that names none.", show_default=False)
    ],
    "channels": Annotated[
        list[str] | None,
        typer.Option(
            "--channel",
            "-c",
            help="A channel that the feedstock's builds solve from; may be repeated.",
            show_default="conda-forge",
        ),
    ],
    "stack": Annotated[
        str | None,
        typer.Option("--variant", "-V", help="Only this stack's variants.", show_default="every stack that has it"),
    ],
}
"""The options of export feedstock, by the fields of FeedstockRequest."""


@app.command("feedstock")
@handled
@options.grouped(FeedstockRequest, _FEEDSTOCK)
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
