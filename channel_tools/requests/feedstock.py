# SPDX-License-Identifier: BSD-3-Clause
"""What ``export feedstock`` is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, kw_only=True, slots=True)
class FeedstockRequest:
    """Write the feedstock of the recipe ``package`` to the folder ``destination``, which must not exist.

    It has the variants of ``stack``, or else of every stack that has the recipe. ``maintainers`` are GitHub names,
    ``homepage`` is for recipes that name none, ``channels`` are those that its environments are solved from, in order
    of priority; ``conda-forge`` is that channel's name.
    """

    package: str
    destination: Path
    maintainers: tuple[str, ...]
    homepage: str | None = None
    channels: tuple[str, ...] = ("conda-forge",)
    stack: str | None = None
