# SPDX-License-Identifier: BSD-3-Clause
"""The values of the feedstock stage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from channel_tools.matrix.model import VariantScalar


@dataclass(frozen=True, kw_only=True, slots=True)
class FeedstockRequest:
    """What the tree does not say and a feedstock needs.

    ``maintainers`` are GitHub names, ``homepage`` is for recipes that name none, ``channels`` are where its
    environments are solved from, in order of priority; conda-forge stands for itself.
    """

    maintainers: tuple[str, ...]
    homepage: str | None = None
    channels: tuple[str, ...] = ("conda-forge",)


@dataclass(frozen=True, kw_only=True, slots=True)
class Feedstock:
    """A written feedstock: its folder, its platforms, and the keys of its conda_build_config.yaml."""

    folder: Path
    platforms: tuple[str, ...]
    keys: Mapping[str, tuple[VariantScalar, ...]]
