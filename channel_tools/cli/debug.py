# SPDX-License-Identifier: BSD-3-Clause
"""``channel_tools debug``: a shell in a failed build."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from channel_tools.cli import options
from channel_tools.cli.console import handled, print_note
from channel_tools.system.errors import UsageError
from channel_tools.system.settings import available_cores

if TYPE_CHECKING:
    from pathlib import Path

_Package = Annotated[str, typer.Argument(help="The package's name, or the name of its folder in output/work.")]
_Command = Annotated[
    list[str] | None,
    typer.Argument(metavar="[-- COMMAND...]", help="The command to run instead of a shell.", show_default=False),
]


@handled
def debug(
    package: _Package,
    command: _Command = None,
    *,
    root: options.Root = None,
    output: options.Output = None,
) -> None:
    """Open a shell in a failed build: in its work folder, with its environments and variables."""
    if command and command[0].startswith("-"):
        message = f"{command[0]}: stands after the package, where the command begins"
        raise UsageError(message, hint=f"give options before the package: channel_tools debug [OPTIONS] {package}")
    from channel_tools.workflow.debug import debug_build

    status = debug_build(
        options.settings_from(root, output),
        package,
        command or [],
        cores=available_cores(),
        environ=os.environ,
        on_found=_say_where,
    )
    raise typer.Exit(status)


def _say_where(folder: Path) -> None:
    print_note(f"in {folder}; bash conda_build.sh runs the build script again, on the existing files")
