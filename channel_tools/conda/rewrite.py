# SPDX-License-Identifier: BSD-3-Clause
"""Rewrites packages, without anything that depends on when and where they were packed.

Members are streamed from the old file into the new one, which then replaces it.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import posixpath
import re
import shutil
import tarfile
import tempfile
import zipfile
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING

import zstandard

from channel_tools.conda.archive import stream_component
from channel_tools.conda.contents import content_of, damaged_package, read_path_rows
from channel_tools.conda.metadata import BINARY_PLACEHOLDER, PREFIX_PLACEHOLDER
from channel_tools.conda.writer import ENGINE_LEVEL, copy_component, open_component
from channel_tools.system.archives import UnsafeMemberError, check_link
from channel_tools.system.document import decode_json
from channel_tools.system.elf import renew_build_id
from channel_tools.system.files import HashedStream, atomic_path

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
    from pathlib import Path

    from channel_tools.conda.contents import PathRow

    Member = tuple[tarfile.TarInfo, bytes | None]
    Edit = Callable[[Mapping[str, bytes]], Mapping[str, bytes]]
    LeavesOut = Callable[[str, IO[bytes]], bool]

_PATHS = "paths.json"
_CHUNK_BYTES = 1 << 20
_MEMORY_BYTES = 64 << 20
_SMALL_BYTES, _TAR_BLOCK_BYTES = 1 << 20, 512
_LONGEST_PREFIX = len(BINARY_PLACEHOLDER)
_RECORD = ".dist-info/RECORD"
_RECORD_ROW = re.compile(rb"^(?P<path>[^,\"\n]+),sha256=[A-Za-z0-9_-]{43},", re.MULTILINE)
_HAS_PREFIX = "has_prefix"
_FILES = "files"


def settle_package(
    path: Path, edit: Edit, *, date_s: int, threads: int, leaves_out: LeavesOut = lambda _name, _content: False
) -> tuple[str, ...]:
    """Rewrite a package so that neither the time nor the folder of its build is in it.

    Every member gets the time ``date_s`` (seconds since 1970). The build prefix is replaced by one of the same length
    that is the same for all builds. Linkers' build IDs, which are hashes that also cover stripped data, are computed
    again from the file itself, as debugedit does. A wheel's RECORD gets the new hashes of its files. ``edit`` is given
    the final files of info/ by their names without ``info/``, and returns those that get another content. The bytes are
    the same for any number of ``threads`` from 1. Files for which ``leaves_out`` is true of path and content are not in
    the new package, nor in its lists of files; returns their paths, sorted. The new package appears atomically. Raises
    IntegrityError for a damaged package.
    """
    members = [(member, None if stream is None else stream.read()) for member, stream in stream_component(path, "info")]
    rows = read_path_rows(content_of(_info_files(members), _PATHS, path), path)
    with (
        atomic_path(path) as temporary,
        zipfile.ZipFile(path) as old,
        zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED) as archive,
    ):
        payload = _Payload()
        for entry in sorted(old.infolist(), key=lambda entry: entry.filename.startswith("info-")):
            if entry.filename.startswith("pkg-"):
                with _open_payload(archive, entry.filename, rows, threads) as tar:
                    payload = _copy_payload(path, tar, rows, date_s, leaves_out)
            elif entry.filename.startswith("info-"):
                info = _info_files(members)
                info[_PATHS] = payload.renewed_paths(info[_PATHS])
                if _HAS_PREFIX in info:
                    info[_HAS_PREFIX] = payload.prefixes_without_dropped(payload.with_prefixes(info[_HAS_PREFIX]))
                if _FILES in info:
                    info[_FILES] = payload.without_dropped(info[_FILES])
                for member, _content in members:
                    _set_time(member, date_s)
                _write_info(archive, entry.filename, members, info | dict(edit(info)))
            else:
                with old.open(entry) as source:
                    copy_component(archive, entry.filename, source, entry.file_size)
    return tuple(sorted(payload.dropped))


@dataclass(frozen=True, kw_only=True, slots=True)
class _Payload:
    """What changed in a copied payload: ``hashes`` (sha256) and ``sizes`` of files, the new ``prefixes`` by the old.

    ``renewed`` are the new hashes by the old ones, for the rows of links, which have the hashes of their targets;
    ``dropped`` are the files that were left out.
    """

    hashes: dict[str, str] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    renewed: dict[str, str] = field(default_factory=dict)
    prefixes: dict[bytes, bytes] = field(default_factory=dict)
    dropped: set[str] = field(default_factory=set)

    def renewed_paths(self, content: bytes) -> bytes:
        """The new paths.json; two files with the same content may become different ones."""
        value = decode_json(self.with_prefixes(content))
        value["paths"] = [row for row in value["paths"] if row["_path"] not in self.dropped]
        for row in value["paths"]:
            if (old := row.get("sha256")) is not None:
                row["sha256"] = self.hashes.get(row["_path"]) or self.renewed.get(old, old)
                row["size_in_bytes"] = self.sizes.get(row["_path"], row.get("size_in_bytes"))
        return json.dumps(value, indent=2, ensure_ascii=False).encode()

    def with_prefixes(self, content: bytes) -> bytes:
        """A text with the new prefixes."""
        for old, new in self.prefixes.items():
            content = content.replace(old, new)
        return content

    def without_dropped(self, content: bytes) -> bytes:
        """A list of files, one a line, without those that were left out."""
        lines = content.splitlines(keepends=True) if self.dropped else [content]
        return b"".join(line for line in lines if line.rstrip(b"\n").decode(errors="replace") not in self.dropped)

    def prefixes_without_dropped(self, content: bytes) -> bytes:
        """has_prefix (``PREFIX MODE FILE``, the file perhaps in quotes) without those that were left out."""
        lines = content.splitlines(keepends=True) if self.dropped else [content]
        named = [line.rstrip(b"\n").split(b" ", 2)[-1].strip(b'"').decode(errors="replace") for line in lines]
        return b"".join(line for line, name in zip(lines, named, strict=True) if name not in self.dropped)


@contextlib.contextmanager
def _open_payload(
    archive: zipfile.ZipFile, name: str, rows: Mapping[str, PathRow], threads: int
) -> Iterator[tarfile.TarFile]:
    """The payload to write members to; a small one, by what paths.json says of it, is compressed in one piece."""
    if sum(_TAR_BLOCK_BYTES + (row.size_in_bytes or 0) for row in rows.values()) <= _SMALL_BYTES:
        with _in_one_piece(archive, name) as tar:
            yield tar
    else:
        with open_component(archive, name, ENGINE_LEVEL, threads=threads) as tar:
            yield tar


def _copy_payload(
    path: Path, tar: tarfile.TarFile, rows: Mapping[str, PathRow], date_s: int, leaves_out: LeavesOut
) -> _Payload:
    """Copy the payload; returns what changed in the copy."""
    payload = _Payload()
    hashes: dict[str, str] = {}
    if any(name.endswith(_RECORD) for name in rows):  # they come before the files that they list
        members = _members_to_keep(path, rows, leaves_out, payload.dropped)
        hashes = {member.name: HashedStream(copy).hexdigest() for member, copy in members if copy}
    for member, copy in _members_to_keep(path, rows, leaves_out, payload.dropped):
        _set_time(member, date_s)
        if copy is not None and member.name.endswith(_RECORD):
            member.size = _renew_record(copy, member.name, hashes, dropped=payload.dropped)
        if copy is not None and (row := rows.get(member.name)) is not None:
            if row.prefix_placeholder:
                prefix = row.prefix_placeholder.encode()
                payload.prefixes[prefix] = _placeholder(prefix, path)
            payload.hashes[member.name], payload.sizes[member.name] = HashedStream(copy).hexdigest(), member.size
            payload.renewed[row.sha256 or ""] = payload.hashes[member.name]
            copy.seek(0)
        tar.addfile(member, copy)
    return payload


def _members_to_keep(
    path: Path, rows: Mapping[str, PathRow], leaves_out: LeavesOut, dropped: set[str]
) -> Iterator[tuple[tarfile.TarInfo, IO[bytes] | None]]:
    """The settled members of the payload but those that are left out, whose names are added to ``dropped``."""
    for member, copy in _settled(path, rows):
        if copy is not None and leaves_out(member.name, copy):
            dropped.add(member.name)
            continue
        if copy is not None:
            copy.seek(0)
        yield member, copy


def _settled(path: Path, rows: Mapping[str, PathRow]) -> Iterator[tuple[tarfile.TarInfo, IO[bytes] | None]]:
    """The members of the payload, with the new prefix and build ID."""
    for member, stream in stream_component(path, "pkg"):
        if stream is None:
            yield member, None
            continue
        row = rows.get(member.name)
        prefix = (row.prefix_placeholder or "").encode() if row else b""
        with tempfile.SpooledTemporaryFile(max_size=_MEMORY_BYTES) as copy:
            if prefix:
                _copy_replaced(stream, copy, prefix, _placeholder(prefix, path))
            else:
                shutil.copyfileobj(stream, copy, _CHUNK_BYTES)
            renew_build_id(copy)
            yield member, copy


def _renew_record(record: IO[bytes], name: str, hashes: Mapping[str, str], *, dropped: Collection[str]) -> int:
    """Update the rows of a wheel's RECORD, which the installer wrote: without ``dropped`` files, with new hashes.

    Returns its size in bytes.
    """
    folder = posixpath.dirname(posixpath.dirname(name))

    def renewed(match: re.Match[bytes]) -> bytes:
        sha256 = hashes.get(posixpath.normpath(posixpath.join(folder, match["path"].decode(errors="replace"))))
        if sha256 is None:
            return match[0]
        digest = base64.urlsafe_b64encode(bytes.fromhex(sha256)).rstrip(b"=")
        return b"%b,sha256=%b," % (match["path"], digest)

    def is_kept(row: bytes) -> bool:
        listed = row.split(b",")[0].decode(errors="replace")
        return posixpath.normpath(posixpath.join(folder, listed)) not in dropped

    content = _RECORD_ROW.sub(renewed, record.read())
    if dropped:
        content = b"".join(row for row in content.splitlines(keepends=True) if is_kept(row))
    record.seek(0)
    record.truncate()
    record.write(content)
    record.seek(0)
    return len(content)


def _placeholder(prefix: bytes, package: Path) -> bytes:
    """The replacement for a build's prefix: of the same length, as binary files require."""
    if not len(PREFIX_PLACEHOLDER) <= len(prefix) <= _LONGEST_PREFIX:
        expected = f"{len(PREFIX_PLACEHOLDER)} to {_LONGEST_PREFIX}"
        raise damaged_package(package, f"its paths.json has a prefix of {len(prefix)} bytes; expected {expected}")
    return BINARY_PLACEHOLDER[: len(prefix)].encode()


