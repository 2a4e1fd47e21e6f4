# SPDX-License-Identifier: BSD-3-Clause
"""Unpacking wheels into the layout of a conda package with PyPA's installer, checked against their own RECORD.

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
import os
import posixpath
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, BinaryIO, cast

from installer import install
from installer.destinations import WheelDestination
from installer.exceptions import InstallerError
from installer.records import InvalidRecordEntry, RecordEntry
from installer.sources import WheelFile
from installer.utils import fix_shebang
from packaging.metadata import RawMetadata, parse_email

from channel_tools.foundation.model import PREFIX_PLACEHOLDER
from channel_tools.foundation.unpack import TreeWriter

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from installer.scripts import ScriptSection
    from installer.sources import WheelContentElement
    from installer.utils import Scheme

_PURE_SUFFIX = "-none-any.whl"
_UNRECORDED = frozenset({"RECORD", "RECORD.jws", "RECORD.p7s"})
_METADATA_LIMIT_BYTES = 64 << 20
_HASHES = ("sha256", "sha384", "sha512")
_CUT_SHORT = (zipfile.BadZipFile, EOFError, zlib.error)
_NOT_A_WHEEL = (InstallerError, InvalidRecordEntry, configparser.Error, AssertionError, ValueError)
"""What installer and the standard library raise for metadata that break the wheel format."""
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
    """The path of its .dist-info folder in the tree."""


def is_pure_wheel(file_name: str) -> bool:
    """Whether a wheel of this name serves every platform and ABI."""
    return file_name.endswith(_PURE_SUFFIX)


def site_packages(python: str, *, is_pure: bool) -> str:
    """Where a conda package keeps Python modules."""
    return "site-packages" if is_pure else f"lib/python{python}/site-packages"


def unpack_wheel(archive: Path, root: Path, *, python: str, skip: Sequence[str] = ()) -> WheelContent:
    """Unpack a wheel below ``root`` for ``python`` (major and minor), except what a glob of ``skip`` matches.

    Every file written has the hash that RECORD states. Raises IntegrityError when the wheel is damaged, lacks a
    RECORD, or a member would leave ``root``.
    """
    writer = TreeWriter(root, archive, skip=skip)
    try:
        with zipfile.ZipFile(archive) as opened:
            source = _CheckedWheel(opened, writer)
            tree = _PrefixTree(source, writer, python, is_pure=is_pure_wheel(archive.name))
            install(source, tree, additional_metadata={"INSTALLER": b"conda\n"})
            return WheelContent(
                metadata=parse_email(source.read_metadata("METADATA"))[0],
                entry_points=tuple(sorted(tree.entry_points)) if tree.is_pure else (),
                is_pure=tree.is_pure,
                newest_s=source.newest_s(),
                dist_info=f"{tree.site}/{source.dist_info_dir}",
            )
    except _CUT_SHORT as err:
        raise writer.damaged(f"no complete wheel: {str(err) or type(err).__name__}") from None
    except _NOT_A_WHEEL as err:
        raise writer.damaged(f"not a valid wheel: {str(err) or type(err).__name__}") from None


class _CheckedWheel(WheelFile):
    """A wheel whose members have safe names, and the hashes that RECORD states once they have been read."""

    def __init__(self, opened: zipfile.ZipFile, writer: TreeWriter) -> None:
        super().__init__(opened)
        self._opened = opened
        self._writer = writer
        for info in opened.infolist():
            if not info.is_dir():
                self._check_name(info.filename)

    @property
    def data_dir(self) -> str:
        """Named as the .dist-info folder, which may spell the project otherwise than the file name."""
        return self.dist_info_dir.removesuffix(".dist-info") + ".data"

    def read_dist_info(self, filename: str) -> str:
        """The text of a metadata file, see read_metadata."""
        return self.read_metadata(filename).decode()

    def read_metadata(self, filename: str) -> bytes:
        """A file of the .dist-info folder. Raises IntegrityError when it is missing or too large to be metadata."""
        name = f"{self.dist_info_dir}/{filename}"
        try:
            info = self._opened.getinfo(name)
        except KeyError:
            raise self._writer.damaged(f"{name} is missing") from None
        if info.file_size > _METADATA_LIMIT_BYTES:
            raise self._writer.damaged(f"{name} has {info.file_size} bytes, expected {_METADATA_LIMIT_BYTES} at most")
        return self._opened.read(info)

    def get_contents(self) -> Iterator[WheelContentElement]:
        """The members that are not skipped, each checked against RECORD when the next one is asked for."""
        for record, stream, _ in super().get_contents():
            name, stated, _size = record
            if self._writer.is_skipped(name) or "__pycache__" in name.split("/")[:-1]:  # installer takes no byte code
                continue
            executable = bool(self._opened.getinfo(name).external_attr >> 16 & 0o111)  # also without a file type
            if name.removeprefix(f"{self.dist_info_dir}/") in _UNRECORDED:
                yield record, stream, executable
                continue
            hashed = self._hashed(name, stated, stream)
            yield record, cast("BinaryIO", hashed), executable
            if (actual := hashed.in_record()) != stated:
                raise self._writer.damaged(f"{name}: RECORD says {stated}, the file has {actual}")

    def newest_s(self) -> int:
        """The newest time of the members that are not skipped, in seconds since 1970."""
        members = (info for info in self._opened.infolist() if not info.is_dir())
        unpacked = (info for info in members if not self._writer.is_skipped(info.filename))
        return max((calendar.timegm((*info.date_time, 0, 0, 0)) for info in unpacked), default=0)

    def _check_name(self, name: str) -> None:
        self._writer.check_name(name)
        if posixpath.normpath(name) != name:  # installer takes names apart as they stand
            raise self._writer.damaged(f"member {name!r} has a path with empty or dotted parts")
        if name == self.data_dir or posixpath.dirname(name) == self.data_dir:
            raise self._writer.damaged(f"{name} is a file, expected a folder of data")

    def _hashed(self, name: str, stated: str, stream: IO[bytes]) -> _HashingReader:
        algorithm, _, _ = stated.partition("=")
        if not stated:
            raise self._writer.damaged(f"{name} is not in RECORD, or without a hash")
        if algorithm not in _HASHES:
            raise self._writer.damaged(f"{name}: RECORD has the hash {stated}, expected {', '.join(_HASHES)}")
        return _HashingReader(stream, algorithm)


class _PrefixTree(WheelDestination):
    """A wheel's place in a conda package."""

    def __init__(self, source: _CheckedWheel, writer: TreeWriter, python: str, *, is_pure: bool) -> None:
        self.is_pure = is_pure
        self.site = site_packages(python, is_pure=is_pure)
        self.entry_points: list[str] = []
        self._source = source
        self._writer = writer
        # The client rewrites python-scripts of noarch packages itself; both know the placeholder.
        self._interpreter = f"{PREFIX_PLACEHOLDER}/bin/python"
        self._python = python
        self._folders: dict[str, str] = {
            "purelib": self.site,
            "platlib": self.site,
            "headers": f"include/python{python}/{source.dist_info_dir.split('-')[0]}",
            "scripts": "python-scripts" if is_pure else "bin",
            "data": "",
        }

    def write_script(self, name: str, module: str, attr: str, section: ScriptSection) -> RecordEntry:
        """Note an entry point; the scripts are written last, over files of their name."""
        del section
        self.entry_points.append(f"{name} = {module}:{attr}")
        return RecordEntry(name, None, None)

    def write_file(
        self,
        scheme: Scheme,
        path: str | os.PathLike[str],
        stream: BinaryIO,
        is_executable: bool,  # noqa: FBT001 - installer's interface
    ) -> RecordEntry:
        """Write a member where its scheme belongs in a conda package."""
        path_inside = posixpath.join(self._folders[scheme], os.fspath(path))
        if scheme == "scripts":
            with fix_shebang(stream, self._interpreter) as fixed:
                self._writer.write_file(path_inside, fixed, executable=True)
        else:
            self._writer.write_file(path_inside, stream, executable=is_executable)
        return RecordEntry(os.fspath(path), None, None)

    def finalize_installation(
        self, scheme: Scheme, record_file_path: str, records: Iterable[tuple[Scheme, RecordEntry]]
    ) -> None:
        """Write the wheel's own RECORD, which repair steps read, and the scripts of a compiled wheel."""
        del scheme, records
        record = io.BytesIO(self._source.read_metadata("RECORD"))
        self._writer.write_file(f"{self.site}/{record_file_path}", record, executable=False)
        for entry_point in () if self.is_pure else sorted(self.entry_points):
            command, _, target = entry_point.partition(" = ")
            module, _, function = target.partition(":")
            script = _SCRIPT.format(
                python=f"{self._interpreter}{self._python}", module=module, name=function.split(".")[0], call=function
            )
            self._writer.write_file(f"bin/{command}", io.BytesIO(script.encode()), executable=True)


