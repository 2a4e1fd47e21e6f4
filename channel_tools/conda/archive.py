# SPDX-License-Identifier: BSD-3-Clause
"""Reads package files in bounded memory, and only once for all that need data from a package.

``read_package`` reads a package's hashes and metadata and checks that its files are safe to write and match its
paths.json, while a visitor (the audit) reads the same bytes. ``visit_package`` passes a package to a visitor as far as
it can be read. ``read_info_files`` and the functions based on it read only the metadata part. A ``.conda`` file has
the metadata and the payload as two parts; of the older ``.tar.bz2``, which has both in one archive, in any order, each
part is a pass over the archive.

The zip around the parts of a ``.conda`` file is opened only if every reader of packages finds the same parts in it. A
zip has the same data twice, in its directory and before each member, and may have bytes that belong to neither: both
must agree, and no other bytes are allowed. Members must be stored, as the format and rattler require, so the unpacked
size of a part is limited by the size of the file, not by what a header says.

Reads the members of a package's two parts and checks them, whether they are packed or unpacked.

A member is a header and a stream of its bytes (None for what has none), which must be read before the next one.

The tar archives in conda's packages: compressed by zstd or bzip2, and how much they may unpack to.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import re
import struct
import tarfile
import zipfile
import zlib
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, Literal, Protocol, cast

import msgspec
import zstandard

from channel_tools.conda.contents import (
    METADATA_BYTES,
    OTHER_METADATA_BYTES,
    InfoFiles,
    JsonObject,
    PackageProblem,
    PathRow,
    PathsJson,
    SafePaths,
    content_of,
    damaged_package,
    info_object,
    optional_object,
    parsed_json,
    read_path_rows,
    rows_of_files,
)
from channel_tools.conda.metadata import Correction, check_about, check_link, check_run_exports, checked_index
from channel_tools.conda.package import OLD_SUFFIX, PACKAGE_SUFFIX, stem_of
from channel_tools.system.beneath import opened_in
from channel_tools.system.document import decode_json
from channel_tools.system.errors import IntegrityError
from channel_tools.system.files import HashedStream
from channel_tools.system.tarstream import MEMBERS, Bz2Stream, tar_members, unpacked_limit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path
    from types import TracebackType

    from channel_tools.system.beneath import Beneath
    from channel_tools.system.tarstream import Members, Readable

Component = Literal["pkg", "info"]

_CHUNK_BYTES = 1 << 20
_FORMAT_VERSION = 2
_FORMAT_BYTES = 1 << 12
_PARTS = re.compile(r"info-[^\n]+\.tar\.zst\nmetadata\.json\npkg-[^\n]+\.tar\.zst")
_DAMAGE = (
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    zstandard.ZstdError,
    msgspec.MsgspecError,
    struct.error,  # a field of a zip or tar header that ends too early
    EOFError,
    RuntimeError,  # an encrypted zip member; an unknown zip version, headers or JSON nested too deep (its subclasses)
    ValueError,  # bytes in a header or a zip directory that are not valid text or numbers, numbers of 5,000 digits
    OverflowError,  # a number in a header that no file system supports
    MemoryError,  # a header or a document that needs more than the process may have
)
"""The exceptions that parsers raise for bytes that have not been checked."""
_INFO_BYTES = 256 << 20
"""What the metadata may unpack to: visitors search all of it, a recipe's own test files are the largest part."""


Member = tuple[tarfile.TarInfo, IO[bytes] | None]


