# SPDX-License-Identifier: BSD-3-Clause
"""Options that several commands share, said once."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from channel_tools.settings import Settings, make_settings


class FoundationChoice(StrEnum):
    """The kinds of foundation a channel can have."""

    REGISTRY = "registry"
    CONDA_FORGE = "conda-forge"


Root = Annotated[
    Path | None,
    typer.Option(
        help="The tree of recipes and variants; else CHANNEL_TOOLS_ROOT, else found upward from here.",
        show_default=False,
    ),
]
Output = Annotated[
    Path | None,
    typer.Option(help="Where results go; else CHANNEL_TOOLS_OUTPUT, else TREE/output.", show_default=False),
]
Stack = Annotated[
    str | None,
    typer.Option(
        "--variant", "-V", help="The stack, as `channel_tools list` names it.", show_default="the default stack"
    ),
]
Packages = Annotated[
    list[str] | None,
    typer.Option("--package", "-p", help="Only this package and what it needs; may be repeated.", show_default="all"),
]
Foundation = Annotated[
    FoundationChoice | None,
    typer.Option(
        "--foundation",
        help="What the channel builds on: made here from wheels and Debian packages, or conda-forge.",
        show_default="the channel's own; registry for a new one",
    ),
]
FoundationAddress = Annotated[
    str | None,
    typer.Option(
        "--foundation-channel",
        help="With --foundation conda-forge: the address of a channel with conda-forge's names.",
        show_default="conda-forge",
    ),
]
Jobs = Annotated[int | None, typer.Option("--jobs", "-j", min=1, help="Packages at once.", show_default="the cores")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]
DryRun = Annotated[bool, typer.Option("--dry-run", "-n", help="Say what would be done; change nothing.")]


def settings_from(root: Path | None, output: Path | None) -> Settings:
    """The locations of a command, from its options and the environment."""
    return make_settings(root=root, output=output, environ=os.environ, cwd=Path.cwd())


def jobs_or_cores(jobs: int | None) -> int:
    """How many packages are built at once: as asked, else as many as this process may use cores."""
    return jobs or len(os.sched_getaffinity(0))
