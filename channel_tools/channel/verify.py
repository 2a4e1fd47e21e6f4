# SPDX-License-Identifier: BSD-3-Clause
"""Proving that a channel is what its indexes say, from the files alone: no cache is believed."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import msgspec
import zstandard

from channel_tools.channel.listing import Patch, names_in, not_listed
from channel_tools.channel.model import Channel, Finding
from channel_tools.channel.records import make_record, run_exports_of
from channel_tools.channel.state import read_listing, subdirs_of
from channel_tools.conda.archive import read_package
from channel_tools.conda.package import PACKAGE_SUFFIX
from channel_tools.conda.repodata import (
    HASHES,
    REPODATA,
    REPODATA_FROM_PACKAGES,
    REPODATA_ZST,
    RUN_EXPORTS,
    SHARD_INDEX,
    SHARD_SUFFIX,
    SHARDS_FOLDER,
)
from channel_tools.system.document import decode_json, decode_msgpack
from channel_tools.system.errors import IntegrityError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from channel_tools.conda.contents import JsonObject

_INDEX_AGAIN = "index the channel again: channel_tools channel index"


def verify_channel(channel: Channel) -> list[Finding]:
    """Read every package and every index of the channel in full; returns all faults, in order of path.

    Found are damaged packages, files that are not indexed, indexed names without a file, bytes other than the index
    says, indexes that disagree with each other or cannot be read, and files that do not belong into a subdir.
    """
    listing = read_listing(channel)
    silent = {*not_listed(listing), *listing.incoming}
    findings: list[Finding] = []
    for subdir in subdirs_of(channel.path):
        folder = channel.path / subdir
        records = _read_repodata(folder, findings)
        if records is None:
            continue
        hidden = names_in(subdir, silent)
        patch = listing.patches.get(subdir, Patch())
        findings += _check_packages(folder, records, hidden, patch)
        findings += _check_indexes(folder, records)
        findings += _check_unpatched(folder, records, hidden, patch)
    return sorted(findings)


def _finding(path: Path, message: str, *, hint: str = _INDEX_AGAIN) -> Finding:
    return Finding(path=path, kind="inconsistent", message=f"{path}: {message}", hint=hint)


def _read_repodata(folder: Path, findings: list[Finding]) -> dict[str, JsonObject] | None:
    path = folder / REPODATA
    try:
        value = decode_json(path.read_bytes(), dict[str, object])
        return msgspec.convert(value["packages.conda"], dict[str, dict[str, object]])
    except FileNotFoundError:
        findings.append(_finding(path, "is missing"))
    except (msgspec.MsgspecError, KeyError) as err:
        findings.append(_finding(path, f"is not valid repodata ({err})"))
    return None


def _check_packages(
    folder: Path, records: dict[str, JsonObject], hidden: frozenset[str], patch: Patch
) -> Iterator[Finding]:
    present = {path.name: path for path in folder.iterdir() if path.is_file()}
    for name in sorted(records.keys() - present.keys()):
        message = f"{folder / name}: the index names it, but it is not there"
        yield Finding(
            path=folder / name, kind="missing", message=message, hint=f"copy the file back, or {_INDEX_AGAIN}"
        )
    for name, path in sorted(present.items()):
        if name.endswith(PACKAGE_SUFFIX):
            yield from _check_package(path, records.get(name), hidden=name in hidden, patch=patch)
        elif name.endswith(".tar.bz2"):
            message = f"{path}: packages of the old format are not indexed here"
            yield Finding(path=path, kind="foreign", message=message, hint="convert it to .conda (cph transmute)")


def _check_package(path: Path, record: JsonObject | None, *, hidden: bool, patch: Patch) -> Iterator[Finding]:
    try:
        facts = read_package(path, contents=True)
        made = patch.applied(path.name, make_record(path, facts))
    except IntegrityError as err:
        yield Finding(path=path, kind="damaged", message=err.message, hint=err.hint or "")
        return
    if record is None:
        if not hidden:
            message = f"{path}: is complete but not in the index"
            yield Finding(path=path, kind="unindexed", message=message, hint=_INDEX_AGAIN)
    elif record.get("sha256") != facts.sha256:
        message = f"{path}: its sha256 is {facts.sha256}; the index says {record.get('sha256')}"
        yield Finding(
            path=path, kind="changed", message=message, hint=f"put the published bytes back, or {_INDEX_AGAIN}"
        )
    elif {key: value for key, value in record.items() if key != "indexed_timestamp"} != made:
        yield _finding(path, "its record in the index is not what its metadata says")


def _check_indexes(folder: Path, records: dict[str, JsonObject]) -> Iterator[Finding]:
    try:
        if _unpack((folder / REPODATA_ZST).read_bytes()) != (folder / REPODATA).read_bytes():
            yield _finding(folder / REPODATA_ZST, f"differs from {REPODATA}")
        rows = decode_json((folder / RUN_EXPORTS).read_bytes())["packages.conda"]
        wanted = {
            name: {"run_exports": run_exports_of(_object(row.get("run_exports")))} for name, row in records.items()
        }
        if rows != wanted:
            yield _finding(folder / RUN_EXPORTS, f"differs from {REPODATA}")
        yield from _check_shards(folder, records)
    except FileNotFoundError as err:
        yield _finding(folder / str(err.filename).rpartition("/")[2], "is missing")
    except (msgspec.MsgspecError, zstandard.ZstdError, KeyError, TypeError) as err:
        yield _finding(folder, f"an index in it cannot be read ({err})")


def _check_unpatched(
    folder: Path, records: dict[str, JsonObject], hidden: frozenset[str], patch: Patch
) -> Iterator[Finding]:
    """repodata_from_packages.json is there exactly when something is patched, and the patch makes repodata of it."""
    path = folder / REPODATA_FROM_PACKAGES
    if path.exists() != bool(patch.names()):
        yield _finding(path, "is missing" if patch.names() else "is left from a patch that was removed")
    elif patch.names():
        try:
            rows = decode_json(path.read_bytes())["packages.conda"]
            patched = {name: patch.applied(name, row) for name, row in rows.items() if name not in patch.remove}
        except (msgspec.MsgspecError, KeyError, TypeError, AttributeError) as err:
            yield _finding(path, f"is not valid repodata ({err})")
            return
        if patched != records or (hidden - set(patch.remove)) & rows.keys():
            yield _finding(path, f"differs from {REPODATA} by more than the patch")


def _check_shards(folder: Path, records: dict[str, JsonObject]) -> Iterator[Finding]:
    index = decode_msgpack(_unpack((folder / SHARD_INDEX).read_bytes()))
    found: dict[str, dict[str, Any]] = {}
    for name, sha256 in sorted(index["shards"].items()):
        path = folder / SHARDS_FOLDER / (sha256.hex() + SHARD_SUFFIX)
        packed = path.read_bytes()
        if hashlib.sha256(packed).digest() != sha256:
            yield _finding(path, f"the shard of {name} is damaged", hint=f"delete it and {_INDEX_AGAIN}")
            return
        found |= decode_msgpack(_unpack(packed))["packages.conda"]
    plain = {name: row | {key: row[key].hex() for key in HASHES if key in row} for name, row in found.items()}
    if plain != records:
        yield _finding(folder / SHARD_INDEX, f"differs from {REPODATA}")


def _object(value: object) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _unpack(packed: bytes) -> bytes:
    return zstandard.ZstdDecompressor().decompressobj().decompress(packed)
