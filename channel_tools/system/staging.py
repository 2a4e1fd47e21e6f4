# SPDX-License-Identifier: BSD-3-Clause
"""Files that are written beside their destinations in a folder, and put in place together."""

from __future__ import annotations

import collections
import os
from typing import IO, TYPE_CHECKING, Protocol

from channel_tools.system.entries import remove_entry, sync_entry, temporary_name, write_new
from channel_tools.system.files import SYNC_EACH_LIMIT

if TYPE_CHECKING:
    import contextlib


class Destination(Protocol):
    """The folder that files are staged in: a Beneath."""

    def folder(self, name: str = "", *, make: bool = False) -> contextlib.AbstractContextManager[int]:
        """See Beneath.folder."""

    def reported(self, name: str) -> contextlib.AbstractContextManager[None]:
        """See Beneath.reported."""

    def check_replaceable(self, folder: int, name: str) -> None:
        """See Beneath.check_replaceable."""


class Staged:
    """Files that were written beside their destinations, see Beneath.staged."""

    def __init__(self, destination: Destination, stack: contextlib.ExitStack) -> None:
        self._destination = destination
        self._stack = stack
        self._folders: dict[str, int] = {}
        self._moves: collections.deque[tuple[int, str, str]] = collections.deque()

    def add(self, name: str, content: bytes | IO[bytes]) -> None:
        """Write one file from bytes or a stream; several of one name are put in place in this order."""
        parent, _slash, _last = name.rpartition("/")
        if parent not in self._folders:
            self._folders[parent] = self._stack.enter_context(self._destination.folder(parent, make=True))
        temporary = temporary_name()
        self._moves.append((self._folders[parent], temporary, name))
        with self._destination.reported(name):
            write_new(self._folders[parent], temporary, content)

    def sync(self) -> None:
        """Flush them to the disk, many of them together instead of one by one."""
        if len(self._moves) > SYNC_EACH_LIMIT:
            os.sync()
            return
        for folder, temporary, name in self._moves:
            with self._destination.reported(name):
                sync_entry(folder, temporary)

    def put_in_place(self) -> None:
        """Rename them, in order. Raises ChannelError instead of replacing anything but a regular file or a link."""
        while self._moves:
            self._put_next()

    def _put_next(self) -> None:
        folder, temporary, name = self._moves[0]
        with self._destination.reported(name):
            self._destination.check_replaceable(folder, name)
            os.rename(temporary, name.rpartition("/")[2], src_dir_fd=folder, dst_dir_fd=folder)
        self._moves.popleft()

    def discard(self) -> None:
        """Remove those that were not put in place."""
        for folder, temporary, _name in self._moves:
            remove_entry(folder, temporary)
        self._moves.clear()
