# SPDX-License-Identifier: BSD-3-Clause
"""Installs a set of packages into a prefix with py-rattler, and converts its errors to ours.

There is a marker file in ``conda-meta`` while packages are linked, with their names. If a prefix has it at the start,
an earlier run was interrupted: all packages are linked again, since py-rattler takes a package's record as proof of its
files, and the files of packages that have no record yet are removed. Other files are the user's, and stay.

py-rattler has one error class per stage, with the cause only in the text, so the text is parsed: the phrases below are
those of py-rattler 0.28 (tests cause each with real channels). An unknown text is kept in a general error.

py-rattler 0.28 compares an archive's sha256 only when it downloads it; from a folder, it unpacks whatever file has the
name. Our channels are mostly read from folders, so the comparison is made here.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import rattler
from rattler.exceptions import InstallerError, IoError
from rattler.package_cache import PackageCache, ValidationMode

from channel_tools.conda.addresses import local_path
from channel_tools.conda.link_scripts import ACTIONS, REMOVAL
from channel_tools.conda.package import PACKAGE_SUFFIX, split_file_name
from channel_tools.conda.solving import UNREACHABLE, one_line
from channel_tools.environments.activation import check_prefix_path
from channel_tools.environments.linked_files import (
    cached_name,
    clashing_files,
    has_cached_file_of_other_size,
    remove_unrecorded,
    scripts_not_run,
)
from channel_tools.system.errors import (
    ChannelError,
    ChannelToolsError,
    DiskFullError,
    IntegrityError,
    NetworkError,
    UsageError,
)
from channel_tools.system.files import atomic_path, disk_full_reported, exclusive_lock, sha256_of_file, walk_entries

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from rattler import RepoDataRecord
    from rattler.install import InstallerReporter
    from rattler.networking import Client

    from channel_tools.system.progress import Progress, Task

_DISK_FULL = re.compile(r"os error (28|122)\b")
_DENIED = re.compile(r"os error (1|13|30)\b")
_DAMAGED = re.compile(
    r"checksum|hash mismatch|unexpected (eof|end of file)|failed to unpack|invalid (zip|gzip)|archive|"
    r"could not find (the )?(end of central directory|central directory)|zstd|paths\.json|index\.json",
    re.IGNORECASE,
)
_OTHER_BYTES = re.compile(r"hash mismatch when extracting (\S+) to .*: expected ([0-9a-f]{64}), got ([0-9a-f]{64})")
_PACKAGE = re.compile(r"failed to (?:fetch|link|unlink) ([^\s:]+)")


def install_error(err: Exception, *, prefix: Path, package_cache: Path, locked: bool = False) -> ChannelToolsError:
    """The error for a package that could not be downloaded, unpacked or linked; ``locked``: it is from a lock."""
    reason = one_line(err)
    found = _PACKAGE.search(reason)
    package = found.group(1) if found else "a package"
    again = "run the same command again: complete packages are kept"
    if _DISK_FULL.search(reason):
        message = f"{package}: no space left on the device of {package_cache} or {prefix}: {reason}"
        return DiskFullError(message, hint=f"free space there, then {again}")
    if _DENIED.search(reason):
        message = f"{prefix}: {package} cannot be installed there: {reason}"
        return UsageError(message, hint="choose a prefix and a cache that you can write to")
    if UNREACHABLE.search(reason):
        message = f"{package}: cannot be downloaded: {reason}"
        return NetworkError(message, hint=f"check the network and the channel's address, then {again}")
    if locked and (other := _OTHER_BYTES.search(reason)):
        address, expected, got = other.groups()
        return other_package_error(package, f"{address} has sha256 {got}, the lock says {expected}")
    if _DAMAGED.search(reason):
        return damaged_package_error(package, reason)
    return ChannelError(f"{package}: cannot be installed into {prefix}: {reason}", hint=again)


def damaged_package_error(package: str, reason: str) -> IntegrityError:
    """The error for a package whose bytes do not match the channel's index, or whose metadata cannot be read."""
    message = f"{package}: cannot be used: {reason}"
    hint = (
        "if the channel's file is the intended one, index the channel again (channel_tools channel index for one of "
        "ours); else build or mirror it again"
    )
    return IntegrityError(message, hint=hint)


