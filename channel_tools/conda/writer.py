# SPDX-License-Identifier: BSD-3-Clause
"""Writes a ``.conda`` package from a folder.

There is one pass over the files, without keeping any in memory: each is hashed, searched for the prefix placeholder and
compressed while it is read; paths.json is written from this, after the payload. The bytes depend only on the tree, the
metadata and the compression: members are sorted, owners and times are fixed.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import shutil
import stat
import tarfile
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Any

import zstandard

from channel_tools.conda.metadata import BINARY_PLACEHOLDER, PREFIX_PLACEHOLDER
from channel_tools.system.errors import IntegrityError
from channel_tools.system.files import atomic_path, sha256_of_file, walk_entries

if TYPE_CHECKING:
    from collections.abc import Iterator

    from channel_tools.conda.metadata import PackageMetadata

WRITER_VERSION = 2
"""Has to be increased when the bytes written for the same tree and metadata change."""
DEFAULT_LEVEL = 6
"""Measured on the largest package (700 MB): level 3 packs 155 MB in 4 s, 6 142 MB in 7 s, 9 136 MB in 13 s."""
ENGINE_LEVEL = 15
"""The default level of py-rattler-build."""
_CHUNK_BYTES = 1 << 20
_TEXT_PROBE_BYTES = 1 << 13
_EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()
ZIP_TIME = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True, kw_only=True, slots=True)
class WrittenPackage:
    """A package file on disk."""

    path: Path
    size_bytes: int
    sha256: str
    files: int
    unpacked_bytes: int


def write_conda_package(
    tree: Path,
    metadata: PackageMetadata,
    destination: Path,
    *,
    license_files: Path | None = None,
    level: int = DEFAULT_LEVEL,
) -> WrittenPackage:
    """Pack the folder ``tree`` (the installation prefix) into ``destination``, which appears atomically.

    The files below ``license_files`` become info/licenses.

    Raises IntegrityError for files that cannot be installed elsewhere: an absolute link, one that points outside the
    prefix, a device or socket.
    """
    with atomic_path(destination) as temporary:
        with temporary.open("wb") as raw, zipfile.ZipFile(raw, "w", zipfile.ZIP_STORED) as archive:
            archive.writestr(zipfile.ZipInfo("metadata.json", ZIP_TIME), _json({"conda_pkg_format_version": 2}))
            stem = destination.name.removesuffix(".conda")
            paths: list[dict[str, Any]] = []
            with open_component(archive, f"pkg-{stem}.tar.zst", level) as tar:
                paths += [_add_path(tar, tree, path, metadata.timestamp_ms) for path in _members(tree)]
            # links to folders or other packages' files keep the hash of nothing
            root = tree.resolve()
            files = {path["_path"]: path for path in paths if path["path_type"] == "hardlink"}
            for path in paths:
                if path["path_type"] == "softlink":
                    target = (tree / path["_path"]).resolve()
                    if target.is_relative_to(root) and (file := files.get(target.relative_to(root).as_posix())):
                        path |= {"sha256": file["sha256"], "size_in_bytes": file["size_in_bytes"]}
            with open_component(archive, f"info-{stem}.tar.zst", level) as tar:
                info = _info_files(metadata, paths) | _license_files(license_files)
                for name, content in sorted(info.items()):
                    member = _tar_info(f"info/{name}", metadata.timestamp_ms)
                    member.size = len(content)
                    tar.addfile(member, io.BytesIO(content))
        size_bytes, sha256 = temporary.stat().st_size, sha256_of_file(temporary)
    return WrittenPackage(
        path=destination,
        size_bytes=size_bytes,
        sha256=sha256,
        files=len(paths),
        unpacked_bytes=sum(path["size_in_bytes"] for path in paths if path["path_type"] == "hardlink"),
    )


def _members(tree: Path) -> Iterator[Path]:
    """Every file and link below ``tree``, in the order of their names as bytes; empty folders are not packed."""
    for path in sorted((entry.path for entry in walk_entries(tree)), key=os.fsencode):
        yield Path(path)


def _add_path(tar: tarfile.TarFile, tree: Path, path: Path, timestamp_ms: int) -> dict[str, Any]:
    name = path.relative_to(tree).as_posix()
    mode = path.lstat().st_mode
    if stat.S_ISLNK(mode):
        return _add_link(tar, name, path.readlink().as_posix(), timestamp_ms)
    if not stat.S_ISREG(mode):
        raise IntegrityError(f"{name}: not a file or a link; a conda package can contain nothing else")
    member = _tar_info(name, timestamp_ms)
    member.size = path.stat().st_size
    member.mode = 0o775 if mode & 0o100 else 0o664
    with path.open("rb") as stream:
        scanner = _Scanner(stream)
        tar.addfile(member, scanner)
    entry: dict[str, Any] = {
        "_path": name,
        "path_type": "hardlink",
        "sha256": scanner.sha256.hexdigest(),
        "size_in_bytes": member.size,
    }
    if scanner.placeholder:
        entry |= {"prefix_placeholder": scanner.placeholder, "file_mode": "text" if scanner.is_text else "binary"}
    return entry


def _add_link(tar: tarfile.TarFile, name: str, target: str, timestamp_ms: int) -> dict[str, Any]:
    if target.startswith("/"):
        raise IntegrityError(f"{name}: the link points to the absolute path {target}; expected a relative one")
    depth = len(PurePosixPath(name).parent.parts)
    for part in PurePosixPath(target).parts:
        depth += -1 if part == ".." else 1
        if depth < 0:
            raise IntegrityError(f"{name}: the link points to {target}, outside the prefix")
    member = _tar_info(name, timestamp_ms)
    member.type, member.linkname, member.mode = tarfile.SYMTYPE, target, 0o777
    tar.addfile(member)
    return {"_path": name, "path_type": "softlink", "sha256": _EMPTY_SHA256, "size_in_bytes": 0}


class _Scanner(io.RawIOBase):
    """Hashes the data read through it and looks for the placeholder, also across chunks."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.sha256 = hashlib.sha256()
        self.placeholder = ""
        self.is_text = True
        self._stream = stream
        self._tail = b""
        self._probed = 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        """The next chunk."""
        chunk = self._stream.read(size)
        self.sha256.update(chunk)
        if self._probed < _TEXT_PROBE_BYTES:
            self.is_text = self.is_text and b"\0" not in chunk[: _TEXT_PROBE_BYTES - self._probed]
            self._probed += len(chunk)
        if self.placeholder != BINARY_PLACEHOLDER:
            window = self._tail + chunk
            found = (text for text in (BINARY_PLACEHOLDER, PREFIX_PLACEHOLDER) if text.encode() in window)
            self.placeholder = next(found, self.placeholder)
            self._tail = window[-len(BINARY_PLACEHOLDER) :]
        return chunk


