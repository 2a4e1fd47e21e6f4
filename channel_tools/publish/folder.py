# SPDX-License-Identifier: BSD-3-Clause
"""Channels in a folder. Labels share files by hard links; what was read completely for one is not read for another.

The root is label ``main``, every other label is a channel folder at ``label/NAME`` below it. The root's writer lock
guards all of them, so a name cannot get other bytes under one label while it is published under another.
"""

from __future__ import annotations

import contextlib
import stat
import time
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from channel_tools.channel import add_set, channel_writer, ensure_channel, indexed_files, open_channel
from channel_tools.channel.model import RECORD_FOLDER
from channel_tools.channel.state import read_listing, read_state
from channel_tools.channel.store import record_further
from channel_tools.conda.addresses import local_path, parse_address, scheme_of
from channel_tools.conda.package import PackageKey, sidecar_of, subdirs_of
from channel_tools.page.write import SETTINGS, follow_change, paged_folder
from channel_tools.publish.channels import ChannelTarget, compare
from channel_tools.publish.model import LABEL_FOLDER, MAIN_LABEL, is_label, label_path
from channel_tools.system.beneath import Beneath, folder_of, status_in
from channel_tools.system.errors import UsageError
from channel_tools.system.files import check_replaceable
from channel_tools.system.settings import user_path

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping
    from pathlib import Path

    from channel_tools.channel import Channel, ChannelWriter, Foundation
    from channel_tools.channel.listing import Listing
    from channel_tools.channel.maintenance import Retention, RetentionPlan
    from channel_tools.channel.records import CachedPackage
    from channel_tools.channel.state import SubdirState
    from channel_tools.page.write import PagedChannel
    from channel_tools.publish.channels import Change, LabelComparison
    from channel_tools.publish.model import Comparison
    from channel_tools.system.progress import Progress


def open_folder(address: str, environ: Mapping[str, str]) -> FolderTarget:
    """The target for a path or a ``file://`` address; the folder need not exist yet.

    Raises UsageError if it does not name a folder, FileAccessError for a device, a pipe or a socket.
    """
    del environ
    if not address:
        raise UsageError("'': not a place to publish to", hint="give a folder or an address")
    if scheme_of(address):
        parse_address(address)
    path = (local_path(address) or user_path(address)).absolute()
    check_replaceable(path, folder=True)
    return FolderTarget(root=path)


