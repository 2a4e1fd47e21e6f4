# SPDX-License-Identifier: BSD-3-Clause
"""Where the files of a page lie: what a channel folder and one in a bucket have in common for it."""

from __future__ import annotations

import contextlib
import itertools
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Protocol

from channel_tools.channel.model import RECORD_FOLDER
from channel_tools.system.files import remove_leftovers, replace_files, write_bytes_atomically

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from channel_tools.page.model import Build


class PagePlace(Protocol):
    """A channel that a page is written into; all names are relative to it."""

    def url(self, name: str) -> str:
        """A file's path or address in messages."""
        ...

    def read(self, name: str) -> bytes | None:
        """A whole file, None where there is none."""
        ...

    def present(self, names: Collection[str]) -> set[str]:
        """Which of the files, or folders with files in them, are there."""
        ...

    def write(self, files: Sequence[tuple[str, Callable[[], bytes]]]) -> None:
        """Replace files, each as a whole, those that others lead to first. Raises DiskFullError, NetworkError."""
        ...

    def remove(self, names: Iterable[str]) -> None:
        """Remove files that may be gone already."""
        ...

    def package(self, build: Build) -> AbstractContextManager[Path]:
        """The package's file, for as long as the block takes. Raises IntegrityError where it is gone."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class FolderPlace:
    """A channel folder."""

    root: Path

    def url(self, name: str) -> str:
        """As PagePlace."""
        return str(self.root / name)

    def read(self, name: str) -> bytes | None:
        """As PagePlace."""
        try:
            return (self.root / name).read_bytes()
        except FileNotFoundError:
            return None

    def present(self, names: Collection[str]) -> set[str]:
        """As PagePlace."""
        folders = {name.rpartition("/")[0] for name in names}
        found = {
            f"{folder}/{path.name}".lstrip("/")
            for folder in folders
            if (self.root / folder).is_dir()
            for path in (self.root / folder).iterdir()
        }
        return found & set(names)

    def write(self, files: Sequence[tuple[str, Callable[[], bytes]]]) -> None:
        """As PagePlace."""
        for folder, group in itertools.groupby(files, key=lambda file: file[0].rpartition("/")[0]):
            if folder.partition("/")[0] == RECORD_FOLDER:  # which others write to at the same time
                for name, content in group:
                    write_bytes_atomically(self.root / name, content())
                continue
            remove_leftovers(self.root / folder)
            replace_files(self.root / folder, ((PurePosixPath(name).name, content()) for name, content in group))

    def remove(self, names: Iterable[str]) -> None:
        """As PagePlace."""
        for name in names:
            (self.root / name).unlink(missing_ok=True)

    @contextlib.contextmanager
    def package(self, build: Build) -> Iterator[Path]:
        """As PagePlace."""
        yield self.root / build.subdir / build.file_name