def other_package_error(package: str, reason: str) -> IntegrityError:
    """The error for a locked package that does not exist at its address, or has other bytes there."""
    message = f"{package}: cannot be installed as locked: {reason}"
    hint = (
        "give --channel with a channel that has the locked file, or restore the file at the lock's address; "
        "to install the current package, lock again: channel_tools pins"
    )
    return IntegrityError(message, hint=hint)


_THREADS = 4


def check_local_archives(records: Iterable[RepoDataRecord], *, locked: bool) -> None:
    """Raise IntegrityError for the first record (by file name) whose local archive is missing or has other bytes.

    ``locked``: the records are from a lock, else from a channel's index.
    """
    local = sorted((record for record in records if local_path(record.url)), key=lambda record: record.file_name)
    says, error = ("the lock", other_package_error) if locked else ("the channel's index", damaged_package_error)
    with ThreadPoolExecutor(_THREADS) as threads:
        for record, fault in zip(local, threads.map(lambda record: _fault(record, says), local), strict=True):
            if fault is not None:
                raise error(record.file_name, fault)


def _fault(record: RepoDataRecord, says: str) -> str | None:
    """What is wrong with the local archive of a record, None if nothing; ``says`` is where the record is from."""
    path = local_path(record.url)
    if path is None:
        return None
    if not path.is_file():
        return f"{says} names it, but {path} does not exist"
    size = path.stat().st_size
    if record.sha256 is None:
        return None if record.size in {None, size} else f"{path} has {size} bytes, {says} says {record.size}"
    found = sha256_of_file(path)
    return None if found == record.sha256.hex() else f"{path} has sha256 {found}, {says} says {record.sha256.hex()}"


_SHOWN = 5
_META = "conda-meta"
_LOCK = ".channel_tools.lock"
_MARKER = ".channel_tools-unfinished"
_STAT_BLOCK_BYTES = 512


@dataclass(frozen=True, kw_only=True, slots=True)
class InstalledPackage:
    """One package of an environment; ``sha256`` is empty if the channel's index names none."""

    name: str
    version: str
    build: str
    subdir: str
    channel: str
    file_name: str
    sha256: str


@dataclass(frozen=True, kw_only=True, slots=True)
class EnvironmentResult:
    """An environment after the installation.

    ``records`` are sorted by name, ``changed`` counts packages linked, replaced or removed (0 if it was up to date),
    ``size_bytes`` is the size of the prefix's files, with hard links to the package cache counted once.
    """

    prefix: Path
    records: tuple[InstalledPackage, ...]
    changed: int
    seconds: float
    size_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """An environment to install: its absolute prefix, the specs (as text, and parsed), and how to download packages."""

    prefix: Path
    specs: Mapping[str, rattler.MatchSpec]
    package_cache: Path
    subdir: str
    client: Client
    hash_cached: bool = False
    """Whether files of the package cache are hashed before they are linked; otherwise only their sizes are checked."""
    locked: bool = False
    """Whether the packages are from a lock, not from channels' indexes."""

    @property
    def is_windows(self) -> bool:
        """Whether the environment is one for Windows, which has other folders."""
        return self.subdir.startswith("win-")


def installed_builds(prefix: Path) -> dict[str, str]:
    """The packages of an environment by name, each as ``VERSION BUILD``, from the names of its records."""
    files = (path.name.removesuffix(".json") for path in sorted((prefix / _META).glob("*-*-*.json")))
    records = (split_file_name(stem + PACKAGE_SUFFIX) for stem in files)
    return {record[0]: f"{record[1]} {record[2]}" for record in records if record is not None}


@contextlib.contextmanager
def usable_target(target: Target) -> Iterator[None]:
    """Check that the prefix is new, empty or an environment, at a path at which one can work.

    Raises UsageError, also if access is denied.
    """
    check_prefix_path(target.prefix)
    _check_prefix(target.prefix)
    try:
        with disk_full_reported(target.prefix):
            yield
    except (PermissionError, NotADirectoryError, FileExistsError) as err:
        message = f"{err.filename}: {err.strerror}; the prefix and the package cache must be folders you can write to"
        raise UsageError(message, hint="choose another prefix or cache") from err


