# SPDX-License-Identifier: BSD-3-Clause
"""What an installed environment is made of, without types of the installer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, kw_only=True, slots=True)
class InstalledPackage:
    """One package of an environment; ``sha256`` is empty where the channel's index names none."""

    name: str
    version: str
    build: str
    subdir: str
    channel: str
    file_name: str
    sha256: str


@dataclass(frozen=True, kw_only=True, slots=True)
class EnvironmentResult:
    """An environment after it was brought to its solution.

    ``records`` are sorted by name, ``changed`` counts packages linked, replaced or removed (0: it was there already),
    ``size_bytes`` is what the prefix's files hold, hard links to the package cache included once.
    """

    prefix: Path
    records: tuple[InstalledPackage, ...]
    changed: int
    seconds: float
    size_bytes: int