class _HashingReader:
    """Reads through and hashes what passed since the start."""

    def __init__(self, stream: IO[bytes], algorithm: str) -> None:
        self._stream = stream
        self._hash = hashlib.new(algorithm)

    def read(self, size: int = -1, /) -> bytes:
        """The next bytes."""
        chunk = self._stream.read(size)
        self._hash.update(chunk)
        return chunk

    def readline(self, size: int = -1, /) -> bytes:
        """The next line."""
        line = self._stream.readline(size)
        self._hash.update(line)
        return line

    def seek(self, offset: int, /) -> int:
        """Go back to the start (``offset`` is 0): what is read from now on is hashed afresh."""
        self._hash = hashlib.new(self._hash.name)
        return self._stream.seek(offset)

    def in_record(self) -> str:
        """The hash as RECORD writes it."""
        return f"{self._hash.name}={base64.urlsafe_b64encode(self._hash.digest()).decode().rstrip('=')}"


def write_record(root: Path, dist_info: str) -> None:
    """Rewrite RECORD after the tree was repaired: the paths that are still there, without hashes.

    Python's own tools need the list of files only; conda keeps the hashes.
    """
    site = root / PurePosixPath(dist_info).parent
    record = root / dist_info / "RECORD"
    if not record.is_file():
        return
    listed = [row[0] for row in csv.reader(io.StringIO(record.read_text(encoding="utf-8"))) if row]
    recorded = sorted({*(name for name in listed if (site / name).is_file()), f"{Path(dist_info).name}/INSTALLER"})
    with record.open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream, lineterminator="\n").writerows((name, "", "") for name in recorded)
