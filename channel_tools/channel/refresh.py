# SPDX-License-Identifier: BSD-3-Clause
"""Bringing the record cache in step with the files of a subdir: only what is new or touched is read.

Many files are read in several processes; a channel of ten thousand is indexed from nothing in seconds.
"""

from __future__ import annotations

import contextlib
import logging
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from channel_tools.channel.archive import read_package
from channel_tools.channel.model import PACKAGE_SUFFIX
from channel_tools.channel.records import CachedPackage, Records, RefusedFile, Stamp, cached_package, changed
from channel_tools.errors import IntegrityError
from channel_tools.files import TEMPORARY_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

_log = logging.getLogger(__name__)
_FILES_PER_PROCESS = 250
"""Fewer are read before a second process has started."""
_FILES_AT_ONCE = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class UnreadFile:
    """A file that has to be read: with its ``contents``, unless they were read before and only its stamp changed."""

    path: Path
    stamp: Stamp
    contents: bool
    expected_sha256: str | None
    indexed_ms: int
    published: CachedPackage | None


def scan_packages(subdir_folder: Path) -> dict[str, Stamp]:
    """The ``.conda`` files of a subdir, by name in order."""
    found = {}
    with os.scandir(subdir_folder) if subdir_folder.is_dir() else contextlib.nullcontext(()) as entries:
        for entry in entries:
            if entry.name.endswith(PACKAGE_SUFFIX) and not entry.name.startswith(TEMPORARY_PREFIX):
                status = entry.stat()
                found[entry.name] = Stamp(size_bytes=status.st_size, mtime_ns=status.st_mtime_ns)
    return dict(sorted(found.items()))


def refresh_records(
    known: Records, subdir_folder: Path, *, skip: frozenset[str], first_seen: Mapping[str, tuple[str, int]], now_ms: int
) -> Records:
    """The records of the folder as it is now; only files that are new or touched since ``known`` are read.

    ``skip`` names files that are not published yet. ``first_seen`` gives sha256 and index time (ms) that an earlier
    index had for a file, for when the cache was lost.
    """
    packages: dict[str, CachedPackage] = {}
    refused: dict[str, RefusedFile] = {}
    unread = []
    stamps = scan_packages(subdir_folder)
    for name, stamp in stamps.items():
        if (cached := known.packages.get(name)) is not None and cached.stamp == stamp:
            packages[name] = cached
        elif (remembered := known.refused.get(name)) is not None and remembered.stamp == stamp:
            refused[name] = remembered
        elif name not in skip:
            unread.append(_unread(known, subdir_folder / name, stamp, first_seen=first_seen.get(name), now_ms=now_ms))
    for name, row in read_files(unread):
        if isinstance(row, CachedPackage):
            packages[name] = row
        else:
            _log.warning("%s", row.message)
            refused[name] = row
    if unread:
        packages = {name: packages[name] for name in stamps if name in packages}
    return Records(packages=packages, refused=refused)


def _unread(known: Records, path: Path, stamp: Stamp, *, first_seen: tuple[str, int] | None, now_ms: int) -> UnreadFile:
    cached, refused = known.packages.get(path.name), known.refused.get(path.name)
    published = cached or (refused.published if refused else None)
    expected, indexed_ms = first_seen or (None, now_ms)
    if published is not None:
        expected = published.sha256
        indexed_ms = int(str(published.record["indexed_timestamp"]))
    return UnreadFile(
        path=path,
        stamp=stamp,
        contents=cached is None,
        expected_sha256=expected,
        indexed_ms=indexed_ms,
        published=published,
    )


def read_files(files: Sequence[UnreadFile]) -> Iterator[tuple[str, CachedPackage | RefusedFile]]:
    """Read each file and judge it; name and outcome as they are done, many files in several processes."""
    processes = min(len(os.sched_getaffinity(0)), len(files) // _FILES_PER_PROCESS)
    if processes <= 1:
        yield from ((file.path.name, _read_file(file)) for file in files)
        return
    from channel_tools.pool import run_in_processes  # noqa: PLC0415 - slow to import, and few files are the rule

    chunks = [files[start : start + _FILES_AT_ONCE] for start in range(0, len(files), _FILES_AT_ONCE)]
    for chunk, rows in run_in_processes(_read_chunk, chunks, processes=processes, what="read packages"):
        yield from zip((file.path.name for file in chunk), rows, strict=True)


def _read_chunk(files: Sequence[UnreadFile]) -> list[CachedPackage | RefusedFile]:
    return [_read_file(file) for file in files]


def _read_file(file: UnreadFile) -> CachedPackage | RefusedFile:
    try:
        facts = read_package(file.path, contents=file.contents)
        if file.expected_sha256 not in {None, facts.sha256}:
            raise changed(file.path, facts.sha256, str(file.expected_sha256))
        return cached_package(file.path, facts, stamp=file.stamp, indexed_ms=file.indexed_ms)
    except IntegrityError as err:
        return RefusedFile(
            stamp=file.stamp,
            changed=file.expected_sha256 is not None,
            message=err.message,
            hint=err.hint or "",
            published=file.published,
        )
