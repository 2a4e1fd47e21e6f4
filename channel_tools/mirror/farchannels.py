# SPDX-License-Identifier: BSD-3-Clause
"""Channels on the far side: ours are published to, as anywhere; a foreign one in a folder is kept as the bundle says.

A foreign channel's folder is no channel of ours: its index is not made from its packages but from the records that were
signed, so that hotfixes, and packages that we would not index, reach the far side unchanged. Where packages are
published, their records are made anew, so what differs then from the signed ones becomes a hotfix, and what the bundle
does not list any more is yanked.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from channel_tools.channel import Foundation
from channel_tools.channel.content import REPODATA
from channel_tools.channel.model import PACKAGE_SUFFIX
from channel_tools.channel.patches import Patch
from channel_tools.errors import UsageError
from channel_tools.files import link_or_copy, write_bytes_atomically
from channel_tools.mirror.plan import OLD_SUFFIX
from channel_tools.mirror.subset import channeldata, derived_index, plain_index, read_plain
from channel_tools.mirror.upstream import SubdirRecords, read_records
from channel_tools.packages.reader import stream_component
from channel_tools.publish import MAIN_LABEL, PackageFile, PackageSet
from channel_tools.publish.curation import curated

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from channel_tools.channel.archive import JsonObject
    from channel_tools.mirror.http import HttpReader
    from channel_tools.mirror.model import BundleChannel, BundleFile
    from channel_tools.progress import Progress
    from channel_tools.publish.model import CuratedTarget, LabelPackage, Target

GONE = "not listed any more where the bundle comes from"
_ABOUT = "info/about.json"
_OWN_MARK = b'"channel_tools"'
_PATCHABLE = ("constrains", "depends", "features", "license", "license_family", "purls", "track_features")


@dataclass(frozen=True, kw_only=True, slots=True)
class FarChannel:
    """A channel of a bundle on its way: new files lie in ``incoming``, ``targets`` are by path in it."""

    incoming: Path
    channel: BundleChannel
    targets: Mapping[str, BundleFile]

    @property
    def packages(self) -> list[str]:
        """``subdir/file name`` of all packages that the far side has afterwards, in order."""
        return sorted(key for key in self.targets if is_package(key))

    @property
    def subdirs(self) -> list[str]:
        """The subdirs that the bundle has an index of, in order."""
        return sorted({key.partition("/")[0] for key in self.targets if key.endswith(f"/{REPODATA}")})


def is_package(path: str) -> bool:
    """Whether it is a package by its name."""
    return path.endswith((PACKAGE_SUFFIX, OLD_SUFFIX))


def take_foreign(place: FarChannel, folder: Path) -> None:
    """Link the packages in, then replace the indexes; packages that are not listed any more stay as files."""
    for key in place.packages:
        if (place.incoming / key).is_file():
            link_or_copy(place.incoming / key, folder / key)
    listed: dict[str, SubdirRecords] = {}
    for subdir in place.subdirs:
        before = read_plain(folder / subdir / REPODATA)
        removed = {key.partition("/")[2] for key in place.channel.removed if key.startswith(subdir + "/")}
        listed[subdir] = _merged(before, read_plain(place.incoming / subdir / REPODATA), removed=removed)
        plain = plain_index(subdir, listed[subdir])
        derived = derived_index(subdir, listed[subdir], plain, now_s=time.time())
        if before.all != listed[subdir].all or not (folder / subdir / REPODATA).is_file():
            for name, content in {**derived, **plain}.items():  # shards and their index before the index of all
                _write_if_other(folder / subdir / name, content)
    for name, content in channeldata(listed).items():
        _write_if_other(folder / name, content)


def _merged(before: SubdirRecords, new: SubdirRecords, *, removed: Iterable[str]) -> SubdirRecords:
    gone = set(removed)
    return SubdirRecords(
        conda={name: row for name, row in sorted({**before.conda, **new.conda}.items()) if name not in gone},
        old={name: row for name, row in sorted({**before.old, **new.old}.items()) if name not in gone},
    )


def _write_if_other(path: Path, content: bytes) -> None:
    if not path.is_file() or path.read_bytes() != content:
        write_bytes_atomically(path, content)


@dataclass(frozen=True, kw_only=True, slots=True)
class Publishing:
    """What publishing a channel of a bundle needs: the target with its address, and what the packages build on."""

    target: Target
    address: str
    foundation: Foundation
    name: str
    reader: HttpReader


def publish_channel(place: FarChannel, how: Publishing, *, progress: Progress) -> None:
    """Publish the packages as one set, then bring what is listed in line with the bundle's records.

    Raises UsageError for packages of the old format, and as Target.
    """
    if old := [key for key in place.packages if key.endswith(OLD_SUFFIX)]:
        message = (
            f"{how.target.address}: {old[0]} is a package of the old format, which can only be imported into a folder"
        )
        raise UsageError(message, hint="import into a folder on the server's machine, and serve that")
    target = curated(how.target)
    there = {package.key: package for package in packages_of(target)}
    gone = set(place.channel.removed)
    back = tuple(key for key, package in there.items() if package.yanked == GONE and key not in gone)
    if back:
        target.restore(back, label=MAIN_LABEL)
    registry = how.foundation.kind == "registry"
    yanked = {key for key, package in there.items() if package.yanked is not None and key not in back}
    wanted = [key for key in place.packages if key not in yanked]
    files = [_package_file(place, key, there.get(key), registry=registry) for key in wanted]
    if registry:
        files += _foundation_there(place, there.values())
    packages = PackageSet(name=how.name, files=tuple(sorted(files)), foundation=how.foundation)
    target.publish(target.plan(packages, label=MAIN_LABEL), progress=progress)
    _bring_in_line(place, how, target)


def packages_of(target: Target) -> tuple[LabelPackage, ...]:
    """What is published there, hidden packages too; nothing where nothing was published yet."""
    place = curated(target)
    return place.packages(MAIN_LABEL) if MAIN_LABEL in place.labels() else ()


def _package_file(place: FarChannel, key: str, there: LabelPackage | None, *, registry: bool) -> PackageFile:
    """The package as it is published; one that is there already keeps what is known of it."""
    subdir, _, file_name = key.partition("/")
    path = place.incoming / key
    ours = there is None and place.channel.own and _is_ours(path)
    return PackageFile(
        subdir=subdir,
        file_name=file_name,
        path=path,
        sha256=place.targets[key].sha256,
        size_bytes=place.targets[key].size_bytes,
        foundation=there.foundation if there is not None else registry and not ours,
    )


def _is_ours(package: Path) -> bool:
    """Whether a recipe of ours made it: the plan's mark is in its about.json."""
    for member, stream in stream_component(package, "info"):
        if member.name == _ABOUT and stream is not None:
            return _OWN_MARK in stream.read()
    return False


