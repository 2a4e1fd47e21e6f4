# SPDX-License-Identifier: BSD-3-Clause
"""What ``publish`` is asked for.

What ``channel page`` is asked for.
"""

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
    channel's, else the target's. A bucket (``s3://``) becomes a copy of ``source``, a channel's folder (None: the local
    channel), with all that is published there.

    Raises UsageError for options that contradict each other.
    """

    plan: StackPackages = field(default_factory=StackPackages)
    files: Annotated[
        tuple[Path, ...],
        Argument(metavar="[FILE]...", help="Package files, in any folder, instead of a stack."),
    ] = ()
    target: Annotated[
        str,
        Option(
            "--to",
            metavar="TARGET",
            help="A folder, or the address of a server; a bucket (s3://) becomes a copy of a channel's folder.",
            show_default=False,
        ),
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
    source: Annotated[
        Path | None,
        Option(
            "--from",
            metavar="FOLDER",
            help="With s3://: the channel's folder to copy.",
            show_default="the local channel",
        ),
    ] = None
    dry_run: options.DryRun = False

    @property
    def is_copy(self) -> bool:
        """Whether the target is a bucket, which becomes a copy of a folder."""
        from channel_tools.conda.addresses import scheme_of

        return scheme_of(self.target) == "s3"

    def __post_init__(self) -> None:
        if self.is_copy:
            if self.files or self.foundation or self.address or self.label != "main" or self.plan != StackPackages():
                from channel_tools.conda.addresses import without_credentials

                shown = without_credentials(self.target)
                message = f"{shown}: a bucket is a copy of a channel's folder, with all that is published there"
                raise UsageError(message, hint="publish into the folder first, then give --to and --from alone")
            return
        if self.source is not None:
            raise UsageError("--from is for buckets (--to s3://...)", hint="name package files instead")
        if self.files and (self.plan.stack or self.plan.every_stack or self.plan.packages):
            raise UsageError("publish takes package files or a stack, not both", hint="run it twice")
        if not self.files and (self.foundation or self.address):
            hint = "a stack is published with the local channel's"
            raise UsageError("--foundation without package files", hint=hint)


@dataclass(frozen=True, kw_only=True, slots=True)
class PageRequest:
    """The page of a label, and what it says. What is None stays as it was given last."""

    at: Annotated[
        str | None,
        Option("--at", metavar="FOLDER", help="The channel's folder.", show_default="the local channel"),
    ] = None
    label: Annotated[str, Option("--label", help="The label; main is the target's own address.")] = "main"
    address: Annotated[
        str | None,
        Option(help="The channel's address for clients, shown in the page's commands.", show_default="as given last"),
    ] = None
    title: Annotated[str | None, Option(help="The channel's title on the page.", show_default="its folder's name")] = (
        None
    )
    sentence: Annotated[
        str | None,
        Option(help="What the channel is for, in a sentence; none removes it.", show_default="as given last"),
    ] = None
    contact: Annotated[
        str | None,
        Option(help="An e-mail or web address for questions; none removes it.", show_default="as given last"),
    ] = None
