# SPDX-License-Identifier: BSD-3-Clause
"""Channels at the importing site: ours are published to, as anywhere; others in a folder are copies of the bundle's.

The index of a third-party channel is not made from its packages but from the signed records, so that hotfixes, and
packages that we would not index, arrive unchanged. If packages are published, their records are made again, so what
differs from the signed ones becomes a hotfix, and what the bundle no longer lists is yanked.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from channel_tools.audit.policy import is_of_foundation
from channel_tools.channel import Foundation
from channel_tools.channel.listing import Patch, changes_between
from channel_tools.channel.state import STATE_BYTES
from channel_tools.conda.addresses import channel_name
from channel_tools.conda.archive import read_info_files
from channel_tools.conda.contents import info_object, parsed_json
from channel_tools.conda.index import SubdirRecords, read_index
from channel_tools.conda.package import HASHED_NAME, OLD_SUFFIX, SUFFIX
from channel_tools.conda.repodata import CHANNELDATA, REPODATA
from channel_tools.mirror.format import channel_path, package_at
from channel_tools.mirror.records import channeldata, derived_index, plain_index, read_plain
from channel_tools.publish.model import MAIN_LABEL, PackageFile, PackageSet
from channel_tools.publish.target import maintained
from channel_tools.requests.names import DEFAULT_FOUNDATION
from channel_tools.system.beneath import Beneath
from channel_tools.system.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from channel_tools.conda.fetch import HashedFile
    from channel_tools.conda.package import PackageKey
    from channel_tools.mirror.format import BundleChannel
    from channel_tools.publish.model import LabelPackage
    from channel_tools.publish.target import MaintainedTarget, Target
    from channel_tools.system.http.client import HttpClient
    from channel_tools.system.progress import Progress

GONE = "no longer listed by the channel that the bundle was made from"
_ABOUT = "about.json"
_INDEX = "index.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class IncomingChannel:
    """A channel of a verified bundle: new files are in ``incoming``, ``files`` are by path in the channel."""

    incoming: Beneath
    channel: BundleChannel
    files: Mapping[str, HashedFile]

    @property
    def packages(self) -> dict[PackageKey, HashedFile]:
        """All packages that the site will have, sorted."""
        files = {package_at(file.path, self.channel.name): file for file in self.files.values()}
        return dict(sorted((key, file) for key, file in files.items() if key is not None))

    @property
    def attestations(self) -> dict[str, str]:
        """The packages with new attestations, by the path of these in the channel."""
        matches = {path: HASHED_NAME.fullmatch(path) for path in self.files}
        return {
            path: name["package"]
            for path, name in matches.items()
            if name and self.incoming.file_stat(path) is not None
        }

    @property
    def subdirs(self) -> list[str]:
        """The subdirs whose index is in the bundle, sorted."""
        return sorted(path.removesuffix(f"/{REPODATA}") for path in self.files if path.endswith(f"/{REPODATA}"))

    @property
    def removed(self) -> frozenset[PackageKey]:
        """The packages that new solves must not see."""
        name = self.channel.name
        keys = (package_at(channel_path(name, key), name) for key in self.channel.removed)
        return frozenset(key for key in keys if key is not None)


def update_third_party(channel: IncomingChannel, folder: Path) -> None:
    """Add the packages as links, then replace the indexes; packages that are no longer listed stay as files.

    A package that its channel replaced under the same name is replaced here as well, since the new record is for the
    new bytes.
    """
    files, incoming = Beneath(root=folder), channel.incoming
    folder.mkdir(parents=True, exist_ok=True)
    for key in map(str, channel.packages):
        if incoming.file_stat(key) is not None:
            put_in_place(incoming, files, key)
    for path in channel.attestations:
        with incoming.opened(path) as stream:
            files.link(stream, path)
    listed: dict[str, SubdirRecords] = {}
    for subdir in channel.subdirs:
        before = read_plain(files, f"{subdir}/{REPODATA}")
        removed = {key.file_name for key in channel.removed if key.subdir == subdir}
        merged = sorted({**before, **read_plain(incoming, f"{subdir}/{REPODATA}")}.items())
        listed[subdir] = {name: row for name, row in merged if name not in removed}
        plain = plain_index(subdir, listed[subdir])
        derived = derived_index(subdir, listed[subdir], plain, now_s=time.time())
        present = {name: files.file_stat(f"{subdir}/{name}") for name in (*derived, *plain)}
        lacks = None in present.values()  # shards of an earlier form
        if lacks or before != listed[subdir]:
            for name, content in {**derived, **plain}.items():  # shards and their index before the full index
                _write_if_changed(files, f"{subdir}/{name}", content)
    _write_if_changed(files, CHANNELDATA, channeldata(listed))


def put_in_place(incoming: Beneath, files: Beneath, name: str) -> None:
    """Link a file into place, under the same name; another version of it may already have that."""
    if files.file_stat(name) is not None:
        if files.sha256(name) == incoming.sha256(name):
            return
        files.remove(name)
    with incoming.opened(name) as stream:
        files.link(stream, name)


def _write_if_changed(files: Beneath, name: str, content: bytes) -> None:
    if files.file_stat(name) is None or files.read(name, limit_bytes=STATE_BYTES) != content:
        files.write(name, content)


@dataclass(frozen=True, kw_only=True, slots=True)
class Publishing:
    """What publishing a bundle's channel needs: the target with its address and packages, and their foundation."""

    target: Target
    address: str
    published: Mapping[PackageKey, LabelPackage]
    foundation: Foundation
    name: str
    client: HttpClient


