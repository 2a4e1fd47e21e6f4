# SPDX-License-Identifier: BSD-3-Clause
"""Proves that a channel matches its indexes, from the files alone, without using any cache.

The channel is read without the writer's lock, so that publishing does not have to wait. Indexes from different moments
disagree, so findings during a write are checked again.
"""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING, Any

import msgspec

from channel_tools.channel.content import INDEX_FILES
from channel_tools.channel.listing import Listing, Patch, names_in, not_listed
from channel_tools.channel.model import Channel, ChannelFault, ChannelFaultKind
from channel_tools.channel.records import CachedPackage, Stamp, cached_package, run_exports_of
from channel_tools.channel.state import LISTING, STATE_BYTES, read_listing
from channel_tools.conda.archive import read_package
from channel_tools.conda.package import PACKAGE_SUFFIXES, PackageKey, subdirs_of
from channel_tools.conda.repodata import (
    REPODATA,
    REPODATA_FROM_PACKAGES,
    REPODATA_ZST,
    RUN_EXPORTS,
    SHARD_BYTES,
    SHARD_INDEX,
    SHARD_SUFFIX,
    SHARDS_FOLDER,
    unpack_index,
)
from channel_tools.system.document import convert, decode_json, decode_msgpack
from channel_tools.system.errors import ChannelToolsError
from channel_tools.system.locks import is_locked

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from channel_tools.conda.contents import JsonObject
    from channel_tools.system.beneath import Beneath

_INDEX_AGAIN = "index the channel again: channel_tools channel index"
_READINGS = 3
_NOT_OF_LISTED = frozenset[ChannelFaultKind]({"unindexed", "foreign"})
"""Faults of files that no solve sees."""


def verify_channel(channel: Channel, *, wait_s: float = 10.0) -> list[ChannelFault]:
    """Read every package and every index of the channel in full; returns all faults, in order of path.

    Faults are damaged packages, files that are not indexed, indexed names without a file, bytes that differ from the
    index, indexes that disagree with each other or cannot be read, files that do not belong in a subdir, and listed
    packages of ours that no solve could install (once all else that is listed is sound). If there
    are findings while a process writes to the channel, it is verified again, up to three times, each time after waiting
    at most ``wait_s`` for that process; if it still writes, there is a finding of the kind "changing".
    """
    packages = _ReadOnce()
    for _ in range(_READINGS):
        before = _index_state(channel)
        findings = _verify_once(channel, packages)
        if not findings:
            return []
        # a reader may not open the lock
        written_to = os.access(channel.lock_file, os.W_OK) and is_locked(channel.lock_file, wait_s=wait_s)
        if _index_state(channel) == before and not written_to:
            return findings
    message = f"{channel.path}: changed during all {_READINGS} verifications; other findings may be due to that"
    hint = "verify it again when nothing is being built or published into it"
    return [ChannelFault(path=channel.path, kind="changing", message=message, hint=hint), *findings]


def _index_state(channel: Channel) -> dict[str, tuple[int, int, int] | None]:
    """Data that changes with any write to the channel: inode, size and time of each index and of the listing."""
    folders = subdirs_of(channel.files)
    files = [f"{folder}/{name}" for folder in folders for name in (*INDEX_FILES, REPODATA_FROM_PACKAGES)]
    return {name: _identity(channel.files, name) for name in (LISTING, *files)}


def _identity(files: Beneath, name: str) -> tuple[int, int, int] | None:
    try:
        status = files.stat(name)
    except ChannelToolsError:  # a finding, which says what is there
        return None
    if status is None:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


class _ReadOnce:
    """Reads packages in full, each once while its file is unchanged; keeps the data for their records."""

    def __init__(self) -> None:
        self._sound: dict[tuple[Path, Stamp], CachedPackage] = {}

    def read(self, folder: Beneath, name: str, patch: Patch) -> CachedPackage:
        """The package's row for the index, which ``patch`` corrects. Raises as read_package and make_record do."""
        path, status = folder.path / name, folder.file_stat(name)
        known = None if status is None else self._sound.get((path, Stamp.of(status)))
        if known is not None:
            return known
        info = read_package(path, contents=True, folder=folder, correction=patch.records.get(name))
        row = cached_package(path, info, indexed_ms=0, folder=folder)
        if status is not None:
            self._sound[path, Stamp.of(status)] = row
        return row