SMALL_BYTES = 1 << 20
_FREE_MEMBERS = 20_000
_MEMBER_BYTES = 8
"""An archive may have this many members, and one more for as many of its own bytes: reading each takes 30 us, and the
headers of real ones, each with its own name, size and checksum, pack to 20 bytes and more."""
_WINDOW_BYTES = 128 << 20
"""What a zstd frame may ask a reader to keep in memory: as much as zstd's own programs and libraries grant unasked."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PackageInfo:
    """The metadata of a complete package (CEP 34) and its size and hashes.

    ``variant`` is its hash_input.json: the variant keys that it was built with, None if it has none. ``mtime_ns`` is
    the file's modification time when it was opened. ``correction`` are the fields that its channel lists otherwise, if
    no index can contain its own.
    """

    sha256: str
    md5: str
    size_bytes: int
    mtime_ns: int
    index: JsonObject
    about: JsonObject
    run_exports: JsonObject | None
    variant: JsonObject | None
    correction: Mapping[str, object] | None = None


def read_package(
    path: Path,
    *,
    contents: bool,
    visitor: PackageVisitor | None = None,
    folder: Beneath | None = None,
    correction: Mapping[str, object] | None = None,
) -> PackageInfo:
    """Read a package file and check that it is complete and safe, and that its name matches its index.json.

    With ``contents``, the payload is read, too: every member must stay inside the prefix, and paths.json must list
    exactly the members with their types, sizes and hashes. Raises IntegrityError naming the file and what is wrong; a
    ``visitor`` receives everything that can be read before a problem with single members is raised. With
    ``folder``, which is that of ``path``, the package is opened beneath it; raises what Beneath.opened does.
    ``correction`` are fields that its channel lists in place of its own, used if no index can contain these.
    """
    problems: list[PackageProblem] = []

    def note(problem: PackageProblem) -> None:
        if visitor is None:
            raise damaged_package(path, str(problem))
        problems.append(problem)

    with _opened(path, folder) as stream, InfoFiles(all_files=visitor is not None) as info:
        mtime_ns = os.fstat(stream.fileno()).st_mtime_ns
        source, sha256, md5, size_bytes = _hashed(stream)
        parts = _parts_in(source, path)
        parts.check_names()
        read_info(parts.members("info"), path, info, note)
        is_corrected = check_metadata(info, path, lambda: correction)
        if visitor is not None:
            visitor.visit_info(info)
        package = PackageInfo(
            sha256=sha256,
            md5=md5,
            size_bytes=size_bytes,
            mtime_ns=mtime_ns,
            index=info_object(info, "index.json", path),
            about=optional_object(info, "about.json", path) or {},
            run_exports=optional_object(info, "run_exports.json", path),
            variant=optional_object(info, "hash_input.json", path),
            correction=correction if is_corrected else None,
        )
        stem = f"{package.index.get('name')}-{package.index.get('version')}-{package.index.get('build')}"
        if stem != stem_of(path.name):
            suffix = path.name.removeprefix(stem_of(path.name))
            note(PackageProblem(kind="mismatch", file="info/index.json", text=f"names {stem}{suffix}"))
        if contents:
            listed = PathsJson(path_rows(info, path), note)
            read_payload(parts.members("pkg"), listed, visitor, note)
    if problems:
        raise damaged_package(path, str(problems[0]))
    return package


def visit_package(
    path: Path,
    visitor: PackageVisitor,
    *,
    on_problem: Callable[[PackageProblem], None] | None = None,
    folder: Beneath | None = None,
) -> None:
    """Pass the package to ``visitor`` as far as it can be read; it may be a ``.tar.bz2``. Raises IntegrityError.

    ``on_problem`` is called for members that are unsafe or do not match paths.json, which must state the size and
    sha256 of each. Without it, nothing is compared, and the first unsafe member is raised at the end. ``folder`` is as
    for read_package.
    """
    unsafe: list[PackageProblem] = []
    note, compared = on_problem or unsafe.append, on_problem is not None
    with _opened(path, folder) as stream, InfoFiles(all_files=True) as info:
        parts = _parts_in(stream, path)
        read_info(parts.members("info"), path, info, note)
        check_metadata(info, path)
        visitor.visit_info(info)
        listed = PathsJson(path_rows(info, path), note, complete=True) if compared else None
        read_payload(parts.members("pkg"), listed, visitor, note)
    if unsafe:
        raise damaged_package(path, str(unsafe[0]))


def read_index_json(
    path: Path, *, folder: Beneath | None = None, correction: Correction | None = None
) -> dict[str, Any]:
    """The info/index.json of a package. Raises IntegrityError if it is damaged, missing or does not match the name.

    ``folder`` is as for read_package; ``correction`` is as for checked_index.
    """
    index = info_object(read_info_files(path, frozenset({"index.json"}), folder=folder), "index.json", path)
    return dict(checked_index(index, path, correction))


def read_info_json(path: Path, name: str, *, folder: Beneath | None = None) -> Any:  # noqa: ANN401 - JSON of any shape, for the caller to check
    """The parsed info/``name``. Raises IntegrityError if the package is damaged or lacks it.

    ``folder`` is as for read_package.
    """
    return parsed_json(read_info_files(path, frozenset({name}), folder=folder), name, path)


def read_info_files(path: Path, names: frozenset[str], *, folder: Beneath | None = None) -> dict[str, bytes]:
    """Those of the files info/``names`` that the package has; stops reading when all are found.

    ``folder`` is as for read_package.
    """
    contents: dict[str, bytes] = {}
    for member, stream in stream_component(path, "info", folder=folder):
        top, _slash, name = member.name.partition("/")
        if top == "info" and name in names and stream is not None:
            if member.size > (limit := METADATA_BYTES.get(name, OTHER_METADATA_BYTES)):
                raise damaged_package(path, f"info/{name} has {member.size} bytes; expected at most {limit}")
            contents[name] = stream.read()
            if len(contents) == len(names):
                break
    return contents


def stream_component(path: Path, component: Component, *, folder: Beneath | None = None) -> Iterator[Member]:
    """Every member of the payload (``pkg``) or metadata (``info``) with a stream of its bytes (None for links).

    In a ``.tar.bz2``, the metadata are the members below ``info/``. A member's stream must be read before the next
    member is requested. ``folder`` is as for read_package. Raises IntegrityError for a damaged package.
    """
    with _opened(path, folder) as stream:
        size_bytes = os.fstat(stream.fileno()).st_size
        # a zip is read in many small pieces, which takes a third longer from a file
        source = io.BytesIO(stream.read(size_bytes)) if size_bytes <= SMALL_BYTES else stream
        yield from _parts_in(source, path).members(component)


class _DamageReported:
    """Converts exceptions that a damaged package causes within its block to IntegrityError.

    This is a class, not a generator, since it is entered several times for each of ten thousand packages.
    """

    __slots__ = ("_path",)

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, _kind: type[BaseException] | None, err: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        if isinstance(err, FileNotFoundError):
            raise IntegrityError(f"{self._path}: the package does not exist") from None
        if isinstance(err, IsADirectoryError):
            raise IntegrityError(f"{self._path}: is a folder; expected a package file") from None
        if isinstance(err, _DAMAGE):
            reason = f"not a complete conda package: {str(err) or type(err).__name__}"
            raise damaged_package(self._path, reason) from None


@contextlib.contextmanager
def _opened(path: Path, folder: Beneath | None = None) -> Iterator[IO[bytes]]:
    with contextlib.ExitStack() as stack:
        with _DamageReported(path):
            stream = stack.enter_context(opened_in(path, folder))
        yield stream


class _Parts(Protocol):
    """The two parts of an open package."""

    def check_names(self) -> None:
        """Raise IntegrityError if the parts are not named after the file."""

    def members(self, component: Component) -> Iterator[Member]:
        """The members of a part, from its start."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _CondaParts:
    """The parts of a ``.conda`` file: two archives in a zip."""

    path: Path
    archive: zipfile.ZipFile
    names: Mapping[Component, str]

    def check_names(self) -> None:
        stem = self.path.name.removesuffix(PACKAGE_SUFFIX)
        if (names := sorted(self.names.values())) != [f"info-{stem}.tar.zst", f"pkg-{stem}.tar.zst"]:
            raise damaged_package(self.path, f"contains {' and '.join(names)}; expected parts named after the file")

    def members(self, component: Component) -> Iterator[Member]:
        limit_bytes = _INFO_BYTES if component == "info" else None
        return _members(self.archive, self.names[component], self.path, limit_bytes=limit_bytes)


