# SPDX-License-Identifier: BSD-3-Clause
"""Takes over a channel folder that another tool made: conda-index, rattler's indexer, quetz or a mirror of one.

No package file is changed, moved or deleted. What the former index says beyond the packages becomes ours: hotfixes are
the differences between its records and the packages' metadata, ``removed`` packages stay removed, ``revoked`` ones
revoked, and a file whose bytes are not those that were listed is not listed. The former index files are kept in
``.channel_tools/former``; those that our indexes do not replace (such as current_repodata.json) are moved there, since
clients would read them as if they were current.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Literal

from channel_tools import __version__
from channel_tools.channel.content import INDEX_FILES
from channel_tools.channel.former import read_former, read_plain
from channel_tools.channel.index import index_channel
from channel_tools.channel.listing import CHANNEL_SCHEMA, PATCHABLE, REVOKED, Listing, Patch, changes_between
from channel_tools.channel.model import RECORD_FOLDER, Channel
from channel_tools.channel.records import CachedPackage, RefusedFile, UnreadFile, read_files, scan_packages
from channel_tools.channel.state import ChannelRecord, write_channel_record, write_listing
from channel_tools.channel.store import channel_writer, open_channel
from channel_tools.conda.addresses import local_path, packages_address
from channel_tools.conda.contents import JsonObject  # noqa: TC001 - msgspec reads the annotations
from channel_tools.conda.package import PACKAGE_SUFFIXES, PackageKey, subdirs_of
from channel_tools.conda.repodata import (
    CHANNELDATA,
    REPODATA,
    REPODATA_FROM_PACKAGES,
    REPODATA_ZST,
    SHARD_INDEX,
    SHARD_SUFFIX,
    SHARDS_FOLDER,
)
from channel_tools.conda.specs import InvalidSpecError, read_spec, texts_of
from channel_tools.system.beneath import Beneath
from channel_tools.system.counting import counted
from channel_tools.system.errors import ChannelError
from channel_tools.system.files import disk_full_reported

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from channel_tools.channel.index import IndexReport
    from channel_tools.channel.model import Foundation

RemarkKind = Literal["not listed", "missing", "new", "removed", "field"]
FORMER = "former"
"""The folder below ``.channel_tools`` with the index files of the tool that made the channel."""
_INDEX_PATTERNS = ("repodata*", "current_repodata*", "run_exports.json*", "patch_instructions.json", "index.html")
_ROOT_PATTERNS = ("channeldata.json*", "rss.xml", "index.html")
_MADE_ANEW = frozenset({"indexed_timestamp", "revoked", "md5", "sha256", "size", "run_exports", "attestations_sha256"})
_SPECS = ("depends", "constrains")
_UNREAD = "{entries} under {key} of the former index, which is not read here: not taken over"
_NS_PER_MS = 1_000_000


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class Remark:
    """What adoption does not take over as it was, or the former index did not say: of which file, and why."""

    path: str
    kind: RemarkKind
    message: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Adoption:
    """What adoption makes of one folder.

    ``rows`` are the packages that it takes over, by key; ``patches`` the former index's hotfixes by subdir.
    ``superseded`` are index files that are moved to ``.channel_tools/former``, by path. ``is_ours`` says that the
    folder is a channel of channel_tools already, so that only its indexes are brought up to date.
    """

    path: Path
    foundation: Foundation
    rows: Mapping[PackageKey, CachedPackage] = field(default_factory=dict)
    patches: Mapping[str, Patch] = field(default_factory=dict)
    remarks: tuple[Remark, ...] = ()
    superseded: tuple[str, ...] = ()
    is_ours: bool = False

    @property
    def removed(self) -> int:
        """How many of the packages new solves do not see."""
        return sum(len(patch.remove) for patch in self.patches.values())

    @property
    def patched(self) -> int:
        """How many packages have a hotfix or are revoked."""
        return sum(len({*patch.records, *patch.revoke}) for patch in self.patches.values())

    @property
    def refused(self) -> tuple[Remark, ...]:
        """The packages in the folder that are not listed."""
        return tuple(remark for remark in self.remarks if remark.kind == "not listed")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Subdir:
    rows: dict[str, CachedPackage]
    patch: Patch
    remarks: list[Remark]


def plan_adoption(path: Path, foundation: Foundation) -> Adoption:
    """Read the folder's packages in full, compare them with its index, and change nothing.

    Raises ChannelError for a folder that is not a channel or keeps its packages elsewhere, IntegrityError for an index
    that cannot be read, and FoundationError if it is a channel of ours already, with another foundation.
    """
    if path.is_dir() and Beneath(root=path).stat(f"{RECORD_FOLDER}/channel.json") is not None:
        channel = open_channel(path, foundation=foundation)
        return Adoption(path=path, foundation=channel.foundation, superseded=_superseded(path), is_ours=True)
    subdirs = _channel_subdirs(path)
    subdir_plans = {subdir: _read_subdir(Beneath(root=path).at(subdir)) for subdir in subdirs}
    return Adoption(
        path=path,
        foundation=foundation,
        rows={
            PackageKey(subdir, name): row
            for subdir, adopted in subdir_plans.items()
            for name, row in adopted.rows.items()
        },
        patches={subdir: adopted.patch for subdir, adopted in subdir_plans.items() if adopted.patch.names()},
        remarks=tuple(sorted(remark for adopted in subdir_plans.values() for remark in adopted.remarks)),
        superseded=_superseded(path),
    )


def adopt(plan: Adoption, *, clock: Callable[[], float] = time.time) -> IndexReport:
    """Make the folder a channel of ours as planned; running it again completes what was interrupted.

    Raises ChannelError while another process writes to it, DiskFullError.
    """
    channel = Channel(path=plan.path, foundation=plan.foundation)
    with disk_full_reported(plan.path), channel_writer(channel, clock=clock) as writer:
        if not plan.is_ours:
            _copy_former(plan)
            write_listing(channel, Listing(patches=dict(plan.patches)))
            record = ChannelRecord(
                schema=CHANNEL_SCHEMA,
                name=plan.path.absolute().name,
                foundation=plan.foundation,
                created_with=f"channel_tools {__version__}",
            )
            write_channel_record(channel, record)  # from here on it is a channel, which the next index run completes
        report = index_channel(writer, known=plan.rows)
        for name in plan.superseded:
            channel.files.move(name, _former_name(name))
    return report


def _channel_subdirs(path: Path) -> list[str]:
    """The subdirs with packages or an index. Raises ChannelError if there are none."""
    if not path.is_dir():
        raise ChannelError(f"{path}: no such folder", hint="name the channel's folder with --at")
    files = Beneath(root=path)
    subdirs = [subdir for subdir in subdirs_of(files) if _is_subdir(files.names(subdir))]
    if not subdirs:
        message = f"{path}: not a channel; expected folders such as linux-64 or noarch with packages or {REPODATA}"
        raise ChannelError(message, hint="name the folder that has the subdirs, with --at")
    return subdirs


def _is_subdir(names: Iterable[str]) -> bool:
    indexes = (REPODATA, REPODATA_ZST, SHARD_INDEX)
    return any(name in indexes or name.endswith(PACKAGE_SUFFIXES) for name in names)


def _read_subdir(files: Beneath) -> _Subdir:
    folder = files.path
    former = read_former(files)
    unpatched = read_plain(files, REPODATA_FROM_PACKAGES)
    records = {} if former is None else former.records
    if former is not None and records and not _is_here(folder.absolute(), former.base_url):
        message = f"{folder}: its index says that the packages are at {former.base_url} (base_url)"
        raise ChannelError(message, hint="adopt the folder that has the packages, or mirror the channel")
    removed = {*(former.removed if former else ()), *(unpatched.records if unpatched else ())} - records.keys()
    compared = _compare(files, records, removed, indexed=former is not None)
    unread = former.unread.items() if former else ()
    lost = [
        Remark(
            path=folder.name, kind="field", message=_UNREAD.format(entries=counted(count, "entry", "entries"), key=key)
        )
        for key, count in unread
    ]
    return replace(compared, remarks=[*compared.remarks, *lost])


def _is_here(folder: Path, base_url: str | None) -> bool:
    """Whether an index in ``folder`` says that the packages are there, too."""
    packages_folder = local_path(packages_address(folder.parent.as_uri(), folder.name, base_url))
    return packages_folder is not None and os.path.normpath(packages_folder) == os.path.normpath(folder)


def _compare(files: Beneath, records: Mapping[str, JsonObject], removed: set[str], *, indexed: bool) -> _Subdir:
    """Read the packages and compare them with their former ``records``; ``removed`` were not shown to solves."""
    folder = files.path
    stamps, _attestations = scan_packages(files)
    unread = [
        UnreadFile(
            folder=files,
            name=name,
            stamp=stamp,
            contents=True,
            expected_sha256=_text(records.get(name, {}).get("sha256")),
            indexed_ms=_time(records.get(name, {}).get("indexed_timestamp")) or stamp.mtime_ns // _NS_PER_MS,
            published=None,
        )
        for name, stamp in stamps.items()
    ]
    packages = dict(sorted(read_files(unread)))
    rows = {name: row for name, row in packages.items() if isinstance(row, CachedPackage)}
    remarks = list(_remarks_on_files(folder, records, packages, removed, indexed=indexed))
    changes, revoked = {}, []
    for name in sorted(rows.keys() & records.keys()):
        if changed := _hotfix(folder, name, rows[name].record, records[name], remarks):
            changes[name] = changed
        if records[name].get("revoked"):
            revoked.append(name)
    remarks += _remarks_on_fields(
        folder, {name: (rows[name].record, records[name]) for name in rows if name in records}
    )
    patch = Patch(records=changes, remove=tuple(sorted(removed & rows.keys())), revoke=tuple(revoked))
    return _Subdir(rows=rows, patch=patch, remarks=remarks)


def _remarks_on_files(
    folder: Path,
    records: Mapping[str, JsonObject],
    packages: Mapping[str, CachedPackage | RefusedFile],
    removed: set[str],
    *,
    indexed: bool,
) -> Iterator[Remark]:
    for name, row in packages.items():
        path = f"{folder.name}/{name}"
        if isinstance(row, RefusedFile):
            yield Remark(path=path, kind="not listed", message=row.message.removeprefix(f"{folder / name}: "))
        elif name in removed:
            yield Remark(path=path, kind="removed", message="new solves do not see it, as before")
        elif indexed and name not in records:
            yield Remark(path=path, kind="new", message="the former index did not list it; it is listed now")
    for name in sorted(records.keys() - packages.keys()):
        message = "the former index lists it, but there is no such file; it is no longer listed"
        yield Remark(path=f"{folder.name}/{name}", kind="missing", message=message)


def _hotfix(folder: Path, name: str, record: JsonObject, former: JsonObject, remarks: list[Remark]) -> JsonObject:
    """The patchable fields in which the former record differs from the package's metadata.

    A field that no index of ours can have is remarked on, and the package's own is kept.
    """
    target = dict(former)
    if target.get("revoked"):
        target["depends"] = [spec for spec in texts_of(target, "depends") if spec != REVOKED]
    if isinstance(features := target.get("track_features"), list):
        target["track_features"] = " ".join(map(str, features))
    changed = changes_between(record, target)
    for key in _SPECS:
        if key not in changed:
            continue
        try:
            if _normal(texts_of(record, key)) == _normal(texts_of(target, key)):
                del changed[key]
        except InvalidSpecError as err:
            del changed[key]
            message = f"the former record's {key} is not taken over: {err}"
            remarks.append(Remark(path=f"{folder.name}/{name}", kind="field", message=message))
    return changed


def _normal(specs: tuple[str, ...]) -> list[str]:
    """The MatchSpecs in rattler's spelling, which its indexer writes."""
    return [str(read_spec(spec)) for spec in specs]


