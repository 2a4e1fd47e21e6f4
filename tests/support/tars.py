# SPDX-License-Identifier: BSD-3-Clause
"""Unpacking what a test made, on every Python that the program runs on."""

from __future__ import annotations

import os
import tarfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def unpack_tar(archive: tarfile.TarFile, folder: Path, names: tuple[str, ...] | None = None) -> None:
    """Unpack all members, or those called ``names``, through the standard library's filter (since 3.11.4)."""
    members = None if names is None else [archive.getmember(name) for name in names]
    if hasattr(tarfile, "data_filter"):
        archive.extractall(folder, members, filter="data")
        return
    for member in archive.getmembers():  # as the filter does: owners and odd modes are not the point
        member.mode, member.uid, member.gid, member.mtime = member.mode & 0o755 | 0o600, os.getuid(), os.getgid(), 0
    archive.extractall(folder, members)  # noqa: S202 - made by the test
