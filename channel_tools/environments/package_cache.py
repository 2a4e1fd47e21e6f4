# SPDX-License-Identifier: BSD-3-Clause
"""Fills the package cache with packages that were checked, and knows later which of them are still the same.

rattler links what is unpacked in its cache, at the paths that paths.json names, whatever these are. So packages are
unpacked here, by rattler, into a temporary folder of the cache, checked by the rules of our own channel, and only then
moved to where rattler looks for them. Each gets a file that says which archive it is and what its files looked like
(name, size, time, inode). If they still do, and only this user (or root) can write to them, they are not hashed again.
A program that changes a file and sets its time back is not noticed; it runs as this user.

Checks a package that is unpacked in a folder by the same rules as a package file.

Clients link what is in such a folder, at the paths that its paths.json names: so its files are compared with the rows
whenever they might not be those of the package.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import io
import os
import shutil
import stat
import tarfile
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, cast

import msgspec
from rattler.package_streaming import download_and_extract

from channel_tools.conda.addresses import file_address
from channel_tools.conda.answers import while_answered
from channel_tools.conda.archive import check_metadata, path_rows, read_info, read_payload
from channel_tools.conda.contents import (
    METADATA_BYTES,
    InfoFiles,
    PackageProblem,
    PathsJson,
    damaged_package,
    info_object,
    read_path_rows,
)
from channel_tools.conda.metadata import PATCHABLE, subdir_of
from channel_tools.conda.solving import one_line
from channel_tools.environments.install_errors import (
    damaged_package_error,
    difference_error,
    install_error,
    irregular_archive_error,
    local_archive_error,
    panics_reported,
    unsafe_package_error,
)
from channel_tools.system.beneath import Beneath
from channel_tools.system.document import decode_json
from channel_tools.system.errors import ChannelError, FileAccessError, IntegrityError
from channel_tools.system.files import walk_entries, write_bytes_atomically
from channel_tools.system.work_folder import temporary_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import NoReturn

    from rattler import RepoDataRecord
    from rattler.networking import Client

    from channel_tools.conda.archive import Member
    from channel_tools.conda.metadata import Correction
    from channel_tools.system.progress import Progress

_RECORD = ".channel_tools-checked.json"
_RECORD_BYTES = 4096
_LOCK_SUFFIX = ".lock"
_CACHE_LOCK = ".cache.lock"
_CHUNK_BYTES = 1 << 20
_AT_ONCE = 8
"""So many packages are downloaded and unpacked at once."""
_ATTEMPTS = 3
"""A download that breaks off is tried so often; rattler tries again by itself only before the first byte."""
_BROKEN_OFF = "error decoding response body"
_TAKEN = frozenset({errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR})
"""A folder cannot be renamed to a path, since there is a folder with content or a file."""
_LISTS = ("constrains", "depends", "track_features")
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


_INFO = "info"
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_KINDS: Mapping[int, bytes] = {
    stat.S_IFREG: tarfile.REGTYPE,
    stat.S_IFDIR: tarfile.DIRTYPE,
    stat.S_IFLNK: tarfile.SYMTYPE,
    stat.S_IFIFO: tarfile.FIFOTYPE,
}


class _Checked(msgspec.Struct, frozen=True, kw_only=True):
    """What the file beside a package's files says: its archive, and what its files looked like.

    ``unlisted`` is a hash of all that paths.json gives no hash of.
    """

    address: str
    sha256: str
    md5: str
    unlisted: str
    look: str


@dataclass(frozen=True, kw_only=True, slots=True)
class PackageStore:
    """A package cache and how it is filled: ``locked`` if the packages are from a lock, not from a channel's index.

    With ``hash_all``, files are hashed even if they look unchanged.
    """

    folder: Path
    client: Client
    locked: bool
    hash_all: bool
    look_up: Callable[[RepoDataRecord], Mapping[str, object] | None] = lambda _record: None
    """The record that a package's channel lists now, for those of a lock that has no records."""
    archives: Mapping[str, Path] = field(default_factory=dict)
    """Files that were fetched already, by the addresses in the records."""

    def correction(self, record: RepoDataRecord) -> Mapping[str, object] | None:
        """The fields of a package's record that are right where those of its own index.json are not."""
        if record.size is None:
            listed = self.look_up(record)
            return None if listed is None else {key: listed.get(key) for key in PATCHABLE}
        return {
            "constrains": list(record.constrains),
            "depends": list(record.depends),
            "features": record.features,
            "license": record.license,
            "license_family": record.license_family,
            "purls": None,
            "track_features": list(record.track_features),
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Unpacked:
    """A package's unpacked files: how they look, and whether only this user and root can write to them."""

    look: str
    private: bool
    files: frozenset[str] = field(repr=False)
    """The paths of all that is no folder, links included."""
    links: dict[str, str] = field(repr=False)
    folders: frozenset[str] = field(repr=False)


async def fetch_packages(
    records: Sequence[RepoDataRecord], store: PackageStore, *, name: str, progress: Progress
) -> dict[str, Unpacked]:
    """Have the cache contain exactly these packages, each checked; returns them by the names of their folders.

    ``name`` is the environment's, for the progress. What is there and unchanged is not downloaded. Raises
    IntegrityError (a damaged, unsafe or other package, by its file name), NetworkError, UsageError (access denied),
    ChannelError and DiskFullError.
    """
    store.folder.mkdir(parents=True, exist_ok=True)
    folders = {_folder_name(record): record for record in records}
    cached = {folder: _usable(store.folder / folder, record, store) for folder, record in folders.items()}
    if missing := {folder: record for folder, record in folders.items() if cached[folder] is None}:
        with (
            temporary_folder(store.folder) as staging,
            progress.task(f"fetch for {name}", total=len(missing)) as task,
        ):
            fetched = _fetch_all(missing, store, staging, lambda folder: task.advance(detail=folder))
            cached |= await fetched
    _remove_odd_locks(store.folder, folders)
    return {folder: unpacked for folder, unpacked in cached.items() if unpacked is not None}


def _remove_odd_locks(folder: Path, packages: Iterable[str]) -> None:
    """Remove what is in the place of a lock that rattler makes in the cache, unless it is a regular file.

    rattler follows links there and writes a number into what they lead to.
    """
    files = Beneath(root=folder)
    places = {f"{package}{_LOCK_SUFFIX}" for package in packages} | {_CACHE_LOCK}
    for name, status in files.stats():
        if name in places and not stat.S_ISREG(status.st_mode):
            files.remove_tree(name)


def cached_name(record: RepoDataRecord) -> str:
    """``NAME-VERSION-BUILD``, the folder of a package in the cache."""
    return f"{record.name.normalized}-{record.version}-{record.build}"


def _folder_name(record: RepoDataRecord) -> str:
    """The name of the folder where rattler looks for an unpacked package. Raises IntegrityError if it is not one."""
    name = cached_name(record)
    if "/" in name or "\0" in name or name.startswith("."):
        raise unsafe_package_error(record.file_name, f"{name!r} cannot be the name of a package")
    return name


async def _fetch_all(
    missing: dict[str, RepoDataRecord], store: PackageStore, staging: Path, done: Callable[[str], None]
) -> dict[str, Unpacked]:
    """Fetch packages, a few at a time; raises the first error, after which no thread works in ``staging`` any more."""
    turns = asyncio.Semaphore(_AT_ONCE)

    async def fetch(folder: str, record: RepoDataRecord) -> Unpacked:
        async with turns:
            hashes = await _unpack(record, staging / folder, store)
            unpacked = await _to_its_end(asyncio.to_thread(_admit, record, hashes, staging / folder, store))
            done(folder)
            return unpacked

    try:
        async with asyncio.TaskGroup() as group:
            tasks = {folder: group.create_task(fetch(folder, record)) for folder, record in missing.items()}
    except ExceptionGroup as errors:
        first = errors.exceptions[0]
        raise first from first.__cause__
    return {folder: task.result() for folder, task in tasks.items()}


async def _to_its_end(work: Coroutine[object, object, Unpacked]) -> Unpacked:
    """The result of work in a thread, which goes on where it is cancelled: that is then waited for."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.gather(task, return_exceptions=True)
        raise


async def _unpack(record: RepoDataRecord, folder: Path, store: PackageStore) -> tuple[str, str]:
    """Unpack an archive from its address; returns its sha256 and md5. Raises as install_error says."""
    if (irregular := irregular_archive_error(record, locked=store.locked)) is not None:
        raise irregular
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            with panics_reported(record.file_name):
                fetched = store.archives.get(record.url)
                address = record.url if fetched is None else file_address(str(fetched))
                archive = download_and_extract(store.client, address, folder)
                sha256, md5 = await while_answered(archive, [record.url])
        except OSError as err:
            shutil.rmtree(folder, ignore_errors=True)
            if _BROKEN_OFF in str(err) and attempt < _ATTEMPTS:
                continue
            if (error := local_archive_error(record, locked=store.locked)) is not None:
                raise error from None
            failed = RuntimeError(f"failed to fetch {record.file_name}\nCaused by: {err}")
            other = install_error(failed, prefix=folder, package_cache=store.folder, locked=store.locked)
            if isinstance(other, ChannelError):  # an unknown text: it was read and could not be unpacked
                raise damaged_package_error(record.file_name, one_line(err)) from None
            raise other from err
        else:
            return sha256.hex(), md5.hex()
    raise AssertionError  # the last attempt returns or raises


def _admit(record: RepoDataRecord, hashes: tuple[str, str], unpacked: Path, store: PackageStore) -> Unpacked:
    """Check a package that was unpacked, and move it to where rattler looks for it. Raises IntegrityError."""
    if (error := difference_error(record, hashes, locked=store.locked)) is not None:
        raise error
    try:
        _check(unpacked, record, store)
    except IntegrityError as err:
        reason = err.message.removeprefix(f"{unpacked}: ")
        raise unsafe_package_error(record.file_name, reason) from None
    _remove_nulls(unpacked / "info" / "index.json")
    # archives give group and others the permission to write as they were made
    for _path, _folders, files, descriptor in os.fwalk(unpacked):
        for name in (".", *files):
            status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
            if status.st_mode & _OTHERS_WRITE and not stat.S_ISLNK(status.st_mode):
                os.chmod(name, stat.S_IMODE(status.st_mode) & ~_OTHERS_WRITE, dir_fd=descriptor)
    sha256, md5 = hashes
    checked = _Checked(address=record.url, sha256=sha256, md5=md5, unlisted=_unlisted_of(unpacked), look="")
    final = store.folder / unpacked.name
    look = _look_at(unpacked)
    _write_checked(unpacked, msgspec.structs.replace(checked, look=look.look))
    return _usable(final, record, store) or _move(unpacked, final, record, store) or look


def _remove_nulls(index: Path) -> None:
    """Leave out the lists that a package has as null, which for conda is none; rattler does not link such a package."""
    document = decode_json(index.read_bytes(), dict[str, object])
    if nulls := _nulls(document):
        readable = {key: value for key, value in document.items() if key not in nulls}
        write_bytes_atomically(index, msgspec.json.encode(readable), durable=False)


def _nulls(index: Mapping[str, object]) -> list[str]:
    return [key for key in _LISTS if index.get(key, ()) is None]


def _move(unpacked: Path, final: Path, record: RepoDataRecord, store: PackageStore) -> Unpacked | None:
    """Move a package to its place; returns what another process has put there meanwhile, if that is as good."""
    while True:
        try:
            unpacked.rename(final)
        except OSError as err:
            if err.errno not in _TAKEN:
                raise
            if (existing := _usable(final, record, store)) is not None:
                return existing
            with contextlib.suppress(FileNotFoundError):
                final.rename(unpacked.with_name(f"replaced {unpacked.name}"))
            continue
        # rattler's own note on which archive is there
        final.with_name(f"{final.name}{_LOCK_SUFFIX}").unlink(missing_ok=True)
        return None


def _check(folder: Path, record: RepoDataRecord, store: PackageStore) -> None:
    check_unpacked(
        folder,
        folder,
        stem=cached_name(record),
        subdir=record.subdir,
        ours={_RECORD},
        correction=lambda: store.correction(record),
    )


def _usable(folder: Path, record: RepoDataRecord, store: PackageStore) -> Unpacked | None:
    """What is unpacked in the folder if it is the record's package, as it was when it was checked."""
    try:
        if not stat.S_ISDIR(folder.lstat().st_mode):
            return None  # a link to a folder elsewhere is replaced
        checked = _read_checked(folder)
        if checked is None or not _is_of(checked, record):
            return None
        # earlier versions left them
        index = Beneath(root=folder).read("info/index.json", limit_bytes=METADATA_BYTES["index.json"])
        if _nulls(decode_json(index, dict[str, object])):
            return None
        unpacked = _look_at(folder)
        if unpacked.private and unpacked.look == checked.look and not store.hash_all:
            return unpacked
        _check(folder, record, store)
        if _unlisted_of(folder) != checked.unlisted:
            return None
        if unpacked.private:
            _write_checked(folder, msgspec.structs.replace(checked, look=unpacked.look))
    except (OSError, ValueError, ChannelError, FileAccessError, IntegrityError):  # it is fetched again
        return None
    return unpacked


def _is_of(checked: _Checked, record: RepoDataRecord) -> bool:
    """Whether it is the record's archive: by each hash that the record has, by its address if it has none."""
    pairs = [(record.sha256, checked.sha256), (record.md5, checked.md5)]
    known = [(expected.hex(), actual) for expected, actual in pairs if expected is not None]
    return all(expected == actual for expected, actual in known) if known else record.url == checked.address


def _read_checked(folder: Path) -> _Checked | None:
    """What we wrote beside a package's files; None if there is nothing that only this user or root can have written."""
    descriptor = os.open(folder / _RECORD, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as stream:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or not _is_private(status):
            return None
        content = stream.read(_RECORD_BYTES)
    with contextlib.suppress(ValueError):
        return decode_json(content, _Checked)
    return None


def _write_checked(folder: Path, checked: _Checked) -> None:
    write_bytes_atomically(folder / _RECORD, msgspec.json.encode(checked), durable=False)
    (folder / _RECORD).chmod(0o644)


def _is_private(status: os.stat_result) -> bool:
    """Whether only this user and root can write to a file; links cannot be written to."""
    others_write = status.st_mode & _OTHERS_WRITE and not stat.S_ISLNK(status.st_mode)
    return status.st_uid in {0, os.geteuid()} and not others_write


def _look_at(folder: Path) -> Unpacked:
    """How the files of an unpacked package look, without reading them."""
    lines, files, links, folders, private = [], set(), {}, set(), _is_private(folder.lstat())
    below = [""]
    while below:
        parent = below.pop()
        with os.scandir(f"{folder}/{parent}") as entries:
            for entry in entries:
                name, status = parent + entry.name, entry.stat(follow_symlinks=False)
                private = private and _is_private(status)
                if stat.S_ISDIR(status.st_mode):
                    folders.add(name)
                    below.append(f"{name}/")
                    continue
                files.add(name)
                if stat.S_ISLNK(status.st_mode):
                    links[name] = os.readlink(entry.path)  # noqa: PTH115 - as text
                if name != _RECORD:
                    times = f"{status.st_size} {status.st_mtime_ns} {status.st_ino}"
                    lines.append(f"{name}\0{status.st_mode:o} {times}")
    text = "\n".join(sorted(lines)).encode(errors="surrogateescape")
    look = hashlib.sha256(text).hexdigest()
    return Unpacked(look=look, private=private, files=frozenset(files), links=links, folders=frozenset(folders))


def _unlisted_of(folder: Path) -> str:
    """The hash of all that paths.json does not give a hash of: itself, the rest of info/, files of older packages."""
    files = Beneath(root=folder)
    try:
        rows = read_path_rows(files.read("info/paths.json", limit_bytes=METADATA_BYTES["paths.json"]), folder)
    except FileNotFoundError:
        rows = {}
    hashed = {path for path, row in rows.items() if row.sha256 is not None and row.path_type == "hardlink"} | {_RECORD}
    start = len(str(folder)) + 1
    digest = hashlib.sha256()
    for entry in sorted(walk_entries(folder), key=lambda entry: entry.path.split("/")):
        name = entry.path[start:]
        if name in hashed:
            continue
        if entry.is_symlink():
            target = os.fsencode(os.readlink(entry.path))  # noqa: PTH115 - as text
            digest.update(os.fsencode(f"{name}\0{len(target)}\0") + target)
            continue
        with files.opened(name) as stream:
            digest.update(os.fsencode(f"{name}\0{os.fstat(stream.fileno()).st_size}\0"))
            while chunk := stream.read(_CHUNK_BYTES):
                digest.update(chunk)
    return digest.hexdigest()


def check_unpacked(
    folder: Path,
    package: Path,
    *,
    stem: str,
    subdir: str,
    ours: Collection[str] = (),
    correction: Correction | None = None,
) -> None:
    """Raise IntegrityError, with ``package`` as the place, unless a folder holds exactly the package that it should.

    Its index.json must say that it is the package ``stem`` (name, version and build) of ``subdir``, if that is not
    empty. All files are hashed. ``ours`` are names of files in the folder that are not the package's. ``correction`` is
    as for checked_index.
    """

    def refuse(problem: PackageProblem) -> NoReturn:
        raise damaged_package(package, str(problem))

    names = sorted(name for name in os.listdir(folder) if name not in ours)  # noqa: PTH208 - names only
    with InfoFiles(all_files=False) as info:
        read_info(_members(folder, [_INFO]), package, info, refuse)
        check_metadata(info, package, correction)
        index = info_object(info, "index.json", package)
        name, version, build = index["name"], index["version"], index["build"]
        if f"{name}-{version}-{build}" != stem:
            raise damaged_package(package, f"its index.json says it is {name} {version} {build}")
        if subdir and (found_subdir := subdir_of(index)) not in {None, subdir}:
            raise damaged_package(package, f"its index.json says it is for {found_subdir}; it is offered for {subdir}")
        listed = PathsJson(path_rows(info, package), refuse)
        read_payload(_members(folder, [name for name in names if name != _INFO]), listed, None, refuse)


def _members(folder: Path, names: list[str]) -> Iterator[Member]:
    """The entries ``names`` of a folder, and everything below them, as the members of an archive."""
    waiting = names[::-1]
    while waiting:
        name = waiting.pop()
        path = f"{folder}/{name}"  # text and not a Path: there are tens of thousands
        status = os.lstat(path)
        header = tarfile.TarInfo(name)
        header.type = _KINDS.get(stat.S_IFMT(status.st_mode), tarfile.CHRTYPE)
        header.mode = stat.S_IMODE(status.st_mode)
        if header.issym():
            header.linkname = os.readlink(path)  # noqa: PTH115
        if not header.isreg():
            yield header, None
        else:
            header.size = status.st_size
            with io.FileIO(os.open(path, _FLAGS)) as stream:
                yield header, cast("IO[bytes]", stream)
        if header.isdir():
            waiting += [f"{name}/{below}" for below in sorted(os.listdir(path), reverse=True)]  # noqa: PTH208
