# SPDX-License-Identifier: BSD-3-Clause
"""Channels in a bucket of an S3-like object store: one per label, readable by every client from static files."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from channel_tools.channel.listing import with_patch, with_yanked, without_yanked
from channel_tools.channel.publish import check_package
from channel_tools.channel.records import Stamp
from channel_tools.errors import ChannelError, IntegrityError
from channel_tools.publish.labels import label_address
from channel_tools.publish.model import MAIN_LABEL, PublishPlan, PublishReport
from channel_tools.publish.objects_address import parse_bucket_address
from channel_tools.publish.objects_connect import connect
from channel_tools.publish.objects_curation import apply_retention, label_packages
from channel_tools.publish.objects_lease import DEFAULT_LEASE_S, DEFAULT_WAIT_S
from channel_tools.publish.objects_plan import Wanted
from channel_tools.publish.objects_transfer import Upload
from channel_tools.publish.objects_writing import Bucket, Change, Entry

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from channel_tools.channel.patches import Patch
    from channel_tools.channel.retention import Retention, RetentionPlan
    from channel_tools.channel.state import Listing
    from channel_tools.progress import Progress
    from channel_tools.publish.model import LabelPackage, PackageFile, PackageSet
    from channel_tools.publish.objects_plan import Comparison
    from channel_tools.publish.objects_records import ObjectRecords

_MS = 1000


def open_bucket(address: str, environ: Mapping[str, str]) -> BucketTarget:
    """The channel that an ``s3://`` address names; it need not exist yet, and nothing is contacted.

    Raises UsageError for an address or AWS settings that cannot be used.
    """
    where = parse_bucket_address(address)
    store = connect(where, region=environ.get("AWS_REGION"))
    bucket = Bucket(where=where, store=store, clock=time.time, lease_s=DEFAULT_LEASE_S, wait_s=DEFAULT_WAIT_S)
    return BucketTarget(bucket=bucket)


@dataclass(frozen=True, kw_only=True, slots=True)
class BucketTarget:
    """A bucket, or a prefix of one, that is published to; see CuratedTarget for what its methods promise."""

    bucket: Bucket

    @property
    def address(self) -> str:
        """The ``s3://`` address of label ``main``."""
        return str(self.bucket.where)

    def plan(self, packages: PackageSet, *, label: str) -> PublishPlan:
        """Compare with the bucket, changing nothing. Raises ChannelError when a name has other bytes there."""
        self.bucket.place(MAIN_LABEL).insist_on_foundation(packages.foundation)
        found = self.bucket.compare(label, _wanted(packages.files), self.bucket.incoming())
        files = {file.key: file for file in packages.files}
        return PublishPlan(
            packages=packages,
            label=label,
            upload=tuple(files[key] for key in found.upload),
            link=tuple(files[key] for key in sorted((*found.copy, *found.arrived))),
            present=tuple(files[key] for key in found.present),
        )

    def publish(self, plan: PublishPlan, *, progress: Progress) -> PublishReport:
        """Carry the plan out so that readers of a subdir see the whole set or nothing of it."""
        files = {file.key: file for file in plan.packages.files}
        checked: dict[str, Entry] = {}
        with progress.task("checking packages", total=len(plan.upload) + len(plan.link)) as task:
            for file in (*plan.upload, *plan.link):
                checked[file.key] = self._entry(file, plan.label)
                task.advance(1, detail=file.file_name)
        change = Change(
            label=plan.label,
            based_on=plan.packages.foundation,
            wanted=_wanted(plan.packages.files),
            own=[file.key for file in plan.packages.files if not file.foundation],
            foundation=[file.key for file in plan.packages.files if file.foundation],
            entry=lambda key: checked.get(key) or self._entry(files[key], plan.label),
        )
        return self._carry_out(change, progress)

    def promote(self, keys: tuple[str, ...], *, source: str, label: str, progress: Progress) -> PublishReport:
        """Show packages of label ``source`` under ``label`` as well; the server copies, nothing is sent."""
        place, foundation = self.bucket.existing(source)
        records = place.read()
        if missing := sorted(set(keys) - records.listed()):
            message = f"{label_address(self.address, source)}: label {source} does not list {missing[0]}"
            raise ChannelError(message, hint=f"publish it there first: channel_tools publish --label {source}")
        rows = {key: row for key in sorted(set(keys)) if (row := records.package(key)) is not None}
        foreign = {*records.listing.foundation, *records.listing.superseded}
        indexed_ms = int(self.bucket.clock() * _MS)
        change = Change(
            label=label,
            based_on=foundation,
            wanted=[Wanted(key=key, sha256=row.sha256) for key, row in rows.items()],
            own=[key for key in rows if key not in foreign],
            foundation=[key for key in rows if key in foreign],
            entry=lambda key: Entry(row=rows[key].patched(rows[key].record | {"indexed_timestamp": indexed_ms})),
        )
        return self._carry_out(change, progress)

    def labels(self) -> list[str]:
        """The labels that there are, main first."""
        return self.bucket.made_labels()

    def packages(self, label: str) -> tuple[LabelPackage, ...]:
        """Everything that the label holds, hidden packages too, in order."""
        return label_packages(self.bucket.existing(label)[0].read())

    def yank(self, keys: tuple[str, ...], *, label: str, reason: str) -> None:
        """Hide packages from new solves; their objects stay for lock files."""
        self._relist(label, lambda listing: with_yanked(listing, keys, reason))

    def restore(self, keys: tuple[str, ...], *, label: str) -> None:
        """Undo yank."""
        self._relist(label, lambda listing: without_yanked(listing, keys))

    def hotfix(self, patches: Mapping[str, Patch], *, label: str, replace: bool) -> None:
        """Patch the records of subdirs, on top of earlier patches or (``replace``) in their place."""

        def patched(listing: Listing) -> Listing:
            for subdir, patch in patches.items():
                listing = with_patch(listing, subdir, patch, replace=replace)
            return listing

        self._relist(label, patched)

    def retain(self, rule: Retention, *, label: str, dry_run: bool) -> RetentionPlan:
        """Hide what is due by ``rule`` and delete what was hidden for long enough; with ``dry_run`` only say so."""
        others = [self.bucket.place(name) for name in self.labels() if name != label]
        now_s = self.bucket.clock()
        done: list[RetentionPlan] = []

        def retained(records: ObjectRecords) -> ObjectRecords:
            elsewhere = frozenset[str]().union(*(other.read().listed() for other in others))
            after, plan = apply_retention(records, rule, elsewhere=elsewhere, now_s=now_s)
            done.append(plan)
            return after

        if dry_run:
            retained(self.bucket.existing(label)[0].read())
        else:
            self.bucket.relist(label, retained)
        return done[0]

    def _relist(self, label: str, change: Callable[[Listing], Listing]) -> None:
        self.bucket.relist(label, lambda records: dataclasses.replace(records, listing=change(records.listing)))

    def _carry_out(self, change: Change, progress: Progress) -> PublishReport:
        started = time.monotonic()
        found = self.bucket.carry_out(change, progress=progress)
        return _report(found, label_address(self.address, change.label), change.label, time.monotonic() - started)

    def _entry(self, file: PackageFile, label: str) -> Entry:
        """Check a package as the channel folder does. Raises IntegrityError for a damaged or changed one."""
        row = check_package(file.path, indexed_ms=int(self.bucket.clock() * _MS))
        if row.sha256 != file.sha256:
            message = f"{file.path}: has sha256 {row.sha256}; {file.sha256} was to be published"
            raise IntegrityError(message, hint="run the same command again")
        upload = Upload(
            key=self.bucket.place(label).base + file.key, path=file.path, sha256=file.sha256, stamp=row.stamp
        )
        # the time of the local file means nothing in the bucket
        row = msgspec.structs.replace(row, stamp=Stamp(size_bytes=row.stamp.size_bytes, mtime_ns=0))
        return Entry(row=row, upload=upload)


def _wanted(files: Sequence[PackageFile]) -> list[Wanted]:
    return [Wanted(key=file.key, sha256=file.sha256) for file in files]


def _report(found: Comparison, address: str, label: str, seconds: float) -> PublishReport:
    return PublishReport(
        address=address,
        label=label,
        uploaded=found.upload,
        linked=tuple(sorted((*found.copy, *found.arrived))),
        seconds=seconds,
    )
