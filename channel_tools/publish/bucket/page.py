# SPDX-License-Identifier: BSD-3-Clause
"""The page of a channel in a bucket: objects beside the packages, written while the writer's lease is held."""

from __future__ import annotations

import contextlib
import posixpath
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from channel_tools.conda.addresses import channel_name
from channel_tools.page.write import SETTINGS, PagedChannel
from channel_tools.publish.store import ASK_AGAIN, Served, in_parallel
from channel_tools.system.errors import IntegrityError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from channel_tools.channel import Foundation
    from channel_tools.channel.listing import Listing
    from channel_tools.page.content import Rows
    from channel_tools.page.model import Build
    from channel_tools.publish.bucket.label import BucketLabel
    from channel_tools.publish.bucket.lease import Lease

_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".xml": "application/atom+xml; charset=utf-8",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class _BucketStore:
    """A label of a bucket as PageStore; ``files`` are packages (``subdir/file name``) that are available locally."""

    label: BucketLabel
    lease: Lease
    files: Mapping[str, Path] = field(default_factory=dict)

    def url(self, name: str) -> str:
        return self.label.store.url(self.label.base + name)

    def read(self, name: str) -> bytes | None:
        stored = self.label.store.get(self.label.base + name)
        return None if stored is None else stored[0]

    def present(self, names: Collection[str]) -> set[str]:
        base, existing = self.label.base, set()
        for first in {name.partition("/")[0] for name in names}:
            for key in self.label.store.keys(base + first):
                name = key.removeprefix(base)
                existing |= {name, *map(str, Path(name).parents)}
        return existing & set(names)

    def write(self, files: Sequence[tuple[str, Callable[[], bytes]]]) -> None:
        """Like PageStore.write. Raises ChannelError if another writer took over."""
        in_parallel(self._put, files[:-1])
        for last in files[-1:]:
            self._put(last)

    def _put(self, file: tuple[str, Callable[[], bytes]]) -> None:
        name, content = file
        kind = _TYPES.get(posixpath.splitext(name)[1], "application/octet-stream")
        served = Served(content_type=kind, cache_control=ASK_AGAIN)
        body = content()
        self.lease.check()
        self.label.store.put(self.label.base + name, body, served=served, replaces=None, conditional=False)

    def remove(self, names: Iterable[str]) -> None:
        if keys := [self.label.base + name for name in names]:
            self.lease.check()
            self.label.store.delete(keys)

    @contextlib.contextmanager
    def package(self, build: Build) -> Iterator[tuple[Path, None]]:
        """Like PageStore.package; a package that is not available locally is downloaded."""
        key = f"{build.subdir}/{build.file_name}"
        if (at_hand := self.files.get(key)) is not None:
            yield at_hand, None
            return
        store = self.label.store
        if store.head(self.label.base + key) is None:
            raise IntegrityError(f"{self.url(key)}: is missing", hint="publish it again from an intact copy")
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / posixpath.basename(key)
            with path.open("wb") as stream:
                stream.writelines(store.stream(self.label.base + key))
            yield path, None


def has_page(label: BucketLabel) -> bool:
    """Whether the label has a page."""
    return label.store.head(label.base + SETTINGS) is not None


def paged_label(
    label: BucketLabel, lease: Lease, foundation: Foundation, files: Mapping[str, Path] | None = None
) -> PagedChannel:
    """A label as a channel with a page; ``files`` are packages (``subdir/file name``) that are available locally."""

    def load() -> tuple[Listing, Rows]:
        records = label.read()
        return records.listing, records.rows()

    name = channel_name(label.store.url(label.base))
    store = _BucketStore(label=label, lease=lease, files=files or {})
    return PagedChannel(store=store, name=name, foundation=foundation, load=load)
