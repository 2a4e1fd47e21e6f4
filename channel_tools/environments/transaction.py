# SPDX-License-Identifier: BSD-3-Clause
"""Installs a set of packages into a prefix with py-rattler, and converts its errors to ours.

There is a marker file in ``conda-meta`` while packages are linked, with their names. If a prefix has it at the start,
an earlier run was interrupted: all packages are linked again, since py-rattler takes a package's record as proof of its
files, and the files of packages that have no record yet are removed. Other files are the user's, and stay.

py-rattler 0.28 links and removes whatever path a package or a record names, so both are checked before it is called:
packages by ``package_cache``, before they are in the cache, the records of the environment here.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import rattler
from rattler.exceptions import InstallerError, IoError
from rattler.package_cache import PackageCache, ValidationMode

from channel_tools.conda.link_scripts import ACTIONS, REMOVAL
from channel_tools.conda.package import PACKAGE_SUFFIX, split_file_name
from channel_tools.conda.specs import as_record, read_spec, spec_name
from channel_tools.environments.activation import check_environment, check_prefix_path
from channel_tools.environments.install_errors import install_error, panics_reported
from channel_tools.environments.linked_files import (
    check_links_together,
    check_recorded_paths,
    clashing_files,
    remove_unrecorded,
    scripts_not_run,
)
from channel_tools.environments.package_cache import PackageStore, cached_name, fetch_packages
from channel_tools.system.errors import (
    IntegrityError,
    UsageError,
)
from channel_tools.system.files import atomic_path, disk_full_reported, exclusive_lock, walk_entries

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from rattler.install import InstallerReporter
    from rattler.networking import Client

    from channel_tools.system.progress import Progress, Task

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
class InstallTarget:
    """An environment to install: its absolute prefix, the specs (as text, and parsed), and how to download packages."""

    prefix: Path
    specs: Mapping[str, rattler.MatchSpec]
    package_cache: Path
    subdir: str
    client: Client
    hash_cached: bool = False
    """Whether all files from the package cache are hashed, not only those of packages that may have changed."""
    locked: bool = False
    """Whether the packages are from a lock, not from channels' indexes."""

    @property
    def store(self) -> PackageStore:
        """The package cache, and how it is filled."""
        return PackageStore(
            folder=self.package_cache, client=self.client, locked=self.locked, hash_all=self.hash_cached
        )

    @property
    def is_windows(self) -> bool:
        """Whether the environment is one for Windows, which has other folders."""
        return self.subdir.startswith("win-")


def missing_specs(specs: Iterable[str], installed: Mapping[str, str]) -> list[str]:
    """The MatchSpecs that no package meets which is ``installed``, by name as ``VERSION BUILD``."""
    missing = []
    for spec in specs:
        name = spec_name(spec)
        version, _space, build = installed.get(name, "").partition(" ")
        if not build or not read_spec(spec).matches(as_record(name, version, build)):
            missing.append(spec)
    return missing


def installed_builds(prefix: Path) -> dict[str, str]:
    """The packages of an environment by name, each as ``VERSION BUILD``, from the names of its records."""
    files = (path.name.removesuffix(".json") for path in sorted((prefix / _META).glob("*-*-*.json")))
    records = (split_file_name(stem + PACKAGE_SUFFIX) for stem in files)
    return {record[0]: f"{record[1]} {record[2]}" for record in records if record is not None}


def installed_environment(prefix: Path) -> EnvironmentResult:
    """An environment as it is, whoever installed it.

    Raises as check_environment does, and IntegrityError for a record that cannot be read.
    """
    started = time.monotonic()
    check_environment(prefix)
    records = [_installed_package(record) for record in _installed_records(prefix, drop_unreadable=False)]
    return EnvironmentResult(
        prefix=prefix.absolute(),
        records=tuple(sorted(records, key=lambda package: package.name)),
        changed=0,
        seconds=time.monotonic() - started,
        size_bytes=_size_of(prefix),
    )


def installed_addresses(prefix: Path) -> dict[str, str]:
    """The addresses of an environment's packages by their names, without credentials.

    Raises IntegrityError for a record that cannot be read.
    """
    return {record.name.normalized: record.url for record in _installed_records(prefix, drop_unreadable=False)}


@contextlib.contextmanager
def usable_target(target: InstallTarget) -> Iterator[None]:
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


async def apply_solution(
    target: InstallTarget, solution: list[rattler.RepoDataRecord], *, started: float, progress: Progress
) -> EnvironmentResult:
    """Make the prefix have exactly ``solution``; ``started`` is the monotonic time of the start.

    Raises UsageError (another program's environment would lose packages), ChannelError (the prefix is in use by another
    run), IntegrityError (a damaged package, by name), NetworkError and DiskFullError; the same call afterwards
    completes the environment.
    """
    _check_removals(target.prefix, {record.name.normalized for record in solution}, progress)
    with exclusive_lock(target.prefix / _META / _LOCK, resource=f"the environment {target.prefix}"):
        changed = await _bring_to(solution, target, progress)
    records = tuple(sorted((_installed_package(record) for record in solution), key=lambda package: package.name))
    return EnvironmentResult(
        prefix=target.prefix,
        records=records,
        changed=changed,
        seconds=time.monotonic() - started,
        size_bytes=_size_of(target.prefix),
    )


