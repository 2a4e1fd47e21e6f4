# SPDX-License-Identifier: BSD-3-Clause
"""What ``init`` is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pathlib import Path

CiService = Literal["github", "gitlab"]


@dataclass(frozen=True, kw_only=True, slots=True)
class InitRequest:
    """The tree to start: its folder, the tree that it builds on (a folder, or ``ADDRESS@REV``), and a CI service."""

    folder: Path
    upstream: str | None = None
    ci: CiService | None = None