@dataclass(frozen=True, kw_only=True, slots=True)
class _OldParts:
    """The parts of a ``.tar.bz2``: what is below info/, and what is not."""

    path: Path
    stream: IO[bytes]

    def check_names(self) -> None:
        """Its parts have no names."""

    def members(self, component: Component) -> Iterator[Member]:
        size_bytes, left = self.stream.seek(0, os.SEEK_END), _INFO_BYTES
        self.stream.seek(0)
        with _DamageReported(self.path):
            for member, source in stream_bz2_tar(self.stream, size_bytes):
                is_info = member.name.partition("/")[0] == "info"
                left -= member.size if is_info else 0
                if left < 0:
                    raise tarfile.ReadError("its metadata unpacks to far more bytes than any package's")
                if is_info == (component == "info"):
                    yield member, None if source is None else cast("IO[bytes]", _MemberStream(self.path, source))


def _parts_in(stream: IO[bytes], path: Path) -> _Parts:
    if path.name.endswith(OLD_SUFFIX):
        return _OldParts(path=path, stream=stream)
    with _DamageReported(path):
        archive = open_zip(stream)
        return _CondaParts(path=path, archive=archive, names=_check_parts(archive, path))


def _hashed(stream: IO[bytes]) -> tuple[IO[bytes], str, str, int]:
    """A stream for reading the bytes again (small files are kept in memory), their sha256 and md5, and the size."""
    sha256 = hashlib.sha256()
    md5 = hashlib.md5(usedforsecurity=False)  # repodata has it beside the sha256, for old clients
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