def _check_prefix(prefix: Path) -> None:
    if not prefix.exists() and not prefix.is_symlink():
        return
    if not prefix.is_dir():
        raise UsageError(f"{prefix}: is a file; expected a new folder or an environment", hint="choose another prefix")
    if (prefix / _META).is_dir() or not any(prefix.iterdir()):
        return
    message = f"{prefix}: is a folder with other content; expected a new folder or an environment (one with {_META}/)"
    raise UsageError(message, hint="choose another prefix, or empty the folder")


def _check_removals(prefix: Path, names: set[str], progress: Progress) -> None:
    """Raise UsageError for removals from an environment that another program made; note removals from others."""
    removed = sorted(installed_builds(prefix).keys() - names)
    if not removed:
        return
    listed = ", ".join(removed[:_SHOWN]) + (f" and {len(removed) - _SHOWN} more" if len(removed) > _SHOWN else "")
    if not (prefix / _META / _LOCK).exists():
        message = f"{prefix}: is an environment of another program, which would lose {listed}"
        raise UsageError(message, hint="choose another prefix; only environments made by this command are changed")
    progress.note(f"{prefix}: removes packages that are not part of it: {listed}")


async def _bring_to(solution: list[rattler.RepoDataRecord], target: InstallTarget, progress: Progress) -> int:
    """Make the prefix have exactly ``solution``; returns the number of packages that had to change."""
    marker = target.prefix / _META / _MARKER
    unfinished = marker.read_text(encoding="utf-8").splitlines() if marker.is_file() else None
    installed = _installed_records(target.prefix, drop_unreadable=unfinished is not None)
    present = {_identity(record) for record in installed}
    identities = {_identity(record) for record in solution}
    if unfinished is None and present == identities:
        return 0
    relinked = set() if unfinished is None else {record.name.normalized for record in solution}
    fresh = [record for record in solution if _identity(record) not in present or record.name.normalized in relinked]
    check_recorded_paths(target.prefix, installed)
    unpacked = await fetch_packages(fresh, target.store, name=target.prefix.name, progress=progress)
    check_links_together(
        target.prefix, [record for record in installed if _identity(record) in identities], fresh, unpacked
    )
    if unfinished:
        recorded = {cached_name(record) for record in installed}
        remove_unrecorded(target.prefix, [name for name in unfinished if name not in recorded], target.package_cache)
    leaving = {record.name.normalized for record in installed if _identity(record) not in identities}
    _note(scripts_not_run(target.prefix, leaving, REMOVAL, windows=target.is_windows), progress)
    marker.write_text("".join(f"{cached_name(record)}\n" for record in fresh), encoding="utf-8")
    await _install(solution, target, installed=installed, relinked=relinked, progress=progress)
    _record_requested_specs(target)
    marker.unlink()
    _note(clashing_files(target.prefix), progress)
    linked = {record.name.normalized for record in fresh}
    _note(scripts_not_run(target.prefix, linked, ACTIONS, windows=target.is_windows), progress)
    return len(fresh) + len({name for name, *_ in present} - {name for name, *_ in identities})


def _note(words: str, progress: Progress) -> None:
    if words:
        progress.note(words)


async def _install(
    solution: list[rattler.RepoDataRecord],
    target: InstallTarget,
    *,
    installed: list[rattler.PrefixRecord],
    relinked: set[str],
    progress: Progress,
) -> None:
    """Link ``solution`` into the prefix, whose packages are ``installed``. Raises as install_error says."""
    # the cache's content was checked by fetch_packages
    cache = PackageCache.new_layered([target.package_cache], validation_mode=ValidationMode.skip())
    with (
        panics_reported(str(target.prefix)),
        progress.task(f"install {target.prefix.name}", total=len(solution)) as task,
    ):
        try:
            await rattler.install(
                records=solution,
                target_prefix=target.prefix,
                package_cache=cache,
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


def _record_requested_specs(target: InstallTarget) -> None:
    """Record the requested specs in conda-meta: py-rattler 0.28's install() fails with its ``requested_specs``.

    All records are read, also those that are written here: py-rattler 0.28 reports no full disk when it writes the last
    bytes of one. Raises as install_error says for one that is cut off.
    """
    requested: dict[str, list[str]] = {}
    for spec, parsed in target.specs.items():
        if parsed.name is not None:
            requested.setdefault(str(parsed.name.normalized), []).append(spec)
    try:
        for path in sorted((target.prefix / _META).glob("*.json")):
            record = rattler.PrefixRecord.from_path(path)
            specs = requested.get(record.name.normalized, [])
            if record.requested_specs != specs:
                record.requested_specs = specs
                with atomic_path(path) as temporary:
                    record.write_to_path(temporary, pretty=True)
                    rattler.PrefixRecord.from_path(temporary)
    except IoError as err:
        raise install_error(err, prefix=target.prefix, package_cache=target.package_cache) from err


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
