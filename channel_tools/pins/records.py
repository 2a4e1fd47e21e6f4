# SPDX-License-Identifier: BSD-3-Clause
"""Between rattler's records and locked packages. What an installer needs of a record is kept, the rest is left out."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import rattler

from channel_tools.addresses import without_credentials
from channel_tools.errors import IntegrityError
from channel_tools.pins.model import LockedPackage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from channel_tools.pins.model import NoArch

_MS = 1000


def locked_package(record: rattler.RepoDataRecord) -> LockedPackage:
    """A record of a channel's index as a lock names it. Raises IntegrityError where it has no sha256 or size."""
    if record.sha256 is None or not record.size:
        message = f"{record.file_name}: the index of {without_credentials(record.channel)} names no sha256 or size"
        raise IntegrityError(message, hint="index the channel again with a tool that writes them")
    return LockedPackage(
        name=str(record.name.normalized),
        version=str(record.version),
        build=str(record.build),
        build_number=record.build_number,
        subdir=record.subdir,
        file_name=record.file_name,
        channel=without_credentials(record.channel).rstrip("/"),
        url=without_credentials(record.url),
        sha256=record.sha256.hex(),
        md5=record.md5.hex() if record.md5 else None,
        size_bytes=record.size,
        depends=tuple(record.depends),
        constrains=tuple(record.constrains),
        noarch=_noarch(record),
        python_site_packages_path=record.python_site_packages_path,
        license=record.license,
        timestamp_ms=round(record.timestamp.timestamp() * _MS) if record.timestamp else None,
    )


def repodata_record(package: LockedPackage) -> rattler.RepoDataRecord:
    """A locked package as rattler takes it."""
    record = rattler.PackageRecord(
        name=package.name,
        version=package.version,
        build=rattler.BuildString(package.build),
        build_number=package.build_number,
        subdir=package.subdir,
        noarch=package.noarch,
        depends=list(package.depends),
        constrains=list(package.constrains),
        sha256=bytes.fromhex(package.sha256),
        md5=bytes.fromhex(package.md5) if package.md5 else None,
        size=package.size_bytes or None,
        license=package.license,
        python_site_packages_path=package.python_site_packages_path,
    )
    if package.timestamp_ms is not None:
        record.timestamp = dt.datetime.fromtimestamp(package.timestamp_ms / _MS, tz=dt.UTC)
    return rattler.RepoDataRecord(record, package.file_name, package.url, f"{package.channel}/")


def in_installation_order(records: Sequence[rattler.RepoDataRecord]) -> list[rattler.RepoDataRecord]:
    """Records of different names, dependencies first; the order does not depend on how they stood before."""
    by_name = {record.name.normalized: record for record in records}
    return [by_name[one.name.normalized] for one in rattler.PackageRecord.sort_topologically(list(records))]


def _noarch(record: rattler.RepoDataRecord) -> NoArch | None:
    if record.noarch.python:
        return "python"
    return "generic" if record.noarch.generic else None