class FolderContent:
    """The content of a label's channel folder, read on demand; only intact files that exist."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self._states: dict[str, SubdirState] = {}

    @cached_property
    def listing(self) -> Listing:
        """The content of listing.json."""
        return read_listing(self.channel)

    def package(self, key: str) -> CachedPackage | None:
        """The row of a file, if it exists."""
        if self.channel.files.file_stat(key) is None or key in self.listing.incoming:
            return None
        parsed = PackageKey.parse(key)
        if parsed.subdir not in self._states:
            self._states[parsed.subdir] = read_state(self.channel, parsed.subdir)
        return self._states[parsed.subdir].records.packages.get(parsed.file_name)

    def rows(self) -> dict[str, dict[str, CachedPackage]]:
        """The rows of all existing files."""
        rows: dict[str, dict[str, CachedPackage]] = {subdir: {} for subdir in subdirs_of(self.channel.files)}
        for key, file in indexed_files(self.channel, rows).items():
            rows[key.subdir][key.file_name] = file.row
        return rows

    def listed(self) -> Collection[str]:
        """The names in the latest index."""
        from channel_tools.channel.maintenance import listed_names  # noqa: PLC0415 - imports rattler

        return listed_names(self.channel)


@dataclass(frozen=True, kw_only=True, slots=True)
class FolderTarget(ChannelTarget):
    """A folder to publish to; it is created if missing."""

    root: Path
    clock: Callable[[], float] = time.time
    wait_s: float = 60.0
    """How long to wait for another writer to finish."""
    within: Path | None = None
    """A folder that others can write to and that files to be published are in, such as a server's uploads."""

    @property
    def address(self) -> str:
        """The ``file://`` address of label ``main``."""
        return self.root.as_uri()

    def labels(self) -> list[str]:
        """The existing labels, main first. Raises ChannelError if the root is not a channel of channel_tools."""
        if not self._is_there():
            return []
        files = Beneath(root=self.root)
        names = [f"{LABEL_FOLDER}/{name}" for name in files.names(LABEL_FOLDER) if is_label(name)]
        folders = [name for name in names if (status := files.stat(name)) and stat.S_ISDIR(status.st_mode)]
        labels = [name for name in folders if files.stat(f"{name}/{RECORD_FOLDER}") is not None]
        return [MAIN_LABEL, *(name.removeprefix(f"{LABEL_FOLDER}/") for name in labels)]

    def _is_there(self) -> bool:
        """Whether the channel exists. Raises ChannelError if the root is not a channel of channel_tools."""
        if not self.root.exists() or not Beneath(root=self.root).names():
            return False
        open_channel(self.root)
        return True

    def label_folder(self, label: str) -> Path:
        """The folder of a label's channel, which may not exist yet. Raises UsageError for an invalid label name."""
        return self.root / label_path(label)

    def has_page(self, label: str) -> bool:
        """Whether the label's channel has a page."""
        return Beneath(root=self.root).at(label_path(label)).file_stat(SETTINGS) is not None

    @contextlib.contextmanager
    def paged(self, label: str) -> Iterator[PagedChannel]:
        """The label's channel with its lock held, for changes of its page only. Raises what open_channel does."""
        channel = self.open_label(label)
        with channel_writer(channel, clock=self.clock, wait_s=self.wait_s) as writer:
            yield paged_folder(writer)

    def _content(self, label: str) -> FolderContent:
        return FolderContent(self.open_label(label))

    def open_label(self, label: str) -> Channel:
        """The channel of a label, whose links stay in the root. Raises what open_channel does."""
        return open_channel(self.label_folder(label), within=self.root)

    def _exists(self, label: str) -> bool:
        return Beneath(root=self.root).stat(label_path(label)) is not None

    def _existing(self, label: str) -> tuple[FolderContent, Foundation] | None:
        if not self._is_there() or not self._exists(label):
            return None
        content = self._content(label)
        return content, content.channel.foundation

    def _compare(self, hashes: Mapping[str, str], label: str, foundation: Foundation) -> LabelComparison:
        labels = self.labels()
        if labels:
            open_channel(self.root, foundation=foundation)
        return compare(
            hashes,
            self._content(label) if labels and self._exists(label) else None,
            {name: self._content(name) for name in labels if name != label},
            address_of=lambda name, key: str(self.label_folder(name) / key),
            label=label,
            heeded=(MAIN_LABEL,),  # a package that was yanked only under a third label may be added to this one
        )

    def _add(self, change: Change, progress: Progress) -> Comparison:
        with self._writer(change.label, change.based_on) as writer:
            comparison = self._compare(
                change.hashes, change.label, change.based_on
            )  # again: others may have published in the meantime
            sources = {key: change.file(key).path for key in comparison.upload}
            sources |= {key: self.label_folder(comparison.elsewhere[key][0]) / key for key in comparison.link}
            sources |= {
                key: self._attested_file(change, key) or writer.channel.path / key for key in comparison.present
            }
            known = {key: row for key, row in change.rows.items() if row.sha256 == change.hashes.get(key)}
            known |= {key: comparison.elsewhere[key][1] for key in comparison.link}
            with progress.task(f"publish {change.name}", total=len(sources)) as task:
                add_set(
                    writer,
                    {PackageKey.parse(key): sources[key] for key in change.names(foundation=False)},
                    {PackageKey.parse(key): sources[key] for key in change.names(foundation=True)},
                    trusted={PackageKey.parse(key): row for key, row in known.items()},
                    patches=change.patches,
                    expected_hashes={PackageKey.parse(key): sha256 for key, sha256 in change.hashes.items()},
                    within=self.within,
                )
                task.advance(len(sources))
        return comparison

    def _attested_file(self, change: Change, key: str) -> Path | None:
        """The file to be published, if it is available with attestations that the label may lack."""
        file = change.files.get(key)
        if file is None:
            return None
        folder = folder_of(file.path, self.within)
        paths = (file.path, sidecar_of(file.path))
        return file.path if all(status_in(path, folder) is not None for path in paths) else None

    def _relist(self, label: str, change: Callable[[Listing], Listing]) -> None:
        from channel_tools.channel.maintenance import relist  # noqa: PLC0415 - imports rattler

        with self._writer(label, self.open_label(label).foundation) as writer:
            relist(writer, lambda loaded: change(loaded.listing))

    def _retire(self, rule: Retention, *, label: str, elsewhere: Callable[[], frozenset[str]]) -> RetentionPlan:
        from channel_tools.channel.maintenance import apply_retention  # noqa: PLC0415 - imports rattler

        with self._writer(label, self.open_label(label).foundation) as writer:
            return apply_retention(writer, rule, elsewhere=elsewhere())

    @contextlib.contextmanager
    def _writer(self, label: str, foundation: Foundation) -> Iterator[ChannelWriter]:
        """The label's channel with its lock and the root's held; both channels are created if missing.

        If the block ends without an error, the label's page is updated, if it has one. Raises ChannelError if another
        publisher holds the lock for longer than ``wait_s``.
        """
        label_folder = self.label_folder(label)
        with contextlib.ExitStack() as stack:
            for path in dict.fromkeys((self.root, label_folder)):
                channel = ensure_channel(path, foundation, within=self.root)
                writer = stack.enter_context(channel_writer(channel, clock=self.clock, wait_s=self.wait_s))
                record_further(channel)
            yield writer
            follow_change(paged_folder(writer))
