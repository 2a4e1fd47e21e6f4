# SPDX-License-Identifier: BSD-3-Clause
"""Reading and judging one ``.conda`` file before it may enter a channel.

Everything is streamed: a package of any size is checked in bounded memory. The zip's CRCs are read in full, since tar
readers stop at the archive's end mark and would miss damage behind it.
"""

from __future__ import annotations

import hashlib
import posixpath
import zipfile
import zlib
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

import msgspec

from channel_tools.channel.model import PACKAGE_SUFFIX
from channel_tools.errors import IntegrityError
from channel_tools.packages.reader import stream_component

if TYPE_CHECKING:
    import tarfile
    from collections.abc import Mapping
    from pathlib import Path

JsonObject = dict[str, object]

_CHUNK_BYTES = 1 << 20
_JSON_LIMIT_BYTES = 256 << 20
_FORMAT_VERSION = 2
_READ_ERRORS = (
    zipfile.BadZipFile,
    zlib.error,
    msgspec.DecodeError,
    EOFError,
    NotImplementedError,  # a zip method or version that zipfile does not know
    RuntimeError,  # an encrypted zip member
    ValueError,  # bytes in a tar header or a zip directory that are no text or no number
)
_OPTIONAL = ("info/about.json", "info/hash_input.json", "info/run_exports.json")
_WANTED = frozenset({"info/index.json", "info/paths.json", *_OPTIONAL})


@dataclass(frozen=True, kw_only=True, slots=True)
class PackageFacts:
    """What a sound package says about itself (CEP 34) and what its bytes are.

    ``variant`` is its hash_input.json: the variant keys that it was built with, None when it does not say.
    """

    sha256: str
    md5: str
    size_bytes: int
    index: JsonObject
    about: JsonObject
    run_exports: JsonObject | None
    variant: JsonObject | None


def read_package(path: Path, *, contents: bool) -> PackageFacts:
    """Read a ``.conda`` file and check that it is complete, safe and named after what its index.json says.

    With ``contents`` the payload is streamed too: every member stays inside the prefix and paths.json lists exactly the
    members with their sizes. Raises IntegrityError naming the file and what is wrong with it.
    """
    try:
        with path.open("rb") as stream:
            sha256, md5, size_bytes = _hashes(stream)
            with zipfile.ZipFile(stream) as archive:
                info = _read_zip(archive, path, contents=contents)
        about, variant, run_exports = (_object_of(info, name, path) if name in info else None for name in _OPTIONAL)
        facts = PackageFacts(
            sha256=sha256,
            md5=md5,
            size_bytes=size_bytes,
            index=_object_of(info, "info/index.json", path),
            about=about or {},
            run_exports=run_exports,
            variant=variant,
        )
    except _READ_ERRORS as err:
        raise damaged(path, f"not a complete .conda file ({str(err) or type(err).__name__})") from err
    _check_name(facts.index, path)
    return facts


def damaged(path: Path, what: str) -> IntegrityError:
    """The error for a package that must not be indexed."""
    hint = f"delete {path.name} and make it again (build, foundation build) or copy it again from where it is sound"
    return IntegrityError(f"{path}: {what}; it is not taken into the channel", hint=hint)


def _hashes(stream: IO[bytes]) -> tuple[str, str, int]:
    sha256 = hashlib.sha256()
    md5 = hashlib.md5(usedforsecurity=False)  # repodata holds one beside the sha256, for old clients
    size_bytes = 0
    while chunk := stream.read(_CHUNK_BYTES):
        sha256.update(chunk)
        md5.update(chunk)
        size_bytes += len(chunk)
    stream.seek(0)
    return sha256.hexdigest(), md5.hexdigest(), size_bytes


