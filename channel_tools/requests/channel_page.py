# SPDX-License-Identifier: BSD-3-Clause
"""What ``channel page`` is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, kw_only=True, slots=True)
class PageRequest:
    """The page of the channel ``label`` at ``at`` (a folder or a bucket's address, None: the local channel).

    ``address`` is that for clients. What is None stays as it was given last; ``none`` takes away the ``sentence``, the
    ``contact``, the ``logo`` (a PNG or SVG file) or the ``accent`` (``#rrggbb``). ``with_logs`` publishes the builds'
    logs.
    """

    at: str | None = None
    label: str = "main"
    address: str | None = None
    title: str | None = None
    sentence: str | None = None
    contact: str | None = None
    logo: Path | None = None
    accent: str | None = None
    with_logs: bool | None = None
