# SPDX-License-Identifier: BSD-3-Clause
"""One change of a bucket from taking the lease to releasing it, and the completion of what earlier ones left.

The order makes it safe: packages, shards, then the one object that commits them, then the indexes made from it. Until
the commit nothing names the new packages; after it any later writer completes what this one did not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from channel_tools.channel.model import RECORD_FOLDER
from channel_tools.errors import UsageError
from channel_tools.progress import SilentProgress
from channel_tools.publish.labels import LABEL_FOLDER, check_label, is_label, label_path
from channel_tools.publish.model import MAIN_LABEL
from channel_tools.publish.objects_changes import with_packages
from channel_tools.publish.objects_label import LabelPlace
from channel_tools.publish.objects_lease import Incoming, hold_lease, read_lease
from channel_tools.publish.objects_plan import Wanted, compare
from channel_tools.publish.objects_transfer import Copy, Upload, copy_package, in_parallel, upload_packages

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from channel_tools.channel import Foundation
    from channel_tools.channel.records import CachedPackage
    from channel_tools.progress import Progress
    from channel_tools.publish.objects_address import BucketAddress
    from channel_tools.publish.objects_lease import Lease
    from channel_tools.publish.objects_plan import Comparison
    from channel_tools.publish.objects_records import ObjectRecords
    from channel_tools.publish.objects_store import ObjectStore

_LEASE = f"{RECORD_FOLDER}/writer.json"
DEFAULT_GRACE_S = 24 * 3600.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """A package that comes under a label: its row for the index, and the file it can be sent from (None: copied)."""

    row: CachedPackage
    upload: Upload | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """A set that comes under ``label``. ``entry`` is asked, by name, for those that are new there.

    ``own`` and ``foundation`` are the names of the set's packages, as with_packages takes them.
    """

    label: str
    based_on: Foundation
    wanted: Sequence[Wanted]
    own: Sequence[str]
    foundation: Sequence[str]
    entry: Callable[[str], Entry]


@dataclass(frozen=True, kw_only=True, slots=True)
class Bucket:
    """The labels of an address in a bucket, and the times that guard changing them."""

    where: BucketAddress
    store: ObjectStore
    clock: Callable[[], float]
    lease_s: float
    wait_s: float
    grace_s: float = DEFAULT_GRACE_S

    def place(self, label: str) -> LabelPlace:
        """Where the label lies. Raises UsageError for what is no label's name."""
        path = self.where.key(label_path(label)).rstrip("/")
        return LabelPlace(store=self.store, base=f"{path}/" if path else "")

    def labels(self) -> list[str]:
        """The labels that there are or were begun, main first."""
        names = self.store.folders(self.where.key(f"{LABEL_FOLDER}/"))
        return [MAIN_LABEL, *(name for name in names if is_label(name))]

    def existing(self, label: str) -> tuple[LabelPlace, Foundation]:
        """Where the label lies, and its foundation. Raises UsageError when there is none."""
        place = self.place(label)
        foundation = place.foundation()
        if foundation is None:
            known = ", ".join(self.made_labels()) or "none, nothing was published yet"
            raise UsageError(f"{self.where}: has no label {label!r}", hint=f"labels there: {known}")
        return place, foundation

    def made_labels(self) -> list[str]:
        """The labels that there are, main first."""
        return [label for label in self.labels() if self.place(label).foundation() is not None]

    def compare(self, label: str, wanted: Sequence[Wanted], incoming: Mapping[str, Incoming]) -> Comparison:
        """What has to be done for the wanted packages to be under the label."""
        others = [self.place(other) for other in self.labels() if other != check_label(label)]
        return compare(self.place(label), others, wanted, incoming)

    def incoming(self) -> Mapping[str, Incoming]:
        """What unfinished changes brought in, seen without holding the lease."""
        found = read_lease(self.store, self.where.key(_LEASE))
        return {} if found is None else found[0].incoming

    def carry_out(self, change: Change, *, progress: Progress) -> Comparison:
        """Bring the set in; returns what had to be done.

        Raises ChannelError (another writer, other bytes), FoundationError, IntegrityError, NetworkError; then readers
        see nothing of the set or, when it was committed already, all of it.
        """
        with self._held(progress) as lease:
            has_main = self.place(MAIN_LABEL).insist_on_foundation(change.based_on)
            labels = {change.label} if has_main else {change.label, MAIN_LABEL}
            return self._carry_out(change, labels, lease, progress)

    def _carry_out(self, change: Change, labels: set[str], lease: Lease, progress: Progress) -> Comparison:
        left, unfinished = dict(lease.incoming), set(lease.unfinished)
        found = self.compare(change.label, change.wanted, left)
        entries = {key: change.entry(key) for key in (*found.upload, *found.copy, *found.arrived)}
        place = self.place(change.label)
        now_s = self.clock()
        begun = {place.base + key: Incoming(sha256=entry.row.sha256, since_s=now_s) for key, entry in entries.items()}
        resumable = self._unfinished_uploads(begun, left)
        lease.announce(incoming=left | begun, unfinished=unfinished | labels)
        self.store.delete([place.base + key for key in found.replace])
        for label in labels:
            self.place(label).make(change.based_on)
        self._transfer(place, found, entries, resumable, progress)
        self._complete((unfinished | labels) - {change.label}, unfinished, lease)
        rows = {key: entry.row for key, entry in entries.items()}
        self._commit(
            change.label,
            lease,
            lambda records: with_packages(records, rows, own=change.own, foundation=change.foundation),
            recover=change.label in unfinished,
        )
        self._clear(lease, {key: item for key, item in left.items() if key not in begun})
        return found

    def relist(self, label: str, change: Callable[[ObjectRecords], ObjectRecords]) -> None:
        """Change what a label lists. Packages that ``change`` takes out of the records are deleted after that.

        ``change`` may be called several times. Raises as carry_out, and UsageError for a label that does not exist.
        """
        place, _foundation = self.existing(label)
        with self._held(SilentProgress()) as lease:
            left, unfinished = dict(lease.incoming), set(lease.unfinished)
            committed = place.read()
            gone = committed.names() - change(committed).names()
            doomed = {place.base + key: Incoming(sha256="", since_s=0.0) for key in gone}
            lease.announce(incoming=left | doomed, unfinished=unfinished | {label})
            self._complete(unfinished - {label}, unfinished, lease)
            self._commit(label, lease, change, recover=label in unfinished)
            self._clear(lease, left | doomed)

    def _held(self, progress: Progress) -> AbstractContextManager[Lease]:
        key = self.where.key(_LEASE)
        return hold_lease(self.store, key, progress=progress, lease_s=self.lease_s, wait_s=self.wait_s)

    def _complete(self, labels: Iterable[str], unfinished: Collection[str], lease: Lease) -> None:
        """Bring labels in step with their records; one that was begun and never made has none."""
        for label in sorted(labels):
            if self.place(label).foundation() is not None:
                self._commit(label, lease, _made, recover=label in unfinished)

    def _commit(
        self, label: str, lease: Lease, change: Callable[[ObjectRecords], ObjectRecords], *, recover: bool
    ) -> None:
        now_s = self.clock()
        self.place(label).commit(change, lease=lease, now_s=now_s, recover=recover, grace_s=self.grace_s)

    def _transfer(
        self,
        place: LabelPlace,
        found: Comparison,
        entries: Mapping[str, Entry],
        resumable: Mapping[str, Sequence[str]],
        progress: Progress,
    ) -> None:
        uploads = [upload for key in found.upload if (upload := entries[key].upload) is not None]
        copies = [
            Copy(key=place.base + key, source=source, sha256=entries[key].row.sha256)
            for key, source in found.copy.items()
        ]
        if copies:
            with progress.task("copying packages", total=len(copies)) as task:
                for copy in in_parallel(lambda copy: copy_package(self.store, copy), copies):
                    task.advance(1, detail=copy.key)
        if uploads:
            total = sum(upload.stamp.size_bytes for upload in uploads)
            with progress.task("uploading packages", total=total, unit="bytes") as task:
                upload_packages(self.store, uploads, task, unfinished=resumable)

    def _unfinished_uploads(self, begun: Mapping[str, Incoming], left: Mapping[str, Incoming]) -> dict[str, list[str]]:
        """The uploads that were cut off of what is sent now, by key; those of other bytes are given up."""
        again = sorted(begun.keys() & left.keys())
        uploads = dict(zip(again, in_parallel(self.store.uploads, again), strict=True))
        for key in [key for key in again if left[key].sha256 != begun[key].sha256]:
            for upload in uploads.pop(key):
                self.store.abort_upload(key, upload)
        return uploads

    def _clear(self, lease: Lease, left: Mapping[str, Incoming]) -> None:
        """Say that all is done; what others left is kept for them for a time, then removed."""
        committed = self._committed(left)
        waiting = {key: item for key, item in left.items() if key not in committed}
        expired = [key for key, item in waiting.items() if self.clock() - item.since_s >= self.grace_s]
        lease.check()
        for key in expired:
            for upload in self.store.uploads(key):
                self.store.abort_upload(key, upload)
        self.store.delete(expired)
        lease.announce(incoming={key: item for key, item in waiting.items() if key not in expired}, unfinished=())

    def _committed(self, keys: Iterable[str]) -> set[str]:
        """Those of the object keys that a label's records name."""
        wanted = set(keys)
        if not wanted:
            return set()
        places = [self.place(label) for label in self.labels()]
        return {place.base + key for place in places for key in place.read().names()} & wanted


def _made(records: ObjectRecords) -> ObjectRecords:
    """The records of a label that exists, empty or not."""
    return with_packages(records, {}, own=(), foundation=())