def _verify_once(channel: Channel, packages: _ReadOnce) -> list[ChannelFault]:
    listing = read_listing(channel)
    silent = {*not_listed(listing), *listing.incoming}
    findings: list[ChannelFault] = []
    listed: dict[str, dict[str, CachedPackage]] = {}
    for subdir in subdirs_of(channel.files):
        folder = channel.files.at(subdir)
        records = _read_repodata(folder, findings)
        if records is None:
            continue
        hidden = names_in(subdir, silent)
        patch = listing.patches.get(subdir, Patch())
        listed[subdir] = {}
        findings += _check_packages(folder, records, hidden, patch, packages, listed[subdir])
        findings += _check_indexes(folder, records)
        findings += _check_unpatched(folder, records, hidden, patch)
    # a fault of a listed package would be said again of all that need it
    if all(finding.kind in _NOT_OF_LISTED for finding in findings):
        findings += _check_solves(channel, listing, listed)
    return sorted(findings)


def _finding(path: Path, message: str, *, hint: str = _INDEX_AGAIN) -> ChannelFault:
    return ChannelFault(path=path, kind="inconsistent", message=f"{path}: {message}", hint=hint)


def _read(folder: Beneath, name: str) -> bytes:
    return folder.read(name, limit_bytes=STATE_BYTES)


def _damaged(path: Path, err: ChannelToolsError) -> ChannelFault:
    return ChannelFault(path=path, kind="damaged", message=err.message, hint=err.hint or "")


def _read_repodata(folder: Beneath, findings: list[ChannelFault]) -> dict[str, JsonObject] | None:
    path = folder.path / REPODATA
    try:
        return _rows(decode_json(_read(folder, REPODATA), dict[str, object]))
    except FileNotFoundError:
        findings.append(_finding(path, "is missing"))
    except ChannelToolsError as err:
        findings.append(_damaged(path, err))
    except (msgspec.MsgspecError, KeyError) as err:
        findings.append(_finding(path, f"is not valid repodata ({err})"))
    return None


def _rows(index: object) -> dict[str, JsonObject]:
    """The rows of both formats in an index. Raises KeyError without ``packages.conda``, and msgspec.ValidationError."""
    document = convert(index, dict[str, object])
    conda = convert(document["packages.conda"], dict[str, dict[str, object]])
    return convert(document.get("packages", {}), dict[str, dict[str, object]]) | conda


def _check_packages(
    folder: Beneath,
    records: dict[str, JsonObject],
    hidden: frozenset[str],
    patch: Patch,
    packages: _ReadOnce,
    listed: dict[str, CachedPackage],
) -> Iterator[ChannelFault]:
    """The faults of packages; those that the index has as they are go into ``listed``."""
    present = set(folder.names())
    for name in sorted(records.keys() - present):
        path = folder.path / name
        message = f"{path}: the index names it, but it does not exist"
        yield ChannelFault(path=path, kind="missing", message=message, hint=f"restore the file, or {_INDEX_AGAIN}")
    for name in sorted(present):
        if name.endswith(PACKAGE_SUFFIXES):
            yield from _check_package(
                folder, name, records.get(name), packages, listed, hidden=name in hidden, patch=patch
            )


def _check_package(
    folder: Beneath,
    name: str,
    record: JsonObject | None,
    packages: _ReadOnce,
    listed: dict[str, CachedPackage],
    *,
    hidden: bool,
    patch: Patch,
) -> Iterator[ChannelFault]:
    path = folder.path / name
    try:
        row = packages.read(folder, name, patch)
        expected = patch.applied(name, _unstamped(row.record))
    except ChannelToolsError as err:
        yield _damaged(path, err)
        return
    if record is None:
        if not hidden:
            message = f"{path}: is complete but not in the index"
            yield ChannelFault(path=path, kind="unindexed", message=message, hint=_INDEX_AGAIN)
    elif record.get("sha256") != row.sha256:
        message = f"{path}: its sha256 is {row.sha256}; the index says {record.get('sha256')}"
        yield ChannelFault(
            path=path, kind="changed", message=message, hint=f"restore the published file, or {_INDEX_AGAIN}"
        )
    elif _unstamped(record) != expected:
        yield _finding(path, "its record in the index does not match its metadata")
    else:
        listed[name] = row.patched(record)


def _unstamped(record: JsonObject) -> JsonObject:
    return {key: value for key, value in record.items() if key != "indexed_timestamp"}


