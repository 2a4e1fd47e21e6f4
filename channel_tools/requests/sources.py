# SPDX-License-Identifier: BSD-3-Clause
"""What the commands of ``sources`` are asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from typer import Option

from channel_tools.requests import options


@dataclass(frozen=True, kw_only=True, slots=True)
class SourcesRequest:
    """Whose sources are meant: of recipes that ``stack`` has, or of ``every_stack``.

    The foundation decides only which recipes a stack has; None: those on any.
    """

    stack: options.Stack = None
    packages: Annotated[
        tuple[str, ...],
        Option("--package", "-p", help="Only this package and what it needs; may be repeated.", show_default="all"),
    ] = ()
    foundation: options.Foundation = None
    every_stack: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class FetchRequest(SourcesRequest):
    """The same for what is fetched, where one stack is the default."""

    every_stack: Annotated[bool, Option("--all", help="All stacks.")] = False