def _check_parts(archive: zipfile.ZipFile, path: Path) -> Mapping[Component, str]:
    """The names of the metadata and the payload part, after checking that the zip has exactly the format's members."""
    members = sorted(archive.namelist())
    if not _PARTS.fullmatch("\n".join(members)):
        stem = path.name.removesuffix(PACKAGE_SUFFIX)
        names = f"info-{stem}.tar.zst, metadata.json, pkg-{stem}.tar.zst"
        raise damaged_package(path, f"contains {', '.join(members[:9]) or 'nothing'}; expected {names}")
    info_name, format_name, payload_name = members
    if (size_bytes := archive.getinfo(format_name).file_size) > _FORMAT_BYTES:
        raise damaged_package(path, f"{format_name} has {size_bytes} bytes; expected at most {_FORMAT_BYTES}")
    try:
        document = decode_json(archive.read(format_name))
    except ValueError as err:
        raise damaged_package(path, f"{format_name} is not valid JSON ({err})") from None
    if not isinstance(document, dict) or document.get("conda_pkg_format_version") != _FORMAT_VERSION:
        message = f"{format_name} says {str(document)[:80]}; expected conda_pkg_format_version {_FORMAT_VERSION}"
        raise damaged_package(path, message)
    return {"info": info_name, "pkg": payload_name}


def _members(archive: zipfile.ZipFile, name: str, path: Path, *, limit_bytes: int | None = None) -> Iterator[Member]:
    """The members of a part, read to its end, so that the zip's checksum is verified."""
    with _DamageReported(path):
        size_bytes = archive.getinfo(name).file_size
        with io.BytesIO(archive.read(name)) if size_bytes <= SMALL_BYTES else archive.open(name) as packed:
            for member, source in stream_tar(packed, size_bytes, limit_bytes=limit_bytes):
                is_in_memory = source is None or isinstance(source, io.BytesIO)
                yield member, source if is_in_memory else cast("IO[bytes]", _MemberStream(path, source))
            while packed.read(_CHUNK_BYTES):
                pass


class _MemberStream:
    """A member's bytes; converts the errors for damage, which shows only while the receiver reads them."""

    def __init__(self, path: Path, source: IO[bytes] | None) -> None:
        self._path = path
        self._source = cast("IO[bytes]", source)

    def read(self, size: int = -1) -> bytes:
        with _DamageReported(self._path):
            return self._source.read(size)


_DIRECTORY_BYTES = 4 << 10
"""The directory of the three members that a package has takes some 300 bytes; zipfile reads all of it into memory."""
_NEWEST_VERSION = zipfile.ZIP64_VERSION
"""The versions that zips of stored members need, in tenths: 2.0, or 4.5 for large ones."""
_ENCRYPTED = 0x1 | 0x40 | 0x2000
_SIZES_BEHIND = 0x8
"""The flag of members whose sizes were not known when their header was written."""
_DESCRIPTOR_BYTES = (12, 16, 20, 24)
_METHODS = {8: "deflate", 9: "deflate64", 12: "bzip2", 14: "lzma", 93: "zstd", 95: "xz"}
_END = struct.Struct("<4s4H2LH")
_END64_LOCATOR = struct.Struct("<4sLQL")
_END64 = struct.Struct("<4sQ2H2L4Q")
_LOCAL = struct.Struct("<4s5H3L2H")


