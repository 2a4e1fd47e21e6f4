# SPDX-License-Identifier: BSD-3-Clause
"""The values of the pins stage: the solution for each platform, independent of file formats.

Addresses in a lock never have credentials, since a lock file may be published. A locked package has the fields of
rattler's records that an installer needs.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import rattler

from channel_tools.conda.addresses import without_credentials
from channel_tools.conda.package import PackageRef
from channel_tools.system.errors import IntegrityError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

NoArch = Literal["generic", "python"]
ChangeKind = Literal["added", "removed", "changed"]
WRITE_AGAIN = "write it again with the tool that made it: channel_tools pins, conda-lock or pixi"
_MS = 1000


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class LockedPackage:
    """One package of a solution, as described by its channel's repodata.

    ``channel`` is the channel's address without a trailing slash and ``url`` the file's address. ``sha256`` and ``md5``
    are in hexadecimal (md5 None if repodata has none, sha256 empty while only an md5 is known, see pins/md5.py);
    ``depends`` and ``constrains`` are MatchSpecs. ``size_bytes`` is 0 if the lock's format does not have it; then the
    fields after ``url``, except ``sha256``, may be missing as well. ``timestamp_ms`` is when it was built, since the
    epoch.
    """

    name: str
    version: str
    build: str
    build_number: int
    subdir: str
    file_name: str
    channel: str
    url: str
    sha256: str
    md5: str | None
    size_bytes: int
    depends: tuple[str, ...]
    constrains: tuple[str, ...]
    noarch: NoArch | None = None
    python_site_packages_path: str | None = None
    license: str | None = None
    timestamp_ms: int | None = None

    @property
    def ref(self) -> PackageRef:
        """The exact bytes of its file."""
        return PackageRef(subdir=self.subdir, file_name=self.file_name, sha256=self.sha256, size_bytes=self.size_bytes)

    def moved(self, addresses: Mapping[str, str]) -> LockedPackage:
        """The same package at the address that replaces its channel's, if there is one.

        Its own address is kept with its channel's, and need not be below it (CEP 15).
        """
        address = addresses.get(self.channel)
        if address is None or address == self.channel:
            return self
        return replace(self, channel=address, url=f"{address}/{self.ref.key}")


@dataclass(frozen=True, kw_only=True, slots=True)
class PlatformLock:
    """The solution for one platform; ``packages`` are in order of installation, dependencies first.

    ``virtual_packages`` are the assumed ones, as ``name=version=build`` (CEP 30), in order of name.
    """

    platform: str
    virtual_packages: tuple[str, ...]
    packages: tuple[LockedPackage, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Lock:
    """Everything that is pinned for a stack: the request, the channels, and the solution per platform.

    ``channels`` are in order of priority, ``platforms`` in order of name.
    """

    stack: str
    specs: tuple[str, ...]
    channels: tuple[str, ...]
    platforms: tuple[PlatformLock, ...]


def locked_package(record: rattler.RepoDataRecord, *, complete: bool = True) -> LockedPackage:
    """The locked package for a record of a channel's index.

    Raises IntegrityError if it has no sha256 or size, unless ``complete`` is false.
    """
    if complete and not (record.sha256 and record.size):
        where = without_credentials(record.channel)
        message = f"{record.file_name}: the index of {where} has no sha256 or size for it"
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
        sha256=record.sha256.hex() if record.sha256 else "",
        md5=record.md5.hex() if record.md5 else None,
        size_bytes=record.size or 0,
        depends=tuple(record.depends),
        constrains=tuple(record.constrains),
        noarch=_noarch(record),
        python_site_packages_path=record.python_site_packages_path,
        license=record.license,
        timestamp_ms=round(record.timestamp.timestamp() * _MS) if record.timestamp else None,
    )


def repodata_record(package: LockedPackage) -> rattler.RepoDataRecord:
    """A locked package as rattler's record."""
    record = rattler.PackageRecord(
        name=package.name,
        version=package.version,
        build=rattler.BuildString(package.build),
        build_number=package.build_number,
        subdir=package.subdir,
        noarch=package.noarch,
        depends=list(package.depends),
        constrains=list(package.constrains),
        sha256=bytes.fromhex(package.sha256) if package.sha256 else None,
        md5=bytes.fromhex(package.md5) if package.md5 else None,
        size=package.size_bytes or None,
        license=package.license,
        python_site_packages_path=package.python_site_packages_path,
    )
    if package.timestamp_ms is not None:
        record.timestamp = dt.datetime.fromtimestamp(package.timestamp_ms / _MS, tz=dt.UTC)
    return rattler.RepoDataRecord(record, package.file_name, package.url, f"{package.channel}/")


def in_installation_order(records: Sequence[rattler.RepoDataRecord]) -> list[rattler.RepoDataRecord]:
    """Sort records of different names, dependencies first; the result does not depend on the given order."""
    by_name = {record.name.normalized: record for record in records}
    return [by_name[ordered.name.normalized] for ordered in rattler.PackageRecord.sort_topologically(list(records))]


def _noarch(record: rattler.RepoDataRecord) -> NoArch | None:
    if record.noarch.python:
        return "python"
    return "generic" if record.noarch.generic else None


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class PinChange:
    """One package of one platform; ``before`` and ``after`` are ``version build``, None if it is not in that lock.

    If version and build are the same in both, the bytes differ.
    """

    platform: str
    name: str
    kind: ChangeKind
    before: str | None
    after: str | None


def compare_locks(before: Lock, after: Lock) -> tuple[PinChange, ...]:
    """Every package that was added, removed or changed, by platform and name; addresses are ignored."""
    earlier, later = _packages(before), _packages(after)
    changes = []
    for key in sorted({*earlier, *later}):
        old, new = earlier.get(key), later.get(key)
        if old is not None and new is not None and (old.sha256, old.file_name) == (new.sha256, new.file_name):
            continue
        kind: ChangeKind = "added" if old is None else "removed" if new is None else "changed"
        changes.append(
            PinChange(
                platform=key[0], name=key[1], kind=kind, before=_version_and_build(old), after=_version_and_build(new)
            )
        )
    return tuple(changes)


def _packages(lock: Lock) -> dict[tuple[str, str], LockedPackage]:
    return {(platform.platform, package.name): package for platform in lock.platforms for package in platform.packages}


def _version_and_build(package: LockedPackage | None) -> str | None:
    return None if package is None else f"{package.version} {package.build}"
