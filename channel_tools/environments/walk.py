# SPDX-License-Identifier: BSD-3-Clause
"""Walks a prefix by directory entries.

An environment holds tens of thousands of files; a path object for each would cost more than looking at it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def walk_entries(folder: str | Path) -> Iterator[os.DirEntry[str]]:
    """Everything below ``folder`` that is not a folder itself, symbolic links to folders included."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from walk_entries(entry.path)
            else:
                yield entry
