# SPDX-License-Identifier: BSD-3-Clause
"""Options that several commands share, said once."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from channel_tools.errors import UsageError
from channel_tools.settings import ROOT_VARIABLE, Settings, find_cache, make_settings, package_cache_in

if TYPE_CHECKING:
    from channel_tools.workflow.planning import PlanRequest

# the same closed set as channel_tools.matrix.FoundationKind, whose package is too slow to import for --help
FoundationKind = Literal["registry", "conda-forge"]
EngineName = Literal["rattler-build", "conda-build"]  # of channel_tools.build.model, likewise

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
Every = Annotated[bool, typer.Option("--all", help="All stacks.")]
Force = Annotated[bool, typer.Option("--force", help="Build also what is in the channel already.")]
Packages = Annotated[
    list[str] | None,
    typer.Option("--package", "-p", help="Only this package and what it needs; may be repeated.", show_default="all"),
]
Foundation = Annotated[
    FoundationKind | None,
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
Update = Annotated[bool, typer.Option("--update", help="Look for newer versions of what the foundation takes.")]
Locked = Annotated[
    Path | None,
    typer.Option("--locked", help="Take exactly the versions and hashes of this foundation.json.", show_default=False),
]
With = Annotated[
    list[str] | None,
    typer.Option(
        "--with",
        help="Make this optional package of the foundation's table as well; may be repeated.",
        show_default="those that were asked for before",
    ),
]
Jobs = Annotated[int | None, typer.Option("--jobs", "-j", min=1, help="Packages at once.", show_default="the cores")]
Engine = Annotated[
    EngineName,
    typer.Option(
        "--engine", help="What builds: the engine that comes with this program, or the conda-build on the PATH."
    ),
]
Offline = Annotated[
    bool,
    typer.Option(
        "--offline", help="Download nothing: sources from the source store, the foundation from kept downloads."
    ),
]
Channels = Annotated[
    list[str] | None,
    typer.Option(
        "--channel",
        "-c",
        help="Install from this address or folder; may be repeated.",
        show_default="the local channel",
    ),
]
VirtualPackages = Annotated[
    list[str] | None,
    typer.Option(
        "--virtual-package",
        help="Assume this of the machine: __cuda=12.9, linux-64:__glibc=2.28, __cuda= (none); may be repeated.",
        show_default="what is found here",
    ),
]
To = Annotated[
    str,
    typer.Option(
        "--to", metavar="TARGET", help="A folder, or the address of a bucket or a server.", show_default=False
    ),
]
At = Annotated[
    str, typer.Option("--at", metavar="TARGET", help="The target: what was given to publish --to.", show_default=False)
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]
DryRun = Annotated[bool, typer.Option("--dry-run", "-n", help="Say what would be done; change nothing.")]


@dataclass(frozen=True, kw_only=True)
class PlanOptions:
    """What is to be planned, and where."""

    stack: Stack = None
    every_stack: Every = False
    packages: Packages = None
    force: Force = False
    foundation: Foundation = None
    address: FoundationAddress = None
    root: Root = None
    output: Output = None

    @property
    def settings(self) -> Settings:
        """The locations of the command."""
        return settings_from(self.root, self.output)

    @property
    def request(self) -> PlanRequest:
        """What to plan."""
        from channel_tools.workflow.planning import PlanRequest  # noqa: PLC0415

        return PlanRequest(
            stack=self.stack,
            every_stack=self.every_stack,
            packages=tuple(self.packages or ()),
            foundation=self.foundation,
            address=self.address,
            force=self.force,
        )


def settings_from(root: Path | None, output: Path | None) -> Settings:
    """The locations of a command, from its options and the environment."""
    return make_settings(root=root, output=output, environ=os.environ, cwd=Path.cwd())


def settings_if_any(root: Path | None, output: Path | None) -> Settings | None:
    """As settings_from, for commands that also work where there is no tree; None there, unless one was named."""
    try:
        return settings_from(root, output)
    except UsageError:
        if root is not None or output is not None or ROOT_VARIABLE in os.environ:
            raise
        return None


def package_cache() -> Path:
    """The package cache, for commands that need no tree."""
    return package_cache_in(find_cache(os.environ))


def available_cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0))