def publish_channel(channel: IncomingChannel, how: Publishing, *, progress: Progress) -> None:
    """Publish the packages as one set, then make the listing agree with the bundle's records.

    Raises UsageError for packages in the old format, and what Target raises.
    """
    arriving = channel.packages
    if old := [key for key in arriving if key.file_name.endswith(OLD_SUFFIX)]:
        message = (
            f"{how.target.address}: {old[0]} is in the old package format, which can only be imported into a folder"
        )
        raise UsageError(message, hint="import into a folder on the server's machine, and serve that")
    for path, package in channel.attestations.items():  # they are published with the packages that they are beside
        sidecar = package + SUFFIX
        channel.incoming.remove(sidecar)
        with channel.incoming.opened(path) as stream:
            channel.incoming.link(stream, sidecar)
    target, published = maintained(how.target), how.published
    removed = channel.removed
    back = [key for key, package in published.items() if package.yanked == GONE and key not in removed]
    if back:
        target.yank(tuple(map(str, back)), label=MAIN_LABEL, reason=None)
    registry = how.foundation.is_made_here
    yanked = {key for key, package in published.items() if package.yanked is not None and key not in back}
    files = [
        _package_file(channel, key, file, published.get(key), registry=registry)
        for key, file in arriving.items()
        if key not in yanked
    ]
    if registry:
        files += _kept_foundation(channel, published)
    packages = PackageSet(
        name=how.name, files=tuple(sorted(files)), foundation=how.foundation, patches=_corrections(channel, published)
    )
    target.publish(target.plan(packages, label=MAIN_LABEL), progress=progress)
    _patch_and_yank(channel, how, target)


def _corrections(channel: IncomingChannel, published: Mapping[PackageKey, LabelPackage]) -> dict[str, Patch]:
    """Patches for what the bundle's index lists of new packages otherwise than they say themselves."""
    patches = {}
    for subdir in channel.subdirs:
        listed, folder = read_plain(channel.incoming, f"{subdir}/{REPODATA}"), channel.incoming.at(subdir)
        records = {}
        for key in channel.packages:
            if key.subdir != subdir or key in published or (record := listed.get(key.file_name)) is None:
                continue
            path = channel.incoming.path / str(key)
            index = info_object(read_info_files(path, frozenset({_INDEX}), folder=folder), _INDEX, path)
            if changes := changes_between(index, record):
                records[key.file_name] = changes
        if records:
            patches[subdir] = Patch(records=records)
    return patches


def packages_of(target: Target) -> dict[PackageKey, LabelPackage]:
    """The published packages, including hidden ones; empty if nothing has been published yet."""
    channel_target = maintained(target)
    packages = channel_target.packages(MAIN_LABEL) if MAIN_LABEL in channel_target.labels() else ()
    return {package.key: package for package in packages}


