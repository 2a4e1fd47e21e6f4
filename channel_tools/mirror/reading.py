# SPDX-License-Identifier: BSD-3-Clause
"""A bundle as it lies there, folder or tar file: names, sizes, and streams. Nothing here is trusted or judged yet."""

from __future__ import annotations

import contextlib
import io
import os
import stat
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Protocol

from channel_tools.errors import UsageError
from channel_tools.mirror.model import METADATA_FOLDER, BundleRefusedError, bundle_damaged, is_safe_path
from channel_tools.mirror.tarfiles import Member, read_members

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path


class BundleReader(Protocol):
    """What verifying and importing ask of a bundle."""

    @property
    def path(self) -> Path:
        """Where it lies."""
        ...

    @property
    def sizes(self) -> Mapping[str, int]:
        """All files by their path in it, with their sizes."""
        ...

    def open(self, name: str) -> contextlib.AbstractContextManager[IO[bytes]]:
        """One file as a stream. Raises BundleRefusedError when it cannot be read."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class FolderReader:
    """A bundle in a folder."""

    path: Path
    sizes: Mapping[str, int]

    @contextlib.contextmanager
    def open(self, name: str) -> Iterator[IO[bytes]]:
        """As BundleReader; links are not followed."""
        try:
            descriptor = os.open(self.path / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as err:
            raise bundle_damaged(self.path / name, f"cannot be read: {err.strerror}") from None
        with os.fdopen(descriptor, "rb") as stream:
            yield stream


class _Window(io.RawIOBase):
    """A part of a file as a stream of its own."""

    def __init__(self, stream: IO[bytes], member: Member) -> None:
        self._stream = stream
        self._left = member.size_bytes
        stream.seek(member.offset)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # the only kind io hands over
        count = self._stream.readinto(memoryview(buffer)[: self._left])  # type: ignore[attr-defined]
        self._left -= count
        return int(count)


@dataclass(frozen=True, kw_only=True, slots=True)
class TarReader:
    """A bundle in a tar file, read in place."""

    path: Path
    members: Mapping[str, Member]

    @property
    def sizes(self) -> Mapping[str, int]:
        """As BundleReader."""
        return {name: member.size_bytes for name, member in self.members.items()}

    @contextlib.contextmanager
    def open(self, name: str) -> Iterator[IO[bytes]]:
        """As BundleReader."""
        with self.path.open("rb", buffering=0) as stream:
            yield io.BufferedReader(_Window(stream, self.members[name]))


def read_some(reader: BundleReader, stream: IO[bytes], amount: int) -> bytes:
    """At most ``amount`` bytes of a bundle's file. Raises BundleRefusedError when the medium gives none."""
    try:
        return stream.read(amount)
    except OSError as err:
        raise bundle_damaged(reader.path, f"cannot be read: {err.strerror}") from err


def open_bundle(path: Path) -> BundleReader:
    """The bundle at ``path``. Raises UsageError when none is there, BundleRefusedError for what no bundle may hold."""
    if path.is_dir():
        reader: BundleReader = FolderReader(path=path, sizes=dict(_walk(path)))
    elif path.is_file():
        reader = TarReader(path=path, members=read_members(path))
    else:
        raise UsageError(f"{path}: there is no such file or folder", hint="channel_tools mirror create makes a bundle")
    if f"{METADATA_FOLDER}/timestamp.json" not in reader.sizes:
        raise bundle_damaged(path, f"no bundle here; {METADATA_FOLDER}/timestamp.json is missing")
    return reader


def _walk(folder: Path) -> Iterator[tuple[str, int]]:
    waiting = [""]
    while waiting:
        below = waiting.pop()
        with os.scandir(folder / below) as entries:
            for entry in entries:
                name = below + entry.name
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISDIR(status.st_mode):
                    waiting.append(name + "/")
                elif not stat.S_ISREG(status.st_mode):
                    raise BundleRefusedError("unsafe", f"{folder / name}: is no plain file; a bundle holds only those")
                elif not is_safe_path(name):
                    raise BundleRefusedError("added", f"{folder / name}: no bundle holds a file of this name")
                else:
                    yield name, status.st_size
