# SPDX-License-Identifier: BSD-3-Clause
"""Putting new index files in place: all are written and flushed first, then renamed one right after the other.

So a full disk, a kill or a slow compression happens while readers still see the old index everywhere.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from channel_tools.files import TEMPORARY_PREFIX, disk_full_reported

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

File = tuple[Path, bytes]


@contextlib.contextmanager
def staged(files: Sequence[File]) -> Iterator[list[tuple[Path, Path]]]:
    """Write each file beside its destination; yields temporary path and destination, in the given order.

    A destination may stand in it several times. What was not renamed when the block ends is removed. Raises
    DiskFullError.
    """
    holders: dict[Path, Path] = {}
    moves = []
    try:
        for number, (destination, content) in enumerate(files):
            folder = destination.parent
            with disk_full_reported(folder):
                if folder not in holders:
                    folder.mkdir(parents=True, exist_ok=True)
                    holders[folder] = Path(tempfile.mkdtemp(prefix=TEMPORARY_PREFIX, dir=folder))
                temporary = holders[folder] / f"{number}-{destination.name}"
                _write(temporary, content)
            moves.append((temporary, destination))
        yield moves
    finally:
        for holder in holders.values():
            shutil.rmtree(holder, ignore_errors=True)


def put_in_place(moves: Sequence[tuple[Path, Path]]) -> None:
    """Rename the staged files, in order."""
    for temporary, destination in moves:
        os.replace(temporary, destination)  # noqa: PTH105 - nothing between two renames that need not be there


def _write(path: Path, content: bytes) -> None:
    with path.open("wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
