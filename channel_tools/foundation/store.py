# SPDX-License-Identifier: BSD-3-Clause
"""The download store: .debs and wheels by sha256, ``<downloads>/<sha256>/<file name>``.

A file enters by a rename after its bytes were hashed, so a name in the store is a promise; it is checked once more
before use, because a disk or a copy of the folder may have broken it since.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from channel_tools.system.errors import IntegrityError
from channel_tools.system.files import disk_full_reported, link_or_copy, sha256_of_file

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from channel_tools.foundation.model import LockedArtifact

_HASHING_THREADS = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class DownloadStore:
    """A folder of downloads, shared by all that run as this user."""

    folder: Path

    @property
    def incoming(self) -> Path:
        """Where downloads grow; what is complete there moves into the store, what is not is continued or dropped."""
        return self.folder / "incoming"

    @property
    def lock_file(self) -> Path:
        """The lock of whoever downloads."""
        return self.folder / ".lock"

    def path_of(self, taken: LockedArtifact) -> Path:
        """Where the file is or would be."""
        return self.folder / taken.sha256 / taken.file_name

    def missing(self, wanted: Iterable[LockedArtifact]) -> list[LockedArtifact]:
        """Those that the store lacks. Files whose bytes are not their name's are removed and count as missing."""
        files = sorted(set(wanted), key=lambda taken: (taken.kind, taken.name, taken.version))
        with ThreadPoolExecutor(_HASHING_THREADS) as pool:
            complete = list(pool.map(self._is_complete, files))
        return [taken for taken, is_complete in zip(files, complete, strict=True) if not is_complete]

    def accept(self, downloaded: Path, taken: LockedArtifact) -> Path:
        """Move a downloaded file into the store. Raises IntegrityError when it is not the file that was expected."""
        size_bytes = downloaded.stat().st_size
        sha256 = sha256_of_file(downloaded)
        if sha256 != taken.sha256:
            message = (
                f"{taken.kind} {taken.name} {taken.version} ({taken.file_name}): got {size_bytes} bytes with sha256 "
                f"{sha256}, expected {taken.size_bytes} bytes with sha256 {taken.sha256}"
            )
            raise IntegrityError(message, hint="run the command again; if it stays, the mirror or a proxy is at fault")
        destination = self.path_of(taken)
        with disk_full_reported(self.folder):
            destination.parent.mkdir(parents=True, exist_ok=True)
            with downloaded.open("rb") as stream:
                os.fsync(stream.fileno())
            if downloaded.is_symlink():  # apt's way with packages of a file: source
                link_or_copy(downloaded.resolve(), destination)
                downloaded.unlink()
            else:
                downloaded.replace(destination)
        return destination

    def _is_complete(self, taken: LockedArtifact) -> bool:
        path = self.path_of(taken)
        if not path.is_file():
            return False
        if taken.size_bytes in (0, path.stat().st_size) and sha256_of_file(path) == taken.sha256:
            return True
        path.unlink()
        return False
