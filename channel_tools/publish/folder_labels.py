# SPDX-License-Identifier: BSD-3-Clause
"""The labels of a folder: where they lie, who may write, and what they hold of each other's names."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from channel_tools.channel import channel_writer, create_channel, find_files, open_channel
from channel_tools.channel.model import RECORD_FOLDER
from channel_tools.errors import ChannelError, UsageError
from channel_tools.publish.labels import LABEL_FOLDER, label_path
from channel_tools.publish.model import MAIN_LABEL

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from pathlib import Path

    from channel_tools.channel import Channel, ChannelWriter, Foundation, HeldFile


@dataclass(frozen=True, kw_only=True, slots=True)
class FolderLabels:
    """The root is label ``main``, every other label a channel folder at ``label/NAME`` below it.

    The root's writer's lock guards all of them, so that no name gets other bytes under one label while it is published
    under another.
    """

    root: Path
    clock: Callable[[], float]
    wait_s: float

    def names(self) -> list[str]:
        """The labels that there are, main first. Raises ChannelError when the root is no channel of ours."""
        if not self.is_there():
            return []
        folder = self.root / LABEL_FOLDER
        places = sorted(folder.iterdir()) if folder.is_dir() else []
        return [MAIN_LABEL, *(place.name for place in places if (place / RECORD_FOLDER).is_dir())]

    def is_there(self) -> bool:
        """Whether anything was published yet. Raises ChannelError when the root is no channel of ours."""
        if not self.root.exists() or not any(self.root.iterdir()):
            return False
        open_channel(self.root)
        return True

    def place(self, label: str) -> Path:
        """The label's channel folder, which need not exist."""
        return self.root / label_path(label)

    def existing(self, label: str) -> Channel:
        """The label's channel. Raises UsageError when there is none."""
        if not self.is_there() or not self.place(label).exists():
            known = ", ".join(self.names()) or "none, nothing was published yet"
            raise UsageError(f"{self.root}: has no label {label!r}", hint=f"labels there: {known}")
        return open_channel(self.place(label))

    @contextlib.contextmanager
    def writer(self, label: str, foundation: Foundation) -> Iterator[ChannelWriter]:
        """The label's channel with its lock and the root's held; both are made when they are not there.

        Raises ChannelError when another publisher is at it for longer than ``wait_s``.
        """
        place = self.place(label)
        with contextlib.ExitStack() as stack:
            for path in dict.fromkeys((self.root, place)):
                channel = self._opened(path, foundation)
                writer = stack.enter_context(channel_writer(channel, clock=self.clock, wait_s=self.wait_s))
            yield writer

    def held_elsewhere(self, label: str, keys: Collection[str]) -> dict[str, HeldFile]:
        """Those of the names that labels other than ``label`` hold."""
        found: dict[str, HeldFile] = {}
        for other in self.names():
            missing = [key for key in keys if key not in found]
            if other != label and missing:
                found |= find_files(open_channel(self.place(other)), missing)
        return found

    def _opened(self, path: Path, foundation: Foundation) -> Channel:
        if not path.exists() or not any(path.iterdir()):
            try:
                return create_channel(path, foundation)
            except ChannelError:
                if not (path / RECORD_FOLDER).exists():  # else another publisher has just made it
                    raise
        return open_channel(path, foundation=foundation)
