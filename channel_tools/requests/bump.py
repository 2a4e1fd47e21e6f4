# SPDX-License-Identifier: BSD-3-Clause
"""What ``bump`` is asked for."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated

from typer import Argument, Option

from channel_tools.system.errors import UsageError


@dataclass(frozen=True, kw_only=True, slots=True)
class BumpRequest:
    """The recipe and its new version. Raises UsageError for a sha256 or a commit that cannot be one."""

    package: Annotated[str, Argument(help="A recipe, by its folder's name.", show_default=False)]
    version: Annotated[str, Argument(help="The new version.", show_default=False)]
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
        for option, digits, value in (("--sha256", 64, self.sha256), ("--commit", 40, self.commit)):
            if value is not None and not re.fullmatch(rf"[0-9a-f]{{{digits}}}", value):
                message = f"{option} must be {digits} hexadecimal digits in lower case, got {value!r}"
                raise UsageError(message, hint="copy it from the release's page, or leave it out")