def open_zip(stream: IO[bytes]) -> zipfile.ZipFile:
    """The zip in a seekable stream. Raises BadZipFile, saying what is wrong, before any member is read."""
    size_bytes = stream.seek(0, os.SEEK_END)
    directory_end = _check_end(stream, size_bytes)
    archive = zipfile.ZipFile(stream)
    entries = sorted(archive.infolist(), key=lambda entry: entry.header_offset)
    for entry in entries:
        _check_entry(entry)
    if entries and entries[0].header_offset != 0:
        raise zipfile.BadZipFile("there are bytes before its first member")
    ends = [entry.header_offset for entry in entries[1:]] + [archive.start_dir]
    for entry, end in zip(entries, ends, strict=True):
        _check_member(stream, entry, end)
    if not entries or archive.start_dir >= directory_end:
        raise zipfile.BadZipFile("it has no members")
    return archive


def _check_end(stream: IO[bytes], size_bytes: int) -> int:
    """The end of the directory, after checking that it is the end of the file and that the directory is short."""
    end_at = size_bytes - _END.size
    if end_at < 0:
        raise zipfile.BadZipFile("it is too short for a zip")
    signature, _disk, _first, _disk_entries, _total, directory_bytes, _offset, comment_bytes = _fields(
        stream, end_at, _END
    )
    if signature != b"PK\5\6" or comment_bytes:
        raise zipfile.BadZipFile("it is not a zip, is truncated or has bytes after its end")
    locator_at = end_at - _END64_LOCATOR.size
    if locator_at >= _END64.size and _fields(stream, locator_at, _END64_LOCATOR)[0] == b"PK\6\7":
        end_at = locator_at - _END64.size
        directory_bytes = _fields(stream, end_at, _END64)[8]
    if directory_bytes > _DIRECTORY_BYTES:
        raise zipfile.BadZipFile(f"it has a directory of {directory_bytes} bytes; expected at most {_DIRECTORY_BYTES}")
    return end_at


def _check_entry(entry: zipfile.ZipInfo) -> None:
    """Check the directory's entry of a member."""
    name = repr(entry.orig_filename[:80])
    if entry.orig_filename != entry.filename:
        raise zipfile.BadZipFile(f"its member {name} has a name that readers cut at different places")
    if entry.flag_bits & _ENCRYPTED:
        raise zipfile.BadZipFile(f"its member {name} is encrypted")
    if entry.compress_type != zipfile.ZIP_STORED or entry.compress_size != entry.file_size:
        method = _METHODS.get(entry.compress_type, f"method {entry.compress_type}")
        raise zipfile.BadZipFile(f"its member {name} is compressed ({method}); expected it stored, as required")
    if entry.extract_version > _NEWEST_VERSION:
        raise zipfile.BadZipFile(f"its member {name} needs a reader of zip version {entry.extract_version / 10}")


def _check_member(stream: IO[bytes], entry: zipfile.ZipInfo, end: int) -> None:
    """Check that the header before a member agrees with the directory, and that its bytes end where the next start."""
    quoted = repr(entry.filename[:80])
    header = _fields(stream, entry.header_offset, _LOCAL)
    signature, _version, flags, method, _time, _date, checksum, packed_bytes, _plain, name_bytes, extra_bytes = header
    name = stream.read(name_bytes)
    encoded = entry.orig_filename.encode("utf-8" if flags & 0x800 else "cp437", "surrogateescape")
    later = bool(flags & _SIZES_BEHIND)
    agrees = (
        signature == b"PK\3\4"
        and flags == entry.flag_bits
        and method == entry.compress_type
        and name == encoded
        and (later or (checksum == entry.CRC and packed_bytes in {entry.file_size, 0xFFFFFFFF}))
    )
    if not agrees:
        raise zipfile.BadZipFile(f"the header of its member {quoted} does not match its directory")
    behind = end - (entry.header_offset + _LOCAL.size + name_bytes + extra_bytes + entry.file_size)
    if behind and not (later and behind in _DESCRIPTOR_BYTES):
        raise zipfile.BadZipFile(f"there are bytes between its member {quoted} and the next part, or they overlap")


def _fields(stream: IO[bytes], at: int, layout: struct.Struct) -> tuple[Any, ...]:
    stream.seek(at)
    return layout.unpack(stream.read(layout.size))