def apply_solution(
    target: Target, solution: list[rattler.RepoDataRecord], *, started: float, progress: Progress
) -> EnvironmentResult:
    """Make the prefix have exactly ``solution``; ``started`` is the monotonic time of the start.

    Raises UsageError (another program's environment would lose packages), ChannelError (the prefix is in use by another
    run), IntegrityError (a damaged package, by name), NetworkError and DiskFullError; the same call afterwards
    completes the environment.
    """
    _check_removals(target.prefix, {record.name.normalized for record in solution}, progress)
    with exclusive_lock(target.prefix / _META / _LOCK, what=f"the environment {target.prefix}"):
        changed = _bring_to(solution, target, progress)
    records = tuple(sorted((_installed_package(record) for record in solution), key=lambda package: package.name))
    return EnvironmentResult(
        prefix=target.prefix,
        records=records,
        changed=changed,
        seconds=time.monotonic() - started,
        size_bytes=_size_of(target.prefix),
    )


async def uncached(records: Sequence[rattler.RepoDataRecord], package_cache: Path) -> list[rattler.RepoDataRecord]:
    """Those of ``records`` whose bytes are not in the package cache."""
    package_cache.mkdir(parents=True, exist_ok=True)
    index = await PackageCache(package_cache).index()
    return [record for record in records if not index.contains_record(record)]


def _check_prefix(prefix: Path) -> None:
    if not prefix.exists() and not prefix.is_symlink():
        return
    if not prefix.is_dir():
        raise UsageError(f"{prefix}: is a file; expected a new folder or an environment", hint="choose another prefix")
    if (prefix / _META).is_dir() or not any(prefix.iterdir()):
        return
    message = f"{prefix}: is a folder with other content; expected a new folder or an environment (one with {_META}/)"
    raise UsageError(message, hint="choose another prefix, or empty the folder")


def _check_removals(prefix: Path, wanted: set[str], progress: Progress) -> None:
    """Raise UsageError for removals from an environment that another program made; note removals from others."""
    removed = sorted(installed_builds(prefix).keys() - wanted)
    if not removed:
        return
    shown = ", ".join(removed[:_SHOWN]) + (f" and {len(removed) - _SHOWN} more" if len(removed) > _SHOWN else "")
    if not (prefix / _META / _LOCK).exists():
        message = f"{prefix}: is an environment of another program, which would lose {shown}"
        raise UsageError(message, hint="choose another prefix; only environments made by this command are changed")
    progress.note(f"{prefix}: removes packages that are not part of it: {shown}")


def _bring_to(solution: list[rattler.RepoDataRecord], target: Target, progress: Progress) -> int:
    """Make the prefix have exactly ``solution``; returns the number of packages that had to change."""
    marker = target.prefix / _META / _MARKER
    unfinished = marker.read_text(encoding="utf-8").splitlines() if marker.is_file() else None
    installed = _installed_records(target.prefix, drop_unreadable=unfinished is not None)
    present = {_identity(record) for record in installed}
    wanted = {_identity(record) for record in solution}
    if unfinished is None and present == wanted:
        return 0
    relinked = set() if unfinished is None else {record.name.normalized for record in solution}
    fresh = [record for record in solution if _identity(record) not in present or record.name.normalized in relinked]
    unchecked = fresh if target.hash_cached else asyncio.run(uncached(fresh, target.package_cache))
    check_local_archives(unchecked, locked=target.locked)
    if unfinished:
        recorded = {cached_name(record) for record in installed}
        remove_unrecorded(target.prefix, [name for name in unfinished if name not in recorded], target.package_cache)
    leaving = {record.name.normalized for record in installed if _identity(record) not in wanted}
    _note(scripts_not_run(target.prefix, leaving, REMOVAL, windows=target.is_windows), progress)
    marker.write_text("".join(f"{cached_name(record)}\n" for record in fresh), encoding="utf-8")
    asyncio.run(install_records(solution, target, installed=installed, relinked=relinked, progress=progress))
    _record_requested_specs(target)
    marker.unlink()
    _note(clashing_files(target.prefix), progress)
    linked = {record.name.normalized for record in fresh}
    _note(scripts_not_run(target.prefix, linked, ACTIONS, windows=target.is_windows), progress)
    return len(fresh) + len({name for name, *_ in present} - {name for name, *_ in wanted})


def _note(words: str, progress: Progress) -> None:
    if words:
        progress.note(words)