def _read_zip(archive: zipfile.ZipFile, path: Path, *, contents: bool) -> dict[str, bytes]:
    stem = path.name.removesuffix(PACKAGE_SUFFIX)
    expected = {"metadata.json", f"pkg-{stem}.tar.zst", f"info-{stem}.tar.zst"}
    found = sorted(archive.namelist())
    if found != sorted(expected):
        raise damaged(path, f"holds {', '.join(found) or 'nothing'}; expected {', '.join(sorted(expected))}")
    if any(member.header_offset < 0 for member in archive.infolist()):  # zipfile would seek there
        raise damaged(path, "its zip directory is damaged")
    if broken := archive.testzip():
        raise damaged(path, f"{broken} in it is damaged (checksum)")
    metadata = msgspec.json.decode(archive.read("metadata.json"))
    if not isinstance(metadata, dict) or metadata.get("conda_pkg_format_version") != _FORMAT_VERSION:
        raise damaged(path, f"metadata.json says {metadata!r}; expected conda_pkg_format_version {_FORMAT_VERSION}")
    info = _read_info(path)
    if contents:
        _check_contents(_object_of(info, "info/paths.json", path), path)
    return info


def _read_info(path: Path) -> dict[str, bytes]:
    info: dict[str, bytes] = {}
    for member, stream in stream_component(path, "info"):
        check_member(member, path)
        if member.name not in _WANTED:
            continue
        if stream is None or member.size > _JSON_LIMIT_BYTES or member.name in info:
            raise damaged(path, f"{member.name} in it is no plain file, too large or there twice")
        info[member.name] = stream.read()
    return info


def _check_contents(paths: Mapping[str, object], path: Path) -> None:
    listed = _listed_paths(paths, path)
    seen: set[str] = set()
    for member, _stream in stream_component(path, "pkg"):
        check_member(member, path)
        if member.isdir() and member.name not in listed:
            continue
        if member.name in seen or member.name not in listed:
            how = "there twice" if member.name in seen else "not in paths.json"
            raise damaged(path, f"{member.name} in it is {how}")
        size = listed[member.name]
        if member.isreg() and size is not None and size != member.size:
            raise damaged(path, f"{member.name} in it has {member.size} bytes; paths.json says {size}")
        seen.add(member.name)
    if missing := sorted(listed.keys() - seen):
        raise damaged(path, f"{missing[0]} is listed in paths.json but not in it")


def _listed_paths(paths: Mapping[str, object], path: Path) -> dict[str, int | None]:
    rows = paths.get("paths")
    if not isinstance(rows, list):
        raise damaged(path, "info/paths.json has no list of paths")
    listed: dict[str, int | None] = {}
    for row in rows:
        name = row.get("_path") if isinstance(row, dict) else None
        size = row.get("size_in_bytes") if isinstance(row, dict) else None
        if not isinstance(name, str) or not isinstance(size, int | None):
            raise damaged(path, f"info/paths.json has the row {row!r}")
        listed[name] = size
    return listed


def check_member(member: tarfile.TarInfo, path: Path) -> None:
    """Raise IntegrityError unless the member and what it links to stay inside the folder it is unpacked in."""
    if not _stays_inside(member.name):
        raise damaged(path, f"member {member.name!r} would be written outside the prefix")
    if member.issym() and not _stays_inside(posixpath.join(posixpath.dirname(member.name), member.linkname)):
        raise damaged(path, f"link {member.name!r} points outside the prefix, to {member.linkname!r}")
    if member.islnk() and not _stays_inside(member.linkname):
        raise damaged(path, f"hard link {member.name!r} points outside the prefix, to {member.linkname!r}")
    if not (member.isreg() or member.isdir() or member.issym() or member.islnk()):
        raise damaged(path, f"member {member.name!r} is neither a file, a folder nor a link")


def _stays_inside(name: str) -> bool:
    if not name or name.startswith("/") or "\0" in name:
        return False
    normal = posixpath.normpath(name)
    return normal != ".." and not normal.startswith("../")


def _object_of(info: Mapping[str, bytes], name: str, path: Path) -> JsonObject:
    if name not in info:
        raise damaged(path, f"{name} is missing in it")
    value = msgspec.json.decode(info[name])
    if not isinstance(value, dict):
        raise damaged(path, f"{name} in it is no JSON object")
    return value


def _check_name(index: JsonObject, path: Path) -> None:
    said = f"{index.get('name')}-{index.get('version')}-{index.get('build')}{PACKAGE_SUFFIX}"
    if said != path.name:
        raise damaged(path, f"its index.json names {said}")
