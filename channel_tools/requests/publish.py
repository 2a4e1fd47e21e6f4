# SPDX-License-Identifier: BSD-3-Clause
"""What ``publish`` is asked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from channel_tools.requests import options
from channel_tools.requests.names import FoundationKind
from channel_tools.requests.plan import StackPackages
from channel_tools.system.errors import UsageError


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishRequest:
    """Packages of a stack from the local channel, or package ``files``, and where they are published.

    The files were built on ``foundation`` at ``address``; None: on that of the channels they are in, else the local
    channel's, else the target's.

    Raises UsageError for options that contradict each other.
    """

    plan: StackPackages = field(default_factory=StackPackages)
    files: Annotated[
        tuple[Path, ...],
        Argument(metavar="[FILE]...", help="Package files, in any folder, instead of a stack."),
    ] = ()
    target: Annotated[
        str,
        Option("--to", metavar="TARGET", help="A folder, or the address of a bucket or a server.", show_default=False),
    ]
    label: options.Label = "main"
    foundation: Annotated[
        FoundationKind | None,
        Option(
            "--foundation",
            help="With FILE: the foundation that the packages were built on.",
            show_default="that of the channel they are in, else the local channel's, else the target's",
        ),
    ] = None
    address: options.FoundationAddress = None
    dry_run: options.DryRun = False

    def __post_init__(self) -> None:
        if self.files and (self.plan.stack or self.plan.every_stack or self.plan.packages):
            raise UsageError("publish takes package files or a stack, not both", hint="run it twice")
        if not self.files and (self.foundation or self.address):
            hint = "a stack is published with the local channel's"
            raise UsageError("--foundation without package files", hint=hint)
