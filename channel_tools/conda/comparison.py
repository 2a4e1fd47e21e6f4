# SPDX-License-Identifier: BSD-3-Clause
"""Compares two packages file by file.

Hashes and sizes in paths.json that only reflect differences in the payload are not reported separately.
"""

from __future__ import annotations

import hashlib
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from channel_tools.conda.archive import stream_component
from channel_tools.system.document import decode_json
from channel_tools.system.files import HashedStream

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from channel_tools.conda.archive import Component

Kind = Literal["content", "mode", "link", "type", "time", "missing", "added"]
Verdict = Literal["same", "packing", "metadata", "different"]
"""The same bytes; the same files, packed differently; files of info/ differ; installed files differ."""
PATHS = "info/paths.json"
_KEPT_BYTES = 1 << 22
_SHOWN_CHARACTERS = 80


@dataclass(frozen=True, kw_only=True, slots=True)
class FileEntry:
    """A file or link of a package. ``content`` is kept only for metadata and short files, for showing differences."""

    type: Literal["file", "link", "other"]
    mode: int
    mtime: int
    size_bytes: int
    sha256: str
    target: str = ""
    content: bytes | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """One file that differs: ``missing`` from the second package, ``added`` in it, or otherwise different."""

    file: str
    kind: Kind
    detail: str


def read_entries(path: Path) -> dict[str, FileEntry]:
    """Every file of a package by its name; names of metadata files start with ``info/``.

    Raises IntegrityError for a damaged package.
    """
    parts: tuple[Component, ...] = ("pkg", "info")
    return {name: entry for part in parts for name, entry in _entries_of(path, part)}


def _entries_of(path: Path, part: Component) -> Iterator[tuple[str, FileEntry]]:
    for member, stream in stream_component(path, part):
        content, sha256 = None, hashlib.sha256().hexdigest()
        if stream is not None and member.size <= _KEPT_BYTES:
            content = stream.read()
            sha256 = hashlib.sha256(content).hexdigest()
        elif stream is not None:
            sha256 = HashedStream(stream).hexdigest()
        yield (
            member.name,
            FileEntry(
                type="file" if member.isreg() else "link" if member.issym() else "other",
                mode=stat.S_IMODE(member.mode),
                mtime=int(member.mtime),
                size_bytes=member.size,
                sha256=sha256,
                target=member.linkname,
                content=content,
            ),
        )


def compare_entries(first: Mapping[str, FileEntry], second: Mapping[str, FileEntry]) -> tuple[Difference, ...]:
    """The files that differ: installed files, then metadata, each sorted by name. Pure."""
    differences = [
        difference
        for name in sorted(first.keys() | second.keys(), key=_order)
        if name != PATHS and (difference := _compare(name, first.get(name), second.get(name))) is not None
    ]
    payload = {difference.file for difference in differences}
    if not _same_paths(first.get(PATHS), second.get(PATHS), payload):
        difference = _compare(PATHS, first.get(PATHS), second.get(PATHS))
        differences += [difference] if difference is not None else []
    return tuple(sorted(differences, key=lambda difference: _order(difference.file)))


def verdict_of(differences: tuple[Difference, ...]) -> Verdict:
    """The verdict on two packages with different bytes, by their differences."""
    essential = [difference for difference in differences if difference.kind != "time"]
    if not essential:
        return "packing"
    return "metadata" if all(_is_metadata(difference.file) for difference in essential) else "different"


def _is_metadata(name: str) -> bool:
    return name.startswith("info/")


def _order(name: str) -> tuple[bool, str]:
    return _is_metadata(name), name


def _compare(name: str, first: FileEntry | None, second: FileEntry | None) -> Difference | None:
    if first is None or second is None:
        kind: Kind = "added" if first is None else "missing"
        detail = "only the rebuilt package has it" if first is None else "only the published package has it"
    elif first.type != second.type:
        kind, detail = "type", f"{first.type}, rebuilt {second.type}"
    elif first.target != second.target:
        kind, detail = "link", f"points to {first.target}, rebuilt to {second.target}"
    elif first.sha256 != second.sha256:
        kind, detail = "content", _first_difference(first, second)
    elif first.mode != second.mode:
        kind, detail = "mode", f"{first.mode:04o}, rebuilt {second.mode:04o}"
    elif first.mtime != second.mtime:
        kind, detail = "time", f"{first.mtime} (seconds since 1970), rebuilt {second.mtime}"
    else:
        return None
    return Difference(file=name, kind=kind, detail=detail)


def _first_difference(first: FileEntry, second: FileEntry) -> str:
    sizes = f"{first.size_bytes} bytes, rebuilt {second.size_bytes}"
    if first.content is None or second.content is None:
        return sizes
    if b"\0" in first.content or b"\0" in second.content:
        pairs = enumerate(zip(first.content, second.content, strict=False))
        position = next(
            (index for index, (byte, other_byte) in pairs if byte != other_byte),
            min(first.size_bytes, second.size_bytes),
        )
        return f"{sizes}; the first difference is at byte {position}"
    lines = first.content.splitlines(), second.content.splitlines()
    shared = min(map(len, lines))
    number = next((index for index in range(shared) if lines[0][index] != lines[1][index]), shared)
    return f"line {number + 1}: {_line(lines[0], number)}, rebuilt {_line(lines[1], number)}"


def _line(lines: list[bytes], number: int) -> str:
    if number >= len(lines):
        return "no such line"
    text = lines[number].decode(errors="replace").strip()
    return repr(text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "...")


def _same_paths(first: FileEntry | None, second: FileEntry | None, differing: set[str]) -> bool:
    """Whether two paths.json are the same except for files that differ anyway."""
    try:
        return _rows(first, differing) == _rows(second, differing)
    except ValueError:
        return False


def _rows(entry: FileEntry | None, differing: set[str]) -> object:
    value = decode_json(entry.content or b"{}") if entry is not None else None
    rows = value.get("paths") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(rows, list):
        return value
    described = [_without_hash(row) for row in rows if isinstance(row, dict) and row.get("_path") not in differing]
    return {**value, "paths": described}


def _without_hash(row: Mapping[str, object]) -> Mapping[str, object]:
    """The row without the hash if it is a link's, since that is the hash of the link's target."""
    fields = {key: value for key, value in row.items() if key not in {"sha256", "size_in_bytes"}}
    return fields if row.get("path_type") == "softlink" else row