def _remarks_on_fields(folder: Path, pairs: Mapping[str, tuple[JsonObject, JsonObject]]) -> Iterator[Remark]:
    """Fields of former records that are neither hotfixes nor in our records: how many records have each."""
    lost: Counter[str] = Counter()
    for name, (record, former) in pairs.items():
        for key, value in former.items():
            if key in _MADE_ANEW or key in PATCHABLE or value in (None, "", [], {}) or record.get(key) == value:
                continue
            if key in record:
                message = f"{key} was {value!r} in the former record; the package's own {record[key]!r} is listed"
                yield Remark(path=f"{folder.name}/{name}", kind="field", message=message)
            else:
                lost[key] += 1
    for key, count in sorted(lost.items()):
        having = counted(count, "record has", "records have")
        message = f"{having} the field {key}, which indexes here do not have; it is not taken over"
        yield Remark(path=folder.name, kind="field", message=message)


def _superseded(path: Path) -> tuple[str, ...]:
    """Index files of another tool that ours do not replace, by path in the channel."""
    files, own_files = Beneath(root=path), {*INDEX_FILES, REPODATA_FROM_PACKAGES, CHANNELDATA}
    has_page = files.file_stat(f"{RECORD_FOLDER}/page.json") is not None
    folders = [
        *([] if has_page else [("", _ROOT_PATTERNS)]),
        *((subdir, _INDEX_PATTERNS) for subdir in subdirs_of(files)),
    ]
    return tuple(
        f"{folder}/{name}".lstrip("/")
        for folder, patterns in folders
        for name, status in sorted(files.stats(folder))
        if stat.S_ISREG(status.st_mode)
        and name not in own_files
        and any(fnmatchcase(name, pattern) for pattern in patterns)
    )


def _copy_former(plan: Adoption) -> None:
    """Keep the index files that ours replace."""
    files = Beneath(root=plan.path)
    names = [CHANNELDATA]
    for subdir in subdirs_of(files):
        names += [f"{subdir}/{name}" for name in (*_COPIED, *_shards_in(files.at(subdir)))]
    for name in names:
        with contextlib.suppress(FileNotFoundError), files.opened(name) as stream:
            files.copy(stream, _former_name(name))


def _shards_in(files: Beneath) -> list[str]:
    """The sharded index and the shards that ours take the place of, if the folder has no other index."""
    if any(files.file_stat(name) is not None for name in (REPODATA, REPODATA_ZST)):
        return []
    shards = (name for name, _ in files.stats(SHARDS_FOLDER) if name.endswith(SHARD_SUFFIX))
    return [SHARD_INDEX, *(f"{SHARDS_FOLDER}/{name}" for name in shards)]


_COPIED = (*(name for name in INDEX_FILES if name != SHARD_INDEX), REPODATA_FROM_PACKAGES)


def _former_name(name: str) -> str:
    return f"{RECORD_FOLDER}/{FORMER}/{name}"


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _time(value: object) -> int | None:
    return value if isinstance(value, int) and value > 0 else None
