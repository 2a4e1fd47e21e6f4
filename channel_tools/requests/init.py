# SPDX-License-Identifier: BSD-3-Clause
"""What ``init`` is asked for.

What ``bump`` is asked for.

What ``export feedstock`` is asked for.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from channel_tools.requests.names import CiService
from channel_tools.system.errors import UsageError


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


@dataclass(frozen=True, kw_only=True, slots=True)
class BumpRequest:
    """The recipe and its new version, or the latest one of it or of all recipes.

    Raises UsageError for options that contradict each other, and a sha256 or a commit that cannot be one.
    """

    package: Annotated[
        str, Argument(help="A recipe, by its folder's name.", show_default="with --latest: each of the tree's own")
    ] = ""
    version: Annotated[str, Argument(help="The new version.", show_default=False)] = ""
    latest: Annotated[
        bool, Option("--latest", help="The newest version that upstream's tags, or the source's folder, have.")
    ] = False
    old: Annotated[
        str | None, Option("--from", metavar="VERSION", help="The version to replace.", show_default="the only one")
    ] = None
    sha256: Annotated[
        str | None,
        Option("--sha256", metavar="HEX", help="Of the new version's source.", show_default="as it is downloaded"),
    ] = None
    commit: Annotated[
        str | None, Option("--commit", metavar="HEX", help="The commit of the new version, for a source from git.")
    ] = None
    stack: Annotated[
        str | None,
        Option(
            "--variant",
            "-V",
            help="For an upstream's recipe: change the override of this stack alone.",
            show_default="every stack of the tree that builds it",
        ),
    ] = None
    check: Annotated[bool, Option("--check", help="Say what would change, and write nothing.")] = False

    def __post_init__(self) -> None:
        if self.latest == bool(self.version):
            message = "--latest with a version" if self.latest else "nothing says which version"
            raise UsageError(message, hint="channel_tools bump RECIPE VERSION, or channel_tools bump RECIPE --latest")
        if not self.package and (self.old or self.sha256 or self.commit or self.stack):
            message = "--from, --sha256, --commit and --variant are of one recipe, and none is named"
            raise UsageError(message, hint="channel_tools bump RECIPE --latest")
        for option, digits, value in (("--sha256", 64, self.sha256), ("--commit", 40, self.commit)):
            if value is not None and not re.fullmatch(rf"[0-9a-f]{{{digits}}}", value):
                message = f"{option} must be {digits} hexadecimal digits in lower case, got {value!r}"
                raise UsageError(message, hint="copy it from the release's page, or leave it out")


@dataclass(frozen=True, kw_only=True, slots=True)
class FeedstockRequest:
    """The recipe to export as a feedstock, and where to; ``channels`` are in order of priority."""

    package: Annotated[str, Argument(help="A recipe, by its folder's name.", show_default=False)]
    destination: Annotated[Path, Option("--output-dir", "-o", help="The feedstock's folder; must not exist.")]
    maintainers: Annotated[
        tuple[str, ...], Option("--maintainer", help="GitHub name of a maintainer; may be repeated.")
    ]
    homepage: Annotated[str | None, Option(help="The homepage, for a recipe that names none.", show_default=False)] = (
        None
    )
    channels: Annotated[
        tuple[str, ...],
        Option(
            "--channel",
            "-c",
            help="A channel that the feedstock's builds solve from; may be repeated.",
            show_default="conda-forge",
        ),
    ] = ("conda-forge",)
    stack: Annotated[
        str | None,
        Option("--variant", "-V", help="Only this stack's variants.", show_default="every stack that has it"),
    ] = None
