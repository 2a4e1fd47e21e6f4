# SPDX-License-Identifier: BSD-3-Clause
"""What ``init`` is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from channel_tools.requests.names import CiService


@dataclass(frozen=True, kw_only=True, slots=True)
class InitRequest:
    """The tree to start."""

    folder: Annotated[Path, Argument(help="The new folder; its name is the stack's.", show_default=False)]
    upstream: Annotated[
        str | None,
        Option(
            "--upstream",
            metavar="FOLDER|ADDRESS@REV",
            help="A tree to build on: a folder, or a git repository and a tag, branch or commit of it.",
            show_default="none",
        ),
    ] = None
    ci: Annotated[
        CiService | None, Option("--ci", help="Write a workflow that plans, builds and publishes.", show_default="none")
    ] = None
