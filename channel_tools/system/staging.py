# SPDX-License-Identifier: BSD-3-Clause
"""Files that are written beside their destinations in a folder, and put in place together."""

from __future__ import annotations

import collections
import os
from typing import IO, TYPE_CHECKING

from channel_tools.system.entries import remove_entry, status_at, sync_entry, temporary_name, write_new
from channel_tools.system.files import SYNC_EACH_LIMIT, kind_of

if TYPE_CHECKING:
    import contextlib

    from channel_tools.system.beneath import Beneath


class Staged:
    """Files that were written beside their destinations, see Beneath.staged."""

    def __init__(self, beneath: Beneath, stack: contextlib.ExitStack) -> None:
        self._beneath = beneath
        self._stack = stack
        self._folders: dict[str, int] = {}
        self._moves: collections.deque[tuple[int, str, str]] = collections.deque()

    def add(self, name: str, content: bytes | IO[bytes]) -> None:
        """Write one file from bytes or a stream; several of one name are put in place in this order."""
        parent, _slash, _last = name.rpartition("/")
        if parent not in self._folders:
            self._folders[parent] = self._stack.enter_context(self._beneath.folder(parent, make=True))
        temporary = temporary_name()
        self._moves.append((self._folders[parent], temporary, name))
        with self._beneath.reported(name):
            write_new(self._folders[parent], temporary, content)

    def sync(self) -> None:
        """Flush them to the disk, many of them together instead of one by one."""
        if len(self._moves) > SYNC_EACH_LIMIT:
            os.sync()
            return
        for folder, temporary, name in self._moves:
            with self._beneath.reported(name):
                sync_entry(folder, temporary)

    def put_in_place(self) -> None:
        """Rename them, in order. Raises ChannelError instead of replacing anything but a regular file or a link."""
        while self._moves:
            self._put_next()

    def _put_next(self) -> None:
        folder, temporary, name = self._moves[0]
        with self._beneath.reported(name):
            check_replaceable(self._beneath, folder, name)
            os.rename(temporary, name.rpartition("/")[2], src_dir_fd=folder, dst_dir_fd=folder)
        self._moves.popleft()

    def discard(self) -> None:
        """Remove those that were not put in place."""
        for folder, temporary, _name in self._moves:
            remove_entry(folder, temporary)
        self._moves.clear()


def check_replaceable(files: Beneath, folder: int, name: str) -> None:
    """Raise ChannelError if ``name``, which is in the open folder, is something else than a regular file or a link."""
    status = status_at(folder, name.rpartition("/")[2])
    if status is not None and (kind := kind_of(status.st_mode)) is not None:
        raise files.unexpected(name, kind)
