# SPDX-License-Identifier: BSD-3-Clause
"""The packages that ``plan``, ``build``, ``render``, ``publish`` and ``sources`` are asked for.

What the commands of ``sources`` are asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from typer import Option

from channel_tools.requests import options
from channel_tools.requests.options import (
    Base,
    Foundation,
    FoundationAddress,
    FurtherChannels,
    Python,
    Pytorch,
    Stack,
    words_of,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class StackPackages:
    """Packages of a stack: by default all of them, in the stack's default variant."""

    stack: Stack = None
    every_stack: Annotated[bool, Option("--all", help="All stacks.")] = False
    packages: Annotated[
        tuple[str, ...],
        Option("--package", "-p", help="Only this package and what it needs; may be repeated.", show_default="all"),
    ] = ()
    all_variants: Annotated[
        bool, Option("--all-variants", help="For every Python and PyTorch, not only the default variant's.")
    ] = False
    python: Python = None
    pytorch: Pytorch = None

    @property
    def options(self) -> tuple[str, ...]:
        """The options of ``build`` that request the same packages, on the local channel's foundation."""
        return tuple(words_of(self, omit={"foundation", "base", "address", "further", "force"}))

    @property
    def in_words(self) -> str:
        """The request as words for a message."""
        stacks = "all stacks" if self.every_stack else f"stack {self.stack}" if self.stack else "the default stack"
        return f"{', '.join(self.packages)} of {stacks}" if self.packages else stacks


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanRequest(StackPackages):
    """What is to be built. ``further`` are the channels besides those that the local channel records."""

    foundation: Foundation = None
    base: Base = None
    address: FoundationAddress = None
    further: FurtherChannels = ()
    force: Annotated[bool, Option("--force", help="Also build what is already in the channel.")] = False


@dataclass(frozen=True, kw_only=True, slots=True)
class RenderRequest(PlanRequest):
    """What ``render`` is asked for: a plan for which nothing is built."""

    further: tuple[str, ...] = ()
    force: bool = False


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
