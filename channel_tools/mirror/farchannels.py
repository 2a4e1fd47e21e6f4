# SPDX-License-Identifier: BSD-3-Clause
"""Channels on the far side: ours are published to, as anywhere; a foreign one is kept as the bundle says it is.

A foreign channel's folder is no channel of ours: its index is not made from its packages but from the records that were
signed, so that hotfixes, and packages that we would not index, reach the far side unchanged.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from channel_tools.channel import Foundation, held_files, open_channel
from channel_tools.channel.content import REPODATA
from channel_tools.channel.model import PACKAGE_SUFFIX
from channel_tools.files import link_or_copy, write_bytes_atomically
from channel_tools.mirror.plan import OLD_SUFFIX
from channel_tools.mirror.subset import channeldata, derived_index, plain_index, read_plain
from channel_tools.mirror.upstream import SubdirRecords
from channel_tools.packages.reader import stream_component
from channel_tools.publish import MAIN_LABEL, PackageFile, PackageSet
from channel_tools.publish.open import open_target

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from channel_tools.mirror.model import BundleChannel, BundleFile
    from channel_tools.progress import Progress

_ABOUT = "info/about.json"
_OWN_MARK = b'"channel_tools"'


@dataclass(frozen=True, kw_only=True, slots=True)
class FarChannel:
    """A channel of a bundle on its way to ``path``: new files lie in ``incoming``, ``targets`` are by path in it."""

    path: Path
    incoming: Path
    channel: BundleChannel
    targets: Mapping[str, BundleFile]

    @property
    def packages(self) -> list[str]:
        """``subdir/file name`` of all packages that the far side has afterwards, in order."""
        return sorted(key for key in self.targets if key.endswith((PACKAGE_SUFFIX, OLD_SUFFIX)))

    @property
    def subdirs(self) -> list[str]:
        """The subdirs that the bundle has an index of, in order."""
        return sorted({key.partition("/")[0] for key in self.targets if key.endswith(f"/{REPODATA}")})


def take_foreign(place: FarChannel) -> None:
    """Link the packages in, then replace the indexes; packages that are not listed any more stay as files."""
    for key in place.packages:
        if (place.incoming / key).is_file():
            link_or_copy(place.incoming / key, place.path / key)
    listed: dict[str, SubdirRecords] = {}
    for subdir in place.subdirs:
        if not (place.incoming / subdir / REPODATA).is_file() and (place.path / subdir / REPODATA).is_file():
            listed[subdir] = read_plain(place.path / subdir / REPODATA)
            continue
        listed[subdir] = _merged(
            read_plain(place.path / subdir / REPODATA),
            read_plain(place.incoming / subdir / REPODATA),
            removed={key.partition("/")[2] for key in place.channel.removed if key.startswith(subdir + "/")},
        )
        plain = plain_index(subdir, listed[subdir])
        derived = derived_index(subdir, listed[subdir], plain, now_s=time.time())
        for name, content in {**derived, **plain}.items():  # shards and their index before the index of all
            _write_if_other(place.path / subdir / name, content)
    for name, content in channeldata(listed).items():
        _write_if_other(place.path / name, content)


def _merged(before: SubdirRecords, new: SubdirRecords, *, removed: Iterable[str]) -> SubdirRecords:
    gone = set(removed)
    return SubdirRecords(
        conda={name: row for name, row in sorted({**before.conda, **new.conda}.items()) if name not in gone},
        old={name: row for name, row in sorted({**before.old, **new.old}.items()) if name not in gone},
    )


def _write_if_other(path: Path, content: bytes) -> None:
    if not path.is_file() or path.read_bytes() != content:
        write_bytes_atomically(path, content)


def take_own(place: FarChannel, *, foundation_address: str | None, stacks: Iterable[str], progress: Progress) -> None:
    """Publish the packages to the folder ``place.path`` as one set.

    ``foundation_address`` is where the far side has the foreign channel that they build on; None when the foundation's
    packages are among them.
    """
    kind = (
        Foundation(kind="registry")
        if foundation_address is None
        else Foundation(kind="conda-forge", address=foundation_address)
    )
    files = [_package_file(place, key, registry=foundation_address is None) for key in place.packages]
    if foundation_address is None:
        files += _foundation_there(place, {file.key for file in files})
    if place.path.exists() and open_channel(place.path).foundation.kind == kind.kind:
        kind = open_channel(place.path).foundation  # recorded where the mirror lay then; it may have been moved
    packages = PackageSet(name=f"stack {', '.join(stacks)}", files=tuple(sorted(files)), foundation=kind)
    target = open_target(str(place.path), environ={})
    target.publish(target.plan(packages, label=MAIN_LABEL), progress=progress)


def _package_file(place: FarChannel, key: str, *, registry: bool) -> PackageFile:
    subdir, _, file_name = key.partition("/")
    incoming = place.incoming / key
    path = incoming if incoming.is_file() else place.path / key
    return PackageFile(
        subdir=subdir,
        file_name=file_name,
        path=path,
        sha256=place.targets[key].sha256,
        size_bytes=place.targets[key].size_bytes,
        foundation=registry and not _is_ours(path),
    )


def _is_ours(package: Path) -> bool:
    """Whether a recipe of ours made it: the plan's mark is in its about.json."""
    for member, stream in stream_component(package, "info"):
        if member.name == _ABOUT and stream is not None:
            return _OWN_MARK in stream.read()
    return False


def _foundation_there(place: FarChannel, known: set[str]) -> list[PackageFile]:
    """Foundation packages of earlier bundles: they stay listed, since other stacks are solved with them."""
    if not place.path.exists():
        return []
    held = held_files(open_channel(place.path), place.subdirs)
    return [
        PackageFile(
            subdir=key.partition("/")[0],
            file_name=file.path.name,
            path=file.path,
            sha256=file.sha256,
            size_bytes=file.size_bytes,
            foundation=True,
        )
        for key, file in held.items()
        if file.foundation and file.hidden is None and key not in known and key not in place.channel.removed
    ]