def _foundation_there(place: FarChannel, there: Iterable[LabelPackage]) -> list[PackageFile]:
    """Foundation packages of earlier bundles: they stay listed, since other stacks are solved with them."""
    left_out = {*place.packages, *place.channel.removed}
    return [
        PackageFile(
            subdir=package.subdir,
            file_name=package.file_name,
            path=place.incoming / package.key,
            sha256=package.sha256,
            size_bytes=package.size_bytes,
            foundation=True,
        )
        for package in there
        if package.foundation and package.hidden is None and package.key not in left_out
    ]


def _bring_in_line(place: FarChannel, how: Publishing, target: CuratedTarget) -> None:
    """Hotfix and yank where the bundle's index says otherwise than the target's."""
    patches = {}
    for subdir in place.subdirs:
        wanted = read_plain(place.incoming / subdir / REPODATA).conda
        found = read_records(how.address, subdir, wanted.keys(), how.reader).conda
        patch = Patch(records={name: changes for name in found if (changes := _changes(found[name], wanted[name]))})
        if patch.records:
            patches[subdir] = patch
    if patches:
        target.hotfix(patches, label=MAIN_LABEL, replace=False)
    gone = set(place.channel.removed)
    listed = (package.key for package in packages_of(target) if package.hidden is None)
    if yanked := tuple(key for key in listed if key in gone):
        target.yank(yanked, label=MAIN_LABEL, reason=GONE)


def _changes(found: JsonObject, wanted: JsonObject) -> JsonObject:
    return {key: wanted.get(key) for key in _PATCHABLE if _value(found, key) != _value(wanted, key)}


def _value(record: JsonObject, key: str) -> object:
    """An absent list and an empty one are the same."""
    return record.get(key) or None


def far_foundation(foreign: Sequence[str], existing: Foundation | None) -> Foundation:
    """What the far side's packages build on: its foreign channel's address, or what is among them."""
    kind = Foundation(kind="conda-forge", address=foreign[0]) if foreign else Foundation(kind="registry")
    if existing is not None and existing.kind == kind.kind:
        return existing  # recorded where the mirror lay then; it may have been moved since
    return kind
