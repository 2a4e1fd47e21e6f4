# SPDX-License-Identifier: BSD-3-Clause
"""Channels in a bucket: one per label, readable by every client from static files.

A change takes the lease, completes what earlier changes left unfinished, and releases the lease. The order makes it
safe: packages, shards, then the one object that commits them, then the indexes made from it. Before the commit nothing
names the new packages; after it any later writer can complete the change.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from channel_tools.channel.model import RECORD_FOLDER
from channel_tools.channel.records import Stamp
from channel_tools.conda.package import RECORD_FIELD, SUFFIX, hashed_name, read_sidecar, sidecar_of
from channel_tools.page.write import follow_change
from channel_tools.publish.bucket.label import BucketLabel, LabelWriter
from channel_tools.publish.bucket.lease import DEFAULT_LEASE_S, DEFAULT_WAIT_S, Incoming, hold_lease, read_lease
from channel_tools.publish.bucket.page import has_page, paged_label
from channel_tools.publish.bucket.records import apply_retention, with_packages
from channel_tools.publish.channels import ChannelTarget, LabelComparison, checked_row, compare, other_bytes
from channel_tools.publish.model import LABEL_FOLDER, MAIN_LABEL, check_label, is_label, label_path
from channel_tools.publish.store import ASK_AGAIN, FOREVER, Served, Upload, copy_package, in_parallel, sha256_of_object
from channel_tools.system.errors import IntegrityError, UsageError
from channel_tools.system.progress import SilentProgress

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from channel_tools.channel import Foundation
    from channel_tools.channel.listing import Listing
    from channel_tools.channel.maintenance import Retention, RetentionPlan
    from channel_tools.channel.records import CachedPackage
    from channel_tools.page.write import PagedChannel
    from channel_tools.publish.bucket.lease import Lease
    from channel_tools.publish.bucket.records import LabelRecords
    from channel_tools.publish.channels import Change
    from channel_tools.publish.model import Comparison, PackageFile
    from channel_tools.publish.store import Store
    from channel_tools.system.progress import Progress

_LEASE = f"{RECORD_FOLDER}/writer.json"
_MS = 1000
_JSON = "application/json"
DEFAULT_GRACE_S = 24 * 3600.0


@dataclass(frozen=True, kw_only=True, slots=True)
class _StoredComparison(LabelComparison):
    """A LabelComparison with what is known about the objects.

    ``copy`` says from which key packages are copied; those in ``link`` but not in ``copy`` have arrived and only need
    to be committed. ``replace`` are names under which an earlier run left bytes that were never committed.
    """

    copy: Mapping[str, str] = field(default_factory=dict)
    replace: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class _Entry:
    """A package to add to a label: its row for the index, and the file to send (None if it is copied)."""

    row: CachedPackage
    upload: Upload | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class BucketTarget(ChannelTarget):
    """Channels below ``prefix`` (no slash at either end, may be empty) of a store; ``address`` is that of label main.

    ``lease_s`` is how long a writer keeps the lease without renewing it, ``wait_s`` how long another waits for it,
    ``grace_s`` how long unused objects are kept.
    """

    store: Store
    address: str
    prefix: str
    clock: Callable[[], float] = time.time
    lease_s: float = DEFAULT_LEASE_S
    wait_s: float = DEFAULT_WAIT_S
    grace_s: float = DEFAULT_GRACE_S

    def labels(self) -> list[str]:
        """The existing labels, main first."""
        return [label for label in self._begun_labels() if self._label(label).foundation() is not None]

    def _begun_labels(self) -> list[str]:
        """The labels that exist or were started, main first."""
        names = self.store.folders(self._key(f"{LABEL_FOLDER}/"))
        return [MAIN_LABEL, *(name for name in names if is_label(name))]

    def _key(self, name: str) -> str:
        """The object key for a name relative to the address."""
        return f"{self.prefix}/{name}" if self.prefix else name

    def _label(self, label: str) -> BucketLabel:
        """The label in the bucket. Raises UsageError for an invalid label name."""
        path = self._key(label_path(label)).rstrip("/")
        return BucketLabel(store=self.store, base=f"{path}/" if path else "")

    def has_page(self, label: str) -> bool:
        """Whether the label was given a page."""
        return has_page(self._label(label))

    @contextlib.contextmanager
    def paged(self, label: str) -> Iterator[PagedChannel]:
        """The label with the lease held, for changes of its page only. Raises UsageError if it does not exist."""
        bucket_label = self._label(label)
        foundation = bucket_label.foundation()
        if foundation is None:
            message = f"{self.store.url(bucket_label.base)}: there is no channel here"
            raise UsageError(message, hint="publish to it first: channel_tools publish --to")
        with self._lease(SilentProgress()) as lease:
            yield paged_label(bucket_label, lease, foundation)

    def _follow(self, label: str, lease: Lease, files: Mapping[str, Path] | None = None) -> None:
        """Update the label's page, if it has one; ``files`` are packages that need not be downloaded for it."""
        bucket_label = self._label(label)
        if has_page(bucket_label) and (foundation := bucket_label.foundation()) is not None:
            follow_change(paged_label(bucket_label, lease, foundation, files))

    def _existing(self, label: str) -> tuple[LabelRecords, Foundation] | None:
        bucket_label = self._label(label)
        foundation = bucket_label.foundation()
        return None if foundation is None else (bucket_label.read(), foundation)

    def _compare(self, hashes: Mapping[str, str], label: str, foundation: Foundation) -> LabelComparison:
        self._label(MAIN_LABEL).require_foundation(foundation)
        lease_record = read_lease(self.store, self._key(_LEASE))
        return self._compare_stored(hashes, label, {} if lease_record is None else lease_record[0].incoming)

    def _compare_stored(
        self, sha256_by_name: Mapping[str, str], label: str, incoming: Mapping[str, Incoming]
    ) -> _StoredComparison:
        """What has to be done, given the present objects; ``incoming`` are the keys that unfinished runs sent."""
        names, bucket_label = self._begun_labels(), self._label(label)
        comparison = compare(
            sha256_by_name,
            bucket_label.read(),
            {other: self._label(other).read() for other in names if other != check_label(label)},
            address_of=lambda name, key: self.store.url(self._label(name).base + key),
            label=label,
            heeded=names,
        )
        hashes = in_parallel(lambda key: sha256_of_object(self.store, bucket_label.base + key), sha256_by_name)
        stored = dict(zip(sha256_by_name, hashes, strict=True))
        present, missing = (
            set(comparison.present),
            [key for key in sha256_by_name if stored[key] != sha256_by_name[key]],
        )
        replace = []
        for key in missing:
            if (sha256 := stored[key]) is not None:
                if key in present or bucket_label.base + key not in incoming:
                    raise other_bytes(self.store.url(bucket_label.base + key), sha256, sha256_by_name[key])
                replace.append(key)
        copy = {
            key: self._label(comparison.elsewhere[key][0]).base + key for key in missing if key in comparison.elsewhere
        }
        arrived = sha256_by_name.keys() - present - set(missing)
        return _StoredComparison(
            upload=tuple(key for key in missing if key not in copy),
            link=tuple(sorted({*copy, *arrived})),
            present=tuple(key for key in comparison.present if stored[key] == sha256_by_name[key]),
            elsewhere=comparison.elsewhere,
            copy=copy,
            replace=tuple(replace),
        )

    def _add(self, change: Change, progress: Progress) -> Comparison:
        """Add a set. Raises ChannelError (another writer, other bytes), FoundationError, IntegrityError, NetworkError.

        If it raises, readers see nothing of the set or, if it was committed already, all of it.
        """
        checked: dict[str, _Entry] = {}
        with progress.task("checking packages", total=len(change.new)) as task:
            for file in change.new:
                checked[str(file.key)] = self._checked(file, change.label)
                task.advance(1, detail=file.file_name)
        with self._lease(progress) as lease:
            has_main = self._label(MAIN_LABEL).require_foundation(change.based_on)
            labels = {change.label} if has_main else {change.label, MAIN_LABEL}
            comparison = self._compare_stored(change.hashes, change.label, lease.incoming)
            keys = sorted({*comparison.upload, *comparison.link})
            entries = {key: checked.get(key) or self._entry(key, change, comparison) for key in keys}
            self._carry_out_change(change, comparison, entries, labels, lease, progress)
        return comparison

    def _carry_out_change(
        self,
        change: Change,
        comparison: _StoredComparison,
        entries: Mapping[str, _Entry],
        labels: set[str],
        lease: Lease,
        progress: Progress,
    ) -> None:
        incoming, unfinished = dict(lease.incoming), set(lease.unfinished)
        bucket_label = self._label(change.label)
        now_s = self.clock()
        begun = {
            bucket_label.base + key: Incoming(sha256=entry.row.sha256, since_s=now_s) for key, entry in entries.items()
        }
        resumed = begun.keys() & incoming.keys()
        self.store.abandon(sorted(key for key in resumed if incoming[key].sha256 != begun[key].sha256))
        lease.announce(incoming=incoming | begun, unfinished=unfinished | labels)
        self.store.delete([bucket_label.base + key for key in comparison.replace])
        for label in labels:
            self._label(label).make(change.based_on)
        self._transfer(bucket_label, comparison, entries, resumed, progress)
        self._complete((unfinished | labels) - {change.label}, unfinished, lease)
        rows = {key: entry.row for key, entry in entries.items()}
        own, foundation = change.names(foundation=False), change.names(foundation=True)
        self._commit(
            change.label,
            lease,
            lambda records: with_packages(records, rows, own=own, foundation=foundation, patches=change.patches),
            recover=change.label in unfinished,
        )
        self._clear(lease, {key: item for key, item in incoming.items() if key not in begun})
        self._follow(change.label, lease, {str(key): file.path for key, file in change.files.items()})

    def _checked(self, file: PackageFile, label: str) -> _Entry:
        """The entry for a package file. Raises IntegrityError for a damaged or changed one."""
        row = checked_row(file, indexed_ms=int(self.clock() * _MS))
        key = f"{self._label(label).base}{file.key}"
        upload = Upload(key=key, path=file.path, sha256=file.sha256, stamp=row.stamp)
        # the local file's time is meaningless in the bucket
        row = msgspec.structs.replace(row, stamp=Stamp(size_bytes=row.stamp.size_bytes, mtime_ns=0))
        return _Entry(row=row, upload=upload)

    def _entry(self, key: str, change: Change, comparison: _StoredComparison) -> _Entry:
        """The entry for a package that was not missing in the plan: it is promoted, or was deleted since."""
        if key not in change.rows or key in comparison.upload:
            return self._checked(change.file(key), change.label)
        row = change.rows[key]
        return _Entry(row=row.patched(row.record | {"indexed_timestamp": int(self.clock() * _MS)}))

    def _transfer(
        self,
        bucket_label: BucketLabel,
        comparison: _StoredComparison,
        entries: Mapping[str, _Entry],
        resume: Collection[str],
        progress: Progress,
    ) -> None:
        def copy(key: str) -> str:
            copy_package(self.store, comparison.copy[key], bucket_label.base + key, entries[key].row.sha256)
            return key

        if comparison.copy:
            with progress.task("copying packages", total=len(comparison.copy)) as task:
                for key in in_parallel(copy, comparison.copy):
                    task.advance(1, detail=key)
        self._attest(bucket_label, comparison, entries)
        uploads = [upload for key in comparison.upload if (upload := entries[key].upload) is not None]
        if uploads:
            total = sum(upload.stamp.size_bytes for upload in uploads)
            with progress.task("uploading packages", total=total, unit="bytes") as task:
                self.store.send(uploads, task, resume=resume)

    def _attest(self, bucket_label: BucketLabel, comparison: _StoredComparison, entries: Mapping[str, _Entry]) -> None:
        """Write the attestations that the packages' records name beside them, under both names."""
        for key, entry in entries.items():
            sha256 = entry.row.record.get(RECORD_FIELD)
            if not isinstance(sha256, str):
                continue
            content = self._attestations(hashed_name(comparison.copy[key], sha256)) if key in comparison.copy else None
            if content is None and entry.upload is not None:
                content = _read_attestations(entry.upload.path, sha256)
            if content is not None:
                for name, served in (
                    (hashed_name(key, sha256), Served(content_type=_JSON, cache_control=FOREVER)),
                    (key + SUFFIX, Served(content_type=_JSON, cache_control=ASK_AGAIN)),
                ):
                    self.store.put(bucket_label.base + name, content, served=served, replaces=None, conditional=False)

    def _attestations(self, key: str) -> bytes | None:
        stored = self.store.get(key)
        return None if stored is None else stored[0]

    def _relist(self, label: str, change: Callable[[Listing], Listing]) -> None:
        self._rewrite(label, lambda records: dataclasses.replace(records, listing=change(records.listing)))

    def _retire(self, rule: Retention, *, label: str, elsewhere: Callable[[], frozenset[str]]) -> RetentionPlan:
        now_s = self.clock()
        done: list[RetentionPlan] = []

        def retired(records: LabelRecords) -> LabelRecords:
            after, plan = apply_retention(records, rule, elsewhere=elsewhere(), now_s=now_s)
            done.append(plan)
            return after

        self._rewrite(label, retired)
        return done[0]

    def _rewrite(self, label: str, change: Callable[[LabelRecords], LabelRecords]) -> None:
        """Change a label's records. Packages that ``change`` removes from them are deleted afterwards.

        ``change`` may be called several times. Raises what _add does.
        """
        bucket_label = self._label(label)
        with self._lease(SilentProgress()) as lease:
            incoming, unfinished = dict(lease.incoming), set(lease.unfinished)
            committed = bucket_label.read()
            deleted = committed.names() - change(committed).names()
            doomed = {bucket_label.base + key: Incoming(sha256="", since_s=0.0) for key in deleted}
            lease.announce(incoming=incoming | doomed, unfinished=unfinished | {label})
            self._complete(unfinished - {label}, unfinished, lease)
            self._commit(label, lease, change, recover=label in unfinished)
            self._clear(lease, incoming | doomed)
            self._follow(label, lease)

    def _lease(self, progress: Progress) -> AbstractContextManager[Lease]:
        key = self._key(_LEASE)
        return hold_lease(self.store, key, progress=progress, lease_s=self.lease_s, wait_s=self.wait_s)

    def _complete(self, labels: Iterable[str], unfinished: Collection[str], lease: Lease) -> None:
        """Write the indexes of labels that their records require; a label that was started but never made has none."""
        for label in sorted(labels):
            if self._label(label).foundation() is not None:
                self._commit(label, lease, _made, recover=label in unfinished)

    def _commit(
        self, label: str, lease: Lease, change: Callable[[LabelRecords], LabelRecords], *, recover: bool
    ) -> None:
        writer = LabelWriter(label=self._label(label), lease=lease, now_s=self.clock(), grace_s=self.grace_s)
        writer.commit(change, recover=recover)

    def _clear(self, lease: Lease, incoming: Mapping[str, Incoming]) -> None:
        """Record that everything is done; what other writers left is kept for some time, then removed."""
        committed = self._committed(incoming)
        waiting = {key: item for key, item in incoming.items() if key not in committed}
        expired = [key for key, item in waiting.items() if self.clock() - item.since_s >= self.grace_s]
        lease.check()
        self.store.abandon(expired)
        self.store.delete(expired)
        self.store.delete([sidecar for key in expired for sidecar in self.store.keys(key + SUFFIX)])
        lease.announce(incoming={key: item for key, item in waiting.items() if key not in expired}, unfinished=())

    def _committed(self, keys: Iterable[str]) -> set[str]:
        """Those of the object keys that a label's records name."""
        keys = set(keys)
        if not keys:
            return set()
        bucket_labels = [self._label(label) for label in self._begun_labels()]
        named = {bucket_label.base + name for bucket_label in bucket_labels for name in bucket_label.read().names()}
        return named & keys


def _made(records: LabelRecords) -> LabelRecords:
    """The records for an existing label, which may be empty."""
    return with_packages(records, {}, own=(), foundation=())


def _read_attestations(package: Path, sha256: str) -> bytes:
    """The attestations beside a package. Raises IntegrityError if they are not those that its record names."""
    sidecar = sidecar_of(package)
    content = read_sidecar(sidecar)
    if hashlib.sha256(content).hexdigest() != sha256:
        message = f"{sidecar}: changed while its package was being published"
        raise IntegrityError(message, hint="run the same command again")
    return content