async def install_records(
    solution: list[rattler.RepoDataRecord],
    target: Target,
    *,
    installed: list[rattler.PrefixRecord],
    relinked: set[str],
    progress: Progress,
    verb: str = "install",
) -> None:
    """Link ``solution`` into the prefix, whose packages are ``installed``. Raises as install_error says."""
    target.package_cache.mkdir(parents=True, exist_ok=True)
    # packages that fail are downloaded again: scratch folders are purged file by file, and files of the cache are
    # shared with all environments on its file system, in which someone may have edited one
    hashed = target.hash_cached or has_cached_file_of_other_size(solution, target.package_cache)
    validation = ValidationMode.full() if hashed else ValidationMode.fast()
    with progress.task(f"{verb} {target.prefix.name}", total=len(solution)) as task:
        try:
            await rattler.install(
                records=solution,
                target_prefix=target.prefix,
                package_cache=PackageCache.new_layered([target.package_cache], validation_mode=validation),
                installed_packages=installed,
                reinstall_packages=relinked,
                platform=rattler.Subdir(target.subdir),
                execute_link_scripts=False,
                show_progress=False,
                client=target.client,
                reporter=cast("InstallerReporter", TransactionReporter(task)),
            )
        except InstallerError as err:
            prefix, package_cache = target.prefix, target.package_cache
            raise install_error(err, prefix=prefix, package_cache=package_cache, locked=target.locked) from err
        except Exception as err:
            if type(err).__name__ != "RustPanic":  # its module cannot be imported
                raise
            message = f"{target.prefix}: rattler failed on these packages: {err}"
            hint = "one of them is not the package that its file name says; rattler's own message is above"
            raise IntegrityError(message, hint=hint) from err


def _installed_records(prefix: Path, *, drop_unreadable: bool) -> list[rattler.PrefixRecord]:
    records: list[rattler.PrefixRecord] = []
    for path in sorted((prefix / _META).glob("*.json")):
        try:
            records.append(rattler.PrefixRecord.from_path(path))
        except (OSError, IoError) as err:
            if not drop_unreadable:
                message = f"{path}: the record of an installed package cannot be read: {err}"
                raise IntegrityError(message, hint=f"delete {prefix} and create the environment again") from None
            path.unlink()
    return records


def _identity(record: rattler.RepoDataRecord) -> tuple[str, str, str, str]:
    sha256 = record.sha256.hex() if record.sha256 else record.url
    return record.name.normalized, str(record.version), str(record.build), sha256


def _record_requested_specs(target: Target) -> None:
    """Record the requested specs in conda-meta: py-rattler 0.28's install() fails with its ``requested_specs``."""
    requested: dict[str, list[str]] = {}
    for spec, parsed in target.specs.items():
        if parsed.name is not None:
            requested.setdefault(str(parsed.name.normalized), []).append(spec)
    for path in sorted((target.prefix / _META).glob("*.json")):
        record = rattler.PrefixRecord.from_path(path)
        specs = requested.get(record.name.normalized, [])
        if record.requested_specs != specs:
            record.requested_specs = specs
            with atomic_path(path) as temporary:
                record.write_to_path(temporary, pretty=True)


def _installed_package(record: rattler.RepoDataRecord) -> InstalledPackage:
    return InstalledPackage(
        name=record.name.normalized,
        version=str(record.version),
        build=str(record.build),
        subdir=record.subdir,
        channel=record.channel,
        file_name=record.file_name,
        sha256=record.sha256.hex() if record.sha256 else "",
    )


def _size_of(prefix: Path) -> int:
    """The bytes on disk below ``prefix``, counting each inode once."""
    blocks: dict[int, int] = {}
    for entry in walk_entries(prefix):
        status = entry.stat(follow_symlinks=False)
        blocks[status.st_ino] = status.st_blocks
    return _STAT_BLOCK_BYTES * sum(blocks.values())


class TransactionReporter:
    """Advances ``task`` by one for every package done; called from the installer's threads.

    It has only the callbacks that are needed; py-rattler ignores missing ones.
    """

    def __init__(self, task: Task) -> None:
        self._task = task

    def on_populate_cache_start(self, operation: int, package_name: str) -> int:
        """Called when the unpacking of a package starts."""
        del operation
        self._task.advance(0, detail=package_name)
        return 0

    def on_link_start(self, operation: int, package_name: str) -> int:
        """Called when the linking of a package starts."""
        del operation
        self._task.advance(0, detail=package_name)
        return 0

    def on_transaction_operation_complete(self, operation: int) -> None:
        """Called when a package is done."""
        del operation
        self._task.advance()
