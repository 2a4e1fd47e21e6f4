# SPDX-License-Identifier: BSD-3-Clause
"""Reading and judging one ``.conda`` file before it may enter a channel.

Everything is streamed and limited: a package of any size, also one made to do harm, is checked in bounded memory. Both
parts are read to their last byte, so that the zip's own checksums are checked as well.
"""

from __future__ import annotations

import hashlib
import io
import struct
import tarfile
import zipfile
import zlib
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

import msgspec
import zstandard

from channel_tools.channel.contents import Tree, check_contents
from channel_tools.channel.model import PACKAGE_SUFFIX
from channel_tools.channel.refusal import damaged
from channel_tools.packages.tarstream import SMALL_BYTES, stream_tar

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

JsonObject = dict[str, object]

_CHUNK_BYTES = 1 << 20
_FORMAT_VERSION = 2
_FORMAT_BYTES = 1 << 12
_READ_ERRORS = (
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    zstandard.ZstdError,
    msgspec.DecodeError,
    struct.error,  # a field of a zip or tar header that ends too early
    EOFError,
    NotImplementedError,  # a zip version that zipfile does not know
    RuntimeError,  # an encrypted zip member, JSON nested too deep
    ValueError,  # bytes in a tar header or a zip directory that are no text or no number
)
_OPTIONAL = ("info/about.json", "info/hash_input.json", "info/run_exports.json")
_WANTED: Mapping[str, int] = {
    "info/index.json": 4 << 20,
    "info/paths.json": 256 << 20,
    **dict.fromkeys(_OPTIONAL, 16 << 20),
}
"""What is read of the metadata, and how large it may be."""


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
    members with their kinds, sizes and hashes. Raises IntegrityError naming the file and what is wrong with it.
    """
    try:
        with path.open("rb") as stream:
            source, sha256, md5, size_bytes = _hashed(stream)
            with zipfile.ZipFile(source) as archive:
                info = _read_zip(archive, path, size_bytes=size_bytes, contents=contents)
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


def _hashed(stream: IO[bytes]) -> tuple[IO[bytes], str, str, int]:
    """Where to read the bytes again (a small file's are kept), their sha256 and md5, and how many they are."""
    sha256 = hashlib.sha256()
    md5 = hashlib.md5(usedforsecurity=False)  # repodata holds one beside the sha256, for old clients
    size_bytes = 0
    first = b""
    while chunk := stream.read(_CHUNK_BYTES):
        sha256.update(chunk)
        md5.update(chunk)
        first = first or chunk
        size_bytes += len(chunk)
    stream.seek(0)
    source = io.BytesIO(first) if size_bytes == len(first) else stream
    return source, sha256.hexdigest(), md5.hexdigest(), size_bytes


def _read_zip(archive: zipfile.ZipFile, path: Path, *, size_bytes: int, contents: bool) -> dict[str, bytes]:
    stem = path.name.removesuffix(PACKAGE_SUFFIX)
    names = ("metadata.json", f"pkg-{stem}.tar.zst", f"info-{stem}.tar.zst")
    found = sorted(archive.namelist())
    if found != sorted(names):
        raise damaged(path, f"holds {', '.join(found[:9]) or 'nothing'}; expected {', '.join(sorted(names))}")
    entries = archive.infolist()
    if any(entry.compress_type != zipfile.ZIP_STORED or entry.compress_size != entry.file_size for entry in entries):
        raise damaged(path, "its zip members are compressed; expected them stored, as the format says")
    if any(entry.header_offset < 0 for entry in entries) or sum(entry.file_size for entry in entries) > size_bytes:
        raise damaged(path, "its zip directory is damaged")
    _check_format(archive, path)
    info = _read_info(_component(archive, names[2]), path)
    if contents:
        check_contents(_component(archive, names[1]), _object_of(info, "info/paths.json", path), path)
    return info


def _check_format(archive: zipfile.ZipFile, path: Path) -> None:
    if archive.getinfo("metadata.json").file_size > _FORMAT_BYTES:
        raise damaged(path, "metadata.json is too large")
    metadata = msgspec.json.decode(archive.read("metadata.json"))
    if not isinstance(metadata, dict) or metadata.get("conda_pkg_format_version") != _FORMAT_VERSION:
        raise damaged(path, f"metadata.json says {metadata!r}; expected conda_pkg_format_version {_FORMAT_VERSION}")


def _component(archive: zipfile.ZipFile, name: str) -> Iterator[tuple[tarfile.TarInfo, IO[bytes] | None]]:
    """The members of a part, read to its end, where the zip checks its checksum."""
    size_bytes = archive.getinfo(name).file_size
    if size_bytes <= SMALL_BYTES:
        yield from stream_tar(io.BytesIO(archive.read(name)), size_bytes)
        return
    with archive.open(name) as packed:
        yield from stream_tar(packed, size_bytes)
        while packed.read(_CHUNK_BYTES):
            pass


def _read_info(members: Iterator[tuple[tarfile.TarInfo, IO[bytes] | None]], path: Path) -> dict[str, bytes]:
    info: dict[str, bytes] = {}
    tree = Tree(path)
    for member, stream in members:
        tree.add(member)
        if (limit := _WANTED.get(member.name)) is None:
            continue
        if stream is None or member.size > limit or member.name in info:
            raise damaged(path, f"{member.name} in it is no plain file, too large or there twice")
        info[member.name] = stream.read()
    tree.check()
    return info


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