class PackageVisitor(Protocol):
    """Receives the content of a package while it is read: first its metadata, then each member of the payload."""

    def visit_info(self, files: Mapping[str, bytes]) -> None:
        """Receive the files of info/ by their names without ``info/``; they can be read until this returns."""

    def visit_member(self, member: tarfile.TarInfo, stream: IO[bytes] | None) -> None:
        """Receive a file or link; the stream (None for links) can be read until this returns."""


def read_info(
    members: Iterator[Member], path: Path, info: InfoFiles, on_problem: Callable[[PackageProblem], None]
) -> None:
    """Read the metadata into ``info``. Raises IntegrityError for a member that is not a file of info/."""
    paths = SafePaths(on_problem)
    for member, stream in members:
        paths.add(member)
        folder, _slash, name = member.name.partition("/")
        if folder != "info" or not info.add(name, member.size, stream):
            message = f"{member.name[:200]!r} in its metadata is not a plain file below info/, too large or a duplicate"
            raise damaged_package(path, message)
    paths.check_all()


def read_payload(
    members: Iterator[Member],
    listed: PathsJson | None,
    visitor: PackageVisitor | None,
    on_problem: Callable[[PackageProblem], None],
) -> None:
    """Read the payload and compare it with ``listed`` (paths.json), if given, by hashing all of it."""
    paths = SafePaths(on_problem, payload=True)
    for member, stream in members:
        hashed = None if stream is None or listed is None else HashedStream(stream)
        paths.add(member)
        if visitor is not None and not member.isdir():
            visitor.visit_member(member, cast("IO[bytes] | None", hashed) or stream)
        if listed is not None:
            listed.add(member, hashed)
    if listed is not None:
        listed.check_all()
    paths.check_all()


def path_rows(info: Mapping[str, bytes], path: Path) -> Mapping[str, PathRow]:
    """The rows of paths.json; of info/files in older packages without it. Raises IntegrityError."""
    if path.name.endswith(OLD_SUFFIX) and "paths.json" not in info and "files" in info:
        return rows_of_files(info["files"], path)
    return read_path_rows(content_of(info, "paths.json", path), path)


def check_metadata(info: InfoFiles, path: Path, correction: Correction | None = None) -> bool:
    """Raise IntegrityError for metadata that a channel's index cannot contain, with the reason.

    An index.json that only its channel's ``correction`` makes right is replaced in ``info`` by the corrected one;
    returns whether that was so.
    """
    index = info_object(info, "index.json", path)
    is_corrected = (corrected := checked_index(index, path, correction)) is not index
    if is_corrected:
        info.replace("index.json", msgspec.json.encode(corrected))
    check_about(optional_object(info, "about.json", path) or {}, path)
    check_run_exports(optional_object(info, "run_exports.json", path) or {}, path)
    check_link(optional_object(info, "link.json", path) or {}, path)
    return is_corrected


def stream_tar(packed: IO[bytes], packed_bytes: int, *, limit_bytes: int | None = None) -> Members:
    """The members of a ``tar.zst``, as tar_members gives them.

    The unpacked size is limited by the packed size, and by ``limit_bytes`` if that is less. Raises tarfile.TarError and
    zstandard.ZstdError for damaged or excessive data, also after the archive's end.
    """
    decompressor = zstandard.ZstdDecompressor(max_window_size=_WINDOW_BYTES)
    with decompressor.stream_reader(packed, read_across_frames=True, closefd=False) as plain:
        yield from _limited_members(plain, packed_bytes, limit_bytes)


def _limited_members(plain: Readable, packed_bytes: int, limit_bytes: int | None) -> Members:
    limit = unpacked_limit(packed_bytes)
    return tar_members(
        plain,
        limit_bytes=limit if limit_bytes is None else min(limit, limit_bytes),
        limit_members=min(MEMBERS, _FREE_MEMBERS + packed_bytes // _MEMBER_BYTES),
    )


def stream_bz2_tar(packed: IO[bytes], packed_bytes: int, *, limit_bytes: int | None = None) -> Members:
    """As stream_tar, for a ``tar.bz2``."""
    with contextlib.closing(Bz2Stream(packed)) as plain:
        yield from _limited_members(plain, packed_bytes, limit_bytes)
