# SPDX-License-Identifier: BSD-3-Clause
"""Unpacking wheels into the layout of a conda package, checked against their own RECORD.

A wheel for any platform becomes a noarch python tree (``site-packages/``, ``python-scripts/``, entry points left to the
installing client, CEP 34); any other becomes a tree for one python (``lib/python3.11/site-packages/``, ``bin/`` with
scripts whose first line holds the prefix placeholder).
"""

from __future__ import annotations

import base64
import calendar
import configparser
import csv
import hashlib
import io
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING

from packaging.metadata import RawMetadata, parse_email

from channel_tools.foundation.model import PREFIX_PLACEHOLDER
from channel_tools.foundation.unpack import ByteSource, TreeWriter

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_PURE_SUFFIX = "-none-any.whl"
_UNRECORDED = frozenset({"RECORD", "RECORD.jws", "RECORD.p7s"})
_METADATA_LIMIT_BYTES = 64 << 20
_SCRIPT_GROUPS = ("console_scripts", "gui_scripts")
_SCRIPT = """\
#!{python}
import sys

from {module} import {name}

if __name__ == "__main__":
    sys.exit({call}())
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class WheelContent:
    """What an unpacked wheel says of itself."""

    metadata: RawMetadata
    entry_points: tuple[str, ...]
    """``command = module:function``, for a noarch package; empty otherwise (the scripts are in ``bin/`` then)."""
    is_pure: bool
    newest_s: int
    dist_info: str
    """The name of its .dist-info folder."""


def is_pure_wheel(file_name: str) -> bool:
    """Whether a wheel of this name serves every platform and ABI."""
    return file_name.endswith(_PURE_SUFFIX)


def site_packages(python: str, *, is_pure: bool) -> str:
    """Where a conda package keeps Python modules."""
    return "site-packages" if is_pure else f"lib/python{python}/site-packages"


def unpack_wheel(archive: Path, root: Path, *, python: str, skip: Sequence[str] = ()) -> WheelContent:
    """Unpack a wheel below ``root`` for ``python`` (major and minor).

    Every file written has the hash that RECORD states. Raises IntegrityError when the wheel is damaged, lacks a
    RECORD, or a member would leave ``root``.
    """
    writer = TreeWriter(root, archive, skip=skip)
    try:
        with zipfile.ZipFile(archive) as opened:
            return _Unwheeler(opened, writer, archive, python).unpack(root)
    except (zipfile.BadZipFile, EOFError, zlib.error) as err:
        raise writer.damaged(f"no complete wheel: {str(err) or type(err).__name__}") from None


class _Unwheeler:
    """One wheel on its way into a tree."""

    def __init__(self, opened: zipfile.ZipFile, writer: TreeWriter, archive: Path, python: str) -> None:
        self._opened = opened
        self._writer = writer
        self._is_pure = is_pure_wheel(archive.name)
        self._python = python
        self._site = site_packages(python, is_pure=self._is_pure)
        self._scripts = "python-scripts" if self._is_pure else "bin"
        self._dist_info = self._find_dist_info()
        self._stem = self._dist_info.removesuffix(".dist-info")

    def unpack(self, root: Path) -> WheelContent:
        """Write every member and what the entry points ask for."""
        record = self._read_record()
        newest = 0
        for member in self._opened.infolist():
            if member.is_dir() or self._writer.is_skipped(member.filename):
                continue
            self._unpack_member(member, record)
            newest = max(newest, calendar.timegm((*member.date_time, 0, 0, 0)))
        entry_points = self._entry_points()
        if not self._is_pure:
            self._write_scripts(entry_points)
        (root / self._site / self._dist_info / "INSTALLER").write_text("conda\n", encoding="ascii")
        return WheelContent(
            metadata=parse_email(self._read(f"{self._dist_info}/METADATA"))[0],
            entry_points=entry_points if self._is_pure else (),
            is_pure=self._is_pure,
            newest_s=newest,
            dist_info=f"{self._site}/{self._dist_info}",
        )

    def _find_dist_info(self) -> str:
        folders = {name.split("/")[0] for name in self._opened.namelist() if name.split("/")[0].endswith(".dist-info")}
        if len(folders) != 1:
            raise self._writer.damaged(f"{len(folders)} .dist-info folders, expected one")
        return folders.pop()

    def _read(self, name: str) -> bytes:
        try:
            info = self._opened.getinfo(name)
        except KeyError:
            raise self._writer.damaged(f"{name} is missing") from None
        if info.file_size > _METADATA_LIMIT_BYTES:
            raise self._writer.damaged(f"{name} has {info.file_size} bytes, no plausible size")
        return self._opened.read(info)

    def _read_record(self) -> Mapping[str, str]:
        rows = csv.reader(io.StringIO(self._read(f"{self._dist_info}/RECORD").decode()))
        return {row[0]: row[1] for row in rows if len(row) >= 2}  # noqa: PLR2004 - path, hash, size

    def _unpack_member(self, member: zipfile.ZipInfo, record: Mapping[str, str]) -> None:
        name = member.filename
        self._writer.check_name(name)
        with self._opened.open(member) as stream:
            source = _HashingReader(stream)
            self._write(name, source, executable=bool(member.external_attr >> 16 & 0o111))
        in_dist_info = name.removeprefix(f"{self._dist_info}/")
        if in_dist_info in _UNRECORDED:
            return
        if (expected := record.get(name)) is None:
            raise self._writer.damaged(f"{name} is not in RECORD")
        found = source.sha256_in_record()
        if expected.startswith("sha256=") and expected != found:
            raise self._writer.damaged(f"{name}: RECORD says {expected}, the file has {found}")

    def _write(self, name: str, source: _HashingReader, *, executable: bool) -> None:
        data_prefix = f"{self._stem}.data/"
        if not name.startswith(data_prefix):
            self._writer.write_file(f"{self._site}/{name}", source, executable=executable)
            return
        kind, _, rest = name.removeprefix(data_prefix).partition("/")
        if kind == "scripts":
            self._writer.write_file(f"{self._scripts}/{rest}", self._with_shebang(source), executable=True)
            return
        folders = {
            "purelib": f"{self._site}/",
            "platlib": f"{self._site}/",
            "headers": f"include/python{self._python}/{self._stem.split('-')[0]}/",
            "data": "",
        }
        if kind not in folders or not rest:
            raise self._writer.damaged(f"{name}: unknown kind of data, known: scripts, {', '.join(folders)}")
        self._writer.write_file(folders[kind] + rest, source, executable=executable)

    def _with_shebang(self, source: _HashingReader) -> ByteSource:
        first = source.readline(1 << 16)
        if first.startswith(b"#!python"):
            # The client rewrites python-scripts of noarch packages itself; both know the placeholder.
            first = f"#!{PREFIX_PLACEHOLDER}/bin/python\n".encode()
        return _Chained(first, source)

    def _entry_points(self) -> tuple[str, ...]:
        name = f"{self._dist_info}/entry_points.txt"
        if name not in self._opened.namelist():
            return ()
        parser = configparser.ConfigParser(delimiters=("=",), interpolation=None)
        parser.optionxform = str  # type: ignore[assignment,method-assign] # names are case sensitive
        parser.read_string(self._read(name).decode())
        found = [
            f"{command} = {target.split('[')[0].strip()}"
            for group in _SCRIPT_GROUPS
            if parser.has_section(group)
            for command, target in parser.items(group)
        ]
        return tuple(sorted(found))

    def _write_scripts(self, entry_points: Sequence[str]) -> None:
        for entry_point in entry_points:
            command, _, target = entry_point.partition(" = ")
            module, _, function = target.partition(":")
            script = _SCRIPT.format(
                python=f"{PREFIX_PLACEHOLDER}/bin/python{self._python}",
                module=module,
                name=function.split(".")[0],
                call=function,
            )
            self._writer.write_file(f"bin/{command}", io.BytesIO(script.encode()), executable=True)


class _HashingReader:
    """Reads through and hashes what passed."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._sha256 = hashlib.sha256()

    def read(self, size: int = -1, /) -> bytes:
        """The next bytes."""
        chunk = self._stream.read(size)
        self._sha256.update(chunk)
        return chunk

    def readline(self, size: int = -1, /) -> bytes:
        """The next line."""
        line = self._stream.readline(size)
        self._sha256.update(line)
        return line

    def sha256_in_record(self) -> str:
        """The hash as RECORD writes it."""
        return "sha256=" + base64.urlsafe_b64encode(self._sha256.digest()).decode().rstrip("=")


class _Chained:
    """Some bytes, then a stream."""

    def __init__(self, first: bytes, rest: ByteSource) -> None:
        self._first = first
        self._rest = rest

    def read(self, size: int = -1, /) -> bytes:
        """The next bytes."""
        if self._first:
            first, self._first = self._first, b""
            return first
        return self._rest.read(size)


def write_record(root: Path, dist_info: str) -> None:
    """Rewrite RECORD after the tree was mended: the paths that are still there, without hashes.

    Python's own tools need the list of files only; conda keeps the hashes.
    """
    site = root / PurePosixPath(dist_info).parent
    record = root / dist_info / "RECORD"
    if not record.is_file():
        return
    listed = [row[0] for row in csv.reader(io.StringIO(record.read_text(encoding="utf-8"))) if row]
    kept = sorted({*(name for name in listed if (site / name).is_file()), f"{Path(dist_info).name}/INSTALLER"})
    with record.open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream, lineterminator="\n").writerows((name, "", "") for name in kept)