def _check_solves(
    channel: Channel, listing: Listing, listed: Mapping[str, Mapping[str, CachedPackage]]
) -> Iterator[ChannelFault]:
    """A fault for each listed package of ours that cannot be installed, unless it was revoked, which is to that end."""
    from channel_tools.channel.still_installable import find_uninstallable  # noqa: PLC0415 - imports rattler, slow

    others = {*map(PackageKey.parse, (*listing.foundation, *listing.superseded))}
    others |= {PackageKey(subdir, name) for subdir, patch in listing.patches.items() for name in patch.revoke}
    ours = {PackageKey(subdir, name) for subdir, rows in listed.items() for name in rows} - others
    foundation = channel.foundation
    is_whole = foundation.is_made_here and not foundation.further
    for key, reason in find_uninstallable(listed, ours=ours, is_whole=is_whole).items():
        path = key.path_in(channel.path)
        message = f"{path}: cannot be installed any more from what the channel lists: {reason}"
        hint = (
            "publish what it needs (channel_tools build, publish), restore what was yanked, or hide it, too: "
            f"channel_tools yank {key.file_name} --reason TEXT"
        )
        yield ChannelFault(path=path, kind="uninstallable", message=message, hint=hint)


def _check_indexes(folder: Beneath, records: dict[str, JsonObject]) -> Iterator[ChannelFault]:
    try:
        if _unpacked(folder, REPODATA_ZST) != _read(folder, REPODATA):
            yield _finding(folder.path / REPODATA_ZST, f"differs from {REPODATA}")
        rows = _rows(decode_json(_read(folder, RUN_EXPORTS)))
        expected = {
            name: {"run_exports": run_exports_of(_object(row.get("run_exports")))} for name, row in records.items()
        }
        if rows != expected:
            yield _finding(folder.path / RUN_EXPORTS, f"differs from {REPODATA}")
        yield from _check_shards(folder, records)
    except FileNotFoundError as err:
        yield _finding(folder.path / str(err.filename).rpartition("/")[2], "is missing")
    except ChannelToolsError as err:
        yield _damaged(folder.path, err)
    except (msgspec.MsgspecError, KeyError, TypeError) as err:
        yield _finding(folder.path, f"an index in it cannot be read ({err})")


def _check_unpatched(
    folder: Beneath, records: dict[str, JsonObject], hidden: frozenset[str], patch: Patch
) -> Iterator[ChannelFault]:
    """repodata_from_packages.json exists exactly if something is patched, and the patch turns it into repodata."""
    path = folder.path / REPODATA_FROM_PACKAGES
    try:
        content = _read(folder, REPODATA_FROM_PACKAGES)
    except FileNotFoundError:
        content = None
    except ChannelToolsError as err:
        yield _damaged(path, err)
        return
    if (content is not None) != bool(patch.names()):
        yield _finding(path, "is missing" if patch.names() else "is left from a patch that was removed")
    elif content is not None:
        try:
            rows = _rows(decode_json(content))
            patched = {name: patch.applied(name, row) for name, row in rows.items() if name not in patch.remove}
        except (msgspec.MsgspecError, KeyError, TypeError, AttributeError) as err:
            yield _finding(path, f"is not valid repodata ({err})")
            return
        if patched != records or (hidden - set(patch.remove)) & rows.keys():
            yield _finding(path, f"differs from {REPODATA} by more than the patch")


def _check_shards(folder: Beneath, records: dict[str, JsonObject]) -> Iterator[ChannelFault]:
    index = decode_msgpack(_unpacked(folder, SHARD_INDEX))
    rows_in_shards: dict[str, dict[str, Any]] = {}
    for name, sha256 in sorted(index["shards"].items()):
        shard = f"{SHARDS_FOLDER}/{sha256.hex()}{SHARD_SUFFIX}"
        packed = _read(folder, shard)
        if hashlib.sha256(packed).digest() != sha256:
            yield _finding(folder.path / shard, f"the shard of {name} is damaged", hint=f"delete it and {_INDEX_AGAIN}")
            return
        rows_in_shards |= _rows(decode_msgpack(_unpacked(folder, shard)))
    plain = {
        name: row | {key: row[key].hex() for key in SHARD_BYTES if key in row} for name, row in rows_in_shards.items()
    }
    if plain != records:
        yield _finding(folder.path / SHARD_INDEX, f"differs from {REPODATA}")


def _object(value: object) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _unpacked(folder: Beneath, name: str) -> bytes:
    return unpack_index(_read(folder, name), str(folder.path / name), limit_bytes=STATE_BYTES)
