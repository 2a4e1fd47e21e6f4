# SPDX-License-Identifier: BSD-3-Clause
"""Looking after the packages of a bucket, as pure functions of its records."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from channel_tools.channel.content import not_listed
from channel_tools.channel.retention import plan_retention, with_deleted, with_retired
from channel_tools.publish.model import LabelPackage

if TYPE_CHECKING:
    from channel_tools.channel.retention import Retention, RetentionPlan
    from channel_tools.publish.objects_records import ObjectRecords


def label_packages(records: ObjectRecords) -> tuple[LabelPackage, ...]:
    """Everything that the records hold, hidden packages too, in order."""
    hidden = not_listed(records.listing)
    foreign = {*records.listing.foundation, *records.listing.superseded}
    found = []
    for subdir, part in records.subdirs.items():
        for file_name, row in part.packages.items():
            key, record = f"{subdir}/{file_name}", row.record
            depends = record["depends"]
            found.append(
                LabelPackage(
                    subdir=subdir,
                    file_name=file_name,
                    name=row.name,
                    version=str(record["version"]),
                    build=str(record["build"]),
                    build_number=int(str(record["build_number"])),
                    sha256=row.sha256,
                    size_bytes=row.stamp.size_bytes,
                    depends=tuple(str(spec) for spec in depends) if isinstance(depends, list) else (),
                    foundation=key in foreign,
                    hidden=hidden.get(key),
                    yanked=records.listing.yanked.get(key),
                )
            )
    return tuple(sorted(found))


def apply_retention(
    records: ObjectRecords, rule: Retention, *, elsewhere: frozenset[str], now_s: float
) -> tuple[ObjectRecords, RetentionPlan]:
    """The records once ``rule`` has been applied, without what it deletes, and what that is.

    ``elsewhere`` are the names that other labels list.
    """
    held = {subdir: part.packages for subdir, part in records.subdirs.items()}
    plan = plan_retention(records.listing, held, rule, elsewhere=elsewhere, now_s=now_s)
    rows = {key: row for key in plan.retire if (row := records.package(key)) is not None}
    listing = with_deleted(with_retired(records.listing, rows, now_s=now_s), plan.delete)
    gone = set(plan.delete)
    subdirs = {
        subdir: dataclasses.replace(
            part, packages={name: row for name, row in part.packages.items() if f"{subdir}/{name}" not in gone}
        )
        for subdir, part in records.subdirs.items()
    }
    return dataclasses.replace(records, listing=listing, subdirs=subdirs), plan
