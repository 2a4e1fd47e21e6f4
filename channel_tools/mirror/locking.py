# SPDX-License-Identifier: BSD-3-Clause
"""Locks on their way through a bundle: as conda-lock.yml there, in every format on the far side, with its addresses."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from channel_tools.errors import ConfigError, IntegrityError
from channel_tools.mirror.model import LOCKS_FOLDER, BundleRefusedError
from channel_tools.pins.conda_lock import parse_conda_lock, render_conda_lock
from channel_tools.pins.files import CONDA_LOCK, FORMATS, pin_files, write_pin_files
from channel_tools.pins.published import with_addresses

if TYPE_CHECKING:
    from collections.abc import Mapping

    from channel_tools.pins import Lock


def lock_path(stack: str) -> str:
    """Where a bundle holds the lock of a stack."""
    return f"{LOCKS_FOLDER}/{stack}/{CONDA_LOCK}"


def encode_lock(lock: Lock) -> bytes:
    """A lock as a bundle holds it."""
    return render_conda_lock(lock).encode()


def write_locks(contents: Mapping[str, bytes], folder: Path, addresses: Mapping[str, str]) -> None:
    """Write the locks of a bundle (by path in it) below ``folder``, with channels at their addresses there.

    Raises BundleRefusedError for a lock that cannot be read, DiskFullError.
    """
    for path, content in sorted(contents.items()):
        try:
            lock = parse_conda_lock(content.decode(), Path(path))
        except (ConfigError, IntegrityError, UnicodeDecodeError) as err:
            raise BundleRefusedError("damaged", f"{path}: the lock cannot be read: {err}") from None
        place = folder / Path(path).parent
        place.mkdir(parents=True, exist_ok=True)
        write_pin_files(place, pin_files(with_addresses(lock, addresses), FORMATS))