def _package_file(
    channel: IncomingChannel, key: PackageKey, file: HashedFile, published: LabelPackage | None, *, registry: bool
) -> PackageFile:
    """The package to publish; what is known of one that is already there is kept."""
    path = channel.incoming.path / str(key)
    ours = published is None and channel.channel.own and _is_ours(path, channel.incoming.at(key.subdir))
    return PackageFile(
        subdir=key.subdir,
        file_name=key.file_name,
        path=path,
        sha256=file.sha256,
        size_bytes=file.size_bytes,
        foundation=published.foundation if published is not None else registry and not ours,
    )


def _is_ours(package: Path, folder: Beneath) -> bool:
    """Whether this program built it from a recipe: then its about.json has a plan's mark, not the foundation's."""
    files = read_info_files(package, frozenset({_ABOUT}), folder=folder)
    match parsed_json(files, _ABOUT, package) if files else None:
        case {"extra": {"channel_tools": dict()} as extra}:
            return not is_of_foundation(extra)
    return False


def _kept_foundation(channel: IncomingChannel, published: Mapping[PackageKey, LabelPackage]) -> list[PackageFile]:
    """Foundation packages of earlier bundles, which stay listed, since other stacks are solved with them."""
    left_out = {*channel.packages, *channel.removed}
    return [
        PackageFile.of(package, channel.incoming.path / str(key))
        for key, package in published.items()
        if package.foundation and package.hidden is None and key not in left_out
    ]


def _patch_and_yank(channel: IncomingChannel, how: Publishing, target: MaintainedTarget) -> None:
    """Hotfix and yank packages for which the bundle's index differs from the target's."""
    patches = {}
    for subdir in channel.subdirs:
        target_records = read_plain(channel.incoming, f"{subdir}/{REPODATA}")
        records = read_index(how.address, subdir, target_records.keys(), how.client).records
        patch = Patch(
            records={
                name: changes for name in records if (changes := changes_between(records[name], target_records[name]))
            }
        )
        if patch.records:
            patches[subdir] = patch
    if patches:
        target.hotfix(patches, label=MAIN_LABEL, replace=False)
    listed = {key for key, package in packages_of(target).items() if package.hidden is None}
    if yanked := tuple(map(str, sorted(listed & channel.removed))):
        target.yank(yanked, label=MAIN_LABEL, reason=GONE)


def import_foundation(
    channel: IncomingChannel,
    third_party: Sequence[str],
    existing: Foundation | None,
    published: Mapping[PackageKey, LabelPackage],
) -> Foundation:
    """The foundation of the packages of ``channel``, ours, at the importing site, where it was ``existing`` before.

    ``published`` are the packages that the site has of it. The kind of an existing one stays if its channels have the
    names of those at the addresses ``third_party``, or if there are none of these and this program built all packages.
    Else it is the registry's if the channel has packages that this program did not build, or if there are no others,
    and otherwise the last of the others. All the rest are further channels. The base is that which the bundle names;
    bundles of versions that had only the first base name none.
    """
    if existing is not None and _has_channels(existing, third_party):
        kind = existing.kind
    elif not _is_all_ours(channel, published):
        kind = "registry"
    elif third_party:
        kind = "conda-forge"
    else:
        kind = DEFAULT_FOUNDATION if existing is None else existing.kind
    if existing is not None and existing.kind == kind:  # its address may have been moved since
        own = None if existing.address is None else channel_name(existing.address)
        base = existing.base if channel.channel.base is None else channel.channel.base
        return existing.on(base).with_further(address for address in third_party if channel_name(address) != own)
    if kind == "registry":
        return Foundation(kind=kind, further=tuple(third_party)).on(channel.channel.base)
    return Foundation(kind=kind, address=third_party[-1], further=tuple(third_party[:-1]))


def _has_channels(foundation: Foundation, third_party: Sequence[str]) -> bool:
    """Whether channels of these names, the last in place of a foundation at an address, are known to belong to it."""
    names = list(map(channel_name, third_party))
    if foundation.address is not None:
        return names[-1:] == [channel_name(foundation.address)]
    return set(names) <= set(map(channel_name, foundation.further))


def _is_all_ours(channel: IncomingChannel, published: Mapping[PackageKey, LabelPackage]) -> bool:
    """Whether this program built all packages: those that arrive, and those that are ``published`` by what is known."""
    return all(
        not published[key].foundation
        if key in published
        else _is_ours(channel.incoming.path / str(key), channel.incoming.at(key.subdir))
        for key in channel.packages
    )
