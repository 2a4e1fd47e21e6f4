# SPDX-License-Identifier: BSD-3-Clause
"""The packages that ``plan``, ``build``, ``render``, ``publish`` and ``sources`` are asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

FoundationKind = Literal["registry", "conda-forge"]


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanRequest:
    """What to plan, as requested by a user.

    ``stack`` None means the default one, empty ``packages`` all of its packages, ``foundation`` None the channel's own;
    ``address`` is that of a conda-forge foundation. ``further`` are the addresses or folders of further channels that
    build and host requirements may come from, besides those that the local channel records. ``all_variants`` means
    every Python and PyTorch; otherwise it is the default variant, or the one for the versions in ``python`` and
    ``pytorch``. ``force`` also builds packages that are already in the channel.
    """

    stack: str | None = None
    every_stack: bool = False
    packages: tuple[str, ...] = ()
    all_variants: bool = False
    python: str | None = None
    pytorch: str | None = None
    foundation: FoundationKind | None = None
    address: str | None = None
    further: tuple[str, ...] = ()
    force: bool = False

    @property
    def options(self) -> tuple[str, ...]:
        """The options of ``build`` that request the same packages, on the local channel's foundation."""
        stacks = ("--all",) if self.every_stack else ("--variant", self.stack) if self.stack else ()
        packages = (word for name in self.packages for word in ("--package", name))
        every_variant = ("--all-variants",) if self.all_variants else ()
        python = () if self.python is None else ("--python", self.python)
        pytorch = () if self.pytorch is None else ("--pytorch", self.pytorch)
        return (*stacks, *packages, *every_variant, *python, *pytorch)

    @property
    def in_words(self) -> str:
        """The request as words for a message."""
        stacks = "all stacks" if self.every_stack else f"stack {self.stack}" if self.stack else "the default stack"
        return f"{', '.join(self.packages)} of {stacks}" if self.packages else stacks