def _copy_replaced(source: IO[bytes], target: IO[bytes], old: bytes, new: bytes) -> None:
    """Copy a stream with one text replaced, also if it spans two chunks."""
    tail = b""
    while chunk := source.read(_CHUNK_BYTES):
        *before, tail = (tail + chunk).split(old)
        overlap = max(len(tail) - len(old) + 1, 0)
        target.write(new.join([*before, tail[:overlap]]))
        tail = tail[overlap:]
    target.write(tail)


def _set_time(member: tarfile.TarInfo, date_s: int) -> None:
    member.mtime = date_s
    member.pax_headers = {}  # these may have another time; long names are written again


def _info_files(members: Iterable[Member]) -> dict[str, bytes]:
    return {_info_name(member): content for member, content in members if content is not None}


def _info_name(member: tarfile.TarInfo) -> str:
    return member.name.removeprefix("info/")


def _write_info(archive: zipfile.ZipFile, name: str, members: Iterable[Member], changed: Mapping[str, bytes]) -> None:
    with _in_one_piece(archive, name) as tar:
        for member, before in members:
            if member.issym() and _leads_out(member):
                continue
            content = changed.get(_info_name(member), before)
            member.size = 0 if content is None else len(content)
            tar.addfile(member, None if content is None else io.BytesIO(content))


def _leads_out(link: tarfile.TarInfo) -> bool:
    """Whether a link of the recipe's sources, which info/ has as they are, leads out of the package; clients refuse it.

    The recorded inputs have the text of each link.
    """
    try:
        check_link(link.name, link.linkname)
    except UnsafeMemberError:
        return True
    return False


@contextlib.contextmanager
def _in_one_piece(archive: zipfile.ZipFile, name: str) -> Iterator[tarfile.TarFile]:
    """A part of a package to write members to, which are kept in memory and compressed at the end.

    zstd then allocates memory for this size, not for that of any stream: clearing that takes longer than a small build.
    """
    part = io.BytesIO()
    with tarfile.TarFile(fileobj=part, mode="w", format=tarfile.PAX_FORMAT) as tar:
        yield tar
    packed = zstandard.ZstdCompressor(level=ENGINE_LEVEL, write_checksum=True).compress(part.getbuffer())
    copy_component(archive, name, io.BytesIO(packed), len(packed))
