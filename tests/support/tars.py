# SPDX-License-Identifier: BSD-3-Clause
"""Making tar archives of a few members, and unpacking what a test made."""

from __future__ import annotations

import io
import os
import tarfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def plain_tar(members: Mapping[str, bytes | tarfile.TarInfo | tuple[tarfile.TarInfo, bytes]]) -> bytes:
    """An archive that is not compressed: of each name its content, a member that has none, as links, or both."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for name, content in members.items():
            if isinstance(content, tarfile.TarInfo):
                tar.addfile(content)
                continue
            header, data = content if isinstance(content, tuple) else (tarfile.TarInfo(name), content)
            header.size = len(data)
            tar.addfile(header, io.BytesIO(data))
    return stream.getvalue()


def unpack_tar(archive: tarfile.TarFile, folder: Path, names: tuple[str, ...] | None = None) -> None:
    """Unpack all members, or those called ``names``, through the filter that Python has since 3.11.4."""
    members = None if names is None else [archive.getmember(name) for name in names]
    if hasattr(tarfile, "data_filter"):
        archive.extractall(folder, members, filter="data")
        return
    for member in archive.getmembers():  # as the filter does: owners and odd modes are not the point
        member.mode, member.uid, member.gid, member.mtime = member.mode & 0o755 | 0o600, os.getuid(), os.getgid(), 0
    archive.extractall(folder, members)  # noqa: S202 - made by the test