def _info_files(metadata: PackageMetadata, paths: list[dict[str, Any]]) -> dict[str, bytes]:
    files = {
        "about.json": _json(dict(metadata.about)),
        "index.json": _json(metadata.index_json()),
        "paths.json": _json({"paths": paths, "paths_version": 1}),
        "files": "".join(f"{path['_path']}\n" for path in paths).encode(),
    }
    exports = {kind: list(specs) for kind, specs in metadata.run_exports.items() if specs}
    if exports:
        files["run_exports.json"] = _json(exports)
    if metadata.noarch == "python":
        noarch: dict[str, Any] = {"type": "python"}
        if metadata.entry_points:
            noarch["entry_points"] = list(metadata.entry_points)
        files["link.json"] = _json({"noarch": noarch, "package_metadata_version": 1})
    return files


def _license_files(folder: Path | None) -> dict[str, bytes]:
    if folder is None:
        return {}
    return {f"licenses/{path.relative_to(folder).as_posix()}": path.read_bytes() for path in _members(folder)}


@contextlib.contextmanager
def open_component(archive: zipfile.ZipFile, name: str, level: int, *, threads: int = 0) -> Iterator[tarfile.TarFile]:
    """A part of a package to write members to; the bytes are the same for any number of ``threads`` except 0.

    It is first compressed into an unnamed file beside the package, so that its size is known when its header is
    written.
    """
    compressor = zstandard.ZstdCompressor(level=level, write_checksum=True, threads=threads)
    with tempfile.TemporaryFile(dir=Path(str(archive.filename)).parent) as part:
        with (
            compressor.stream_writer(part, closefd=False) as compressed,
            # No stream mode ("w|"): its buffer of its own costs a copy of everything, and the compressor has one.
            tarfile.TarFile(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT, copybufsize=_CHUNK_BYTES) as tar,
        ):
            yield tar
        size_bytes = part.tell()
        part.seek(0)
        copy_component(archive, name, part, size_bytes)


def copy_component(archive: zipfile.ZipFile, name: str, source: IO[bytes], size_bytes: int) -> None:
    """Write the next ``size_bytes`` of ``source`` as a part of a package.

    The size is given in advance, so parts below 1.9 GiB get no zip64 header, whose bytes differ between Python's
    patch releases (3.11.4 changed them, https://github.com/python/cpython/pull/103863). zipfile leaves 5 % for growth.
    """
    entry = zipfile.ZipInfo(name, ZIP_TIME)
    entry.file_size = size_bytes
    with archive.open(entry, "w") as target:
        shutil.copyfileobj(source, target, _CHUNK_BYTES)


def _tar_info(name: str, timestamp_ms: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.mtime = timestamp_ms // 1000
    member.mode = 0o664
    return member


def _json(value: object) -> bytes:
    return (json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode()
