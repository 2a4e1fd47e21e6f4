# SPDX-License-Identifier: BSD-3-Clause
"""Installs a set of packages into a prefix with py-rattler, and converts its errors to ours.

There is a marker file in ``conda-meta`` while packages are linked, with their names and what is asked for. If a prefix
has it at the start, an earlier run was interrupted: all packages are linked again, since py-rattler takes a package's
record as proof of its files, and the files of packages that have no record yet are removed. Other files are the
user's, and stay.

py-rattler 0.28 links and removes whatever path a package or a record names, so both are checked before it is called:
packages by ``package_cache``, before they are in the cache, the records of the environment here.
"""

from __future__ import annotations

import contextlib
import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

import rattler
from rattler.exceptions import InstallerError, IoError
from rattler.package_cache import PackageCache, ValidationMode

from channel_tools.conda.link_scripts import ACTIONS, REMOVAL
from channel_tools.conda.package import NOARCH, PACKAGE_SUFFIX, split_file_name
from channel_tools.conda.platforms import current_platform
from channel_tools.conda.specs import as_record, read_spec, spec_name
from channel_tools.environments.activation import check_environment, check_prefix_path
from channel_tools.environments.history import append_revision
from channel_tools.environments.install_errors import install_error, panics_reported
from channel_tools.environments.linked_files import (
    check_packages_together,
    check_recorded_paths,
    clashing_files,
    remove_unrecorded,
    scripts_not_run,
)
from channel_tools.environments.package_cache import PackageStore, cached_name, fetch_packages
from channel_tools.environments.pip_packages import find_distributions, write_constraints
from channel_tools.environments.state import META, Unfinished, channel_of, identity, mark_unfinished, read_state, unmark
from channel_tools.pins.lock import Lock, PlatformLock, in_installation_order, locked_package
from channel_tools.system.errors import ChannelError, IntegrityError, UsageError
from channel_tools.system.files import absolute_path, atomic_path, disk_full_reported, new_file_mode, walk_entries
from channel_tools.system.locks import exclusive_lock

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from rattler import RepoDataRecord
    from rattler.install import InstallerReporter
    from rattler.networking import Client

    from channel_tools.environments.history import Requested
    from channel_tools.environments.state import EnvironmentState, Identity
    from channel_tools.system.progress import Progress, Task

_LOCK = ".channel_tools.lock"
_STAT_BLOCK_BYTES = 512


@dataclass(frozen=True, kw_only=True, slots=True)
class InstalledPackage:
    """One package of an environment; what is not recorded is empty: ``sha256`` if the channel's index names none."""

    name: str
    version: str
    build: str
    subdir: str = ""
    channel: str = ""
    file_name: str = ""
    sha256: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class PackageChanges:
    """What a run does to the packages of an environment, each sorted by name; ``replaced`` are before and after."""

    added: tuple[InstalledPackage, ...] = ()
    removed: tuple[InstalledPackage, ...] = ()
    replaced: tuple[tuple[InstalledPackage, InstalledPackage], ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether the packages stay as they are."""
        return not (self.added or self.removed or self.replaced)

    @property
    def takes_away(self) -> bool:
        """Whether a package that is there will not be."""
        return bool(self.removed or self.replaced)


Announce = Callable[[PackageChanges], bool]
"""Gets the change before anything is downloaded or changed; nothing is done if it returns False."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EnvironmentResult:
    """An environment after the installation.

    ``records`` are sorted by name, ``changed`` counts packages linked, replaced or removed (0 if it was up to date),
    ``size_bytes`` is the size of the prefix's files, with hard links to the package cache counted once. ``change`` says
    which packages came and went. If nothing was to be done, ``records`` and ``change`` are those that would be.
    ``left_out`` are files that are not there because another package has others of the same name, ``FILE of PACKAGE``.
    """

    prefix: Path
    records: tuple[InstalledPackage, ...]
    changed: int
    seconds: float
    size_bytes: int
    change: PackageChanges = PackageChanges()
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class InstallTarget:
    """An environment to install: its absolute prefix, what it is there for, and how to download packages."""

    prefix: Path
    requested: Requested
    """The MatchSpecs that are recorded, those of before and the new ones."""
    command: Sequence[str]
    """A command that does the same, for the environment's history."""
    package_cache: Path
    subdir: str
    client: Client
    hash_cached: bool = False
    """Whether all files from the package cache are hashed, not only those of packages that may have changed."""
    locked: bool = False
    """Whether the packages are from a lock, not from channels' indexes."""
    look_up: Callable[[RepoDataRecord], Mapping[str, object] | None] = lambda _record: None
    """As PackageStore has it."""

    @property
    def store(self) -> PackageStore:
        """The package cache, and how it is filled."""
        return PackageStore(
            folder=self.package_cache,
            client=self.client,
            locked=self.locked,
            hash_all=self.hash_cached,
            look_up=self.look_up,
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
    files = (path.name.removesuffix(".json") for path in sorted((prefix / META).glob("*-*-*.json")))
    records = (split_file_name(stem + PACKAGE_SUFFIX) for stem in files)
    return {record[0]: f"{record[1]} {record[2]}" for record in records if record is not None}


def installed_environment(prefix: Path) -> EnvironmentResult:
    """An environment as it is, whoever installed it.

    Raises as check_environment does, and IntegrityError for a record that cannot be read.
    """
    started = time.monotonic()
    check_environment(prefix)
    return unchanged(read_state(absolute_path(prefix)), started=started)


@dataclass(frozen=True, kw_only=True, slots=True)
class ListedEnvironment:
    """The packages of an environment, with pip's, whose channel is ``pypi``, and what was asked for."""

    prefix: Path
    packages: tuple[InstalledPackage, ...]
    requested: Requested


def listed_environment(prefix: Path) -> ListedEnvironment:
    """An environment, whoever made it, in order of name. Raises as installed_environment does."""
    prefix = absolute_path(prefix)
    check_environment(prefix)
    state = read_state(prefix)
    of_pip = (
        InstalledPackage(
            name=row.name, version=row.version, build="pypi_0", subdir="", channel="pypi", file_name="", sha256=""
        )
        for row in find_distributions(prefix, state.records)
        if row.is_of_pip
    )
    packages = sorted((*_packages(state.records), *of_pip), key=lambda package: package.name.lower())
    return ListedEnvironment(prefix=prefix, packages=tuple(packages), requested=state.requested)


def unchanged(state: EnvironmentState, *, started: float) -> EnvironmentResult:
    """An environment in which nothing was changed; ``started`` is the monotonic time of the start."""
    return EnvironmentResult(
        prefix=state.prefix,
        records=_packages(state.records),
        changed=0,
        seconds=time.monotonic() - started,
        size_bytes=_size_of(state.prefix),
    )


def installed_addresses(prefix: Path) -> dict[str, str]:
    """The addresses of an environment's packages by their names, without credentials.

    Raises IntegrityError for a record that cannot be read.
    """
    return {record.name.normalized: record.url for record in read_state(prefix).records}


def installed_lock(prefix: Path, virtual_packages: Iterable[rattler.GenericVirtualPackage]) -> Lock:
    """The packages of an environment, whoever installed them, as a lock for a machine with these virtual packages.

    Its specs are what was asked for. Raises as read_state, UsageError for what is no environment or was left
    incomplete, and IntegrityError for a package whose record has no sha256 or size.
    """
    prefix = absolute_path(prefix)
    check_environment(prefix)
    state = read_state(prefix)
    check_complete(state)
    records = in_installation_order(state.records)
    packages = (replace(locked_package(record), channel=channel_of(record)) for record in records)
    subdirs = {record.subdir for record in records} - {NOARCH}
    platform = PlatformLock(
        platform=next(iter(sorted(subdirs)), current_platform()),
        virtual_packages=tuple(sorted(str(package) for package in virtual_packages)),
        packages=tuple(packages),
    )
    specs = tuple(spec for _, texts in sorted(state.requested.items()) for spec in texts)
    return Lock(stack=prefix.name, specs=specs, channels=state.channels, platforms=(platform,))


def check_complete(state: EnvironmentState) -> None:
    """Raise UsageError for an environment that an interrupted run left incomplete."""
    if state.unfinished is not None:
        message = f"{state.prefix}: is an environment that an interrupted run left incomplete"
        raise UsageError(message, hint=f"complete it: channel_tools env update {shlex.quote(str(state.prefix))}")


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
    target: InstallTarget,
    solution: list[rattler.RepoDataRecord],
    state: EnvironmentState,
    *,
    started: float,
    progress: Progress,
    announce: Announce | None = None,
) -> EnvironmentResult:
    """Make the prefix, which is in this ``state``, have exactly ``solution``, and record what it was asked for.

    ``started`` is the monotonic time of the start. Raises ChannelError (the prefix is in use by another run, or was
    changed by one), IntegrityError (a damaged package, by name), NetworkError and DiskFullError; the same call
    afterwards completes the environment.
    """
    before = {identity(record): record for record in state.records}
    after = {identity(record): record for record in solution}
    going = {record.name.normalized: record for key, record in before.items() if key not in after}
    coming = {record.name.normalized: record for key, record in after.items() if key not in before}
    both = sorted(going.keys() & coming.keys())
    change = PackageChanges(
        added=_packages(record for name, record in coming.items() if name not in going),
        removed=_packages(record for name, record in going.items() if name not in coming),
        replaced=tuple((_installed_package(going[name]), _installed_package(coming[name])) for name in both),
    )
    changed, is_new = 0, not (target.prefix / META).exists()
    if announce is None or change.is_empty or announce(change):
        with exclusive_lock(target.prefix / META / _LOCK, resource=f"the environment {target.prefix}"):
            if not read_state(target.prefix).is_as(state):
                message = f"{target.prefix}: was changed by another run while this one found out what to install"
                raise ChannelError(message, hint="run the same command again")
            try:
                changed = await _bring_to(solution, target, state, progress)
            except (IntegrityError, UsageError):
                if is_new:
                    # a refused environment that is new leaves nothing
                    for name in (_LOCK, f"{_LOCK}.owner"):
                        (target.prefix / META / name).unlink(missing_ok=True)
                    with contextlib.suppress(OSError):  # there is something else
                        (target.prefix / META).rmdir()
                        target.prefix.rmdir()
                raise
    return EnvironmentResult(
        prefix=target.prefix,
        records=_packages(solution),
        changed=changed,
        seconds=time.monotonic() - started,
        size_bytes=_size_of(target.prefix),
        change=change,
        left_out=clashing_files(target.prefix) if changed else (),
    )


def _check_prefix(prefix: Path) -> None:
    if not prefix.exists() and not prefix.is_symlink():
        return
    if not prefix.is_dir():
        raise UsageError(f"{prefix}: is a file; expected a new folder or an environment", hint="choose another prefix")
    if (prefix / META).is_dir() or not any(prefix.iterdir()):
        return
    message = f"{prefix}: is a folder with other content; expected a new folder or an environment (one with {META}/)"
    raise UsageError(message, hint="choose another prefix, or empty the folder")


async def _bring_to(
    solution: list[rattler.RepoDataRecord], target: InstallTarget, state: EnvironmentState, progress: Progress
) -> int:
    """Make the prefix have exactly ``solution``; returns the number of packages that had to change."""
    unfinished, installed = state.unfinished, list(state.records)
    present = state.identities
    identities = {identity(record) for record in solution}
    if unfinished is None and present == identities:
        _record(target, solution)
        return 0
    if unfinished is None:
        # if Python's minor version changes, rattler links its modules again without being told to, but
        # from packages that were not checked here
        before, after = (
            [str(record.version).split(".")[:2] for record in records if record.name.normalized == "python"]
            for records in (installed, solution)
        )
        relinked = set() if before == after else {record.name.normalized for record in solution if record.noarch.python}
    else:
        relinked = {record.name.normalized for record in solution}
    fresh = [record for record in solution if identity(record) not in present or record.name.normalized in relinked]
    check_recorded_paths(target.prefix, installed)
    unpacked = await fetch_packages(fresh, target.store, name=target.prefix.name, progress=progress)
    paths = {str(row.relative_path) for record in installed for row in record.paths_data.paths}
    check_packages_together(
        target.prefix,
        [record for record in installed if identity(record) in identities],
        fresh,
        unpacked,
        of_packages=paths if unfinished is None else None,
    )
    for path in state.damaged:
        path.unlink()
    if unfinished is not None:
        recorded = {cached_name(record) for record in installed}
        remove_unrecorded(
            target.prefix, [name for name in unfinished.packages if name not in recorded], target.package_cache
        )
    leaving = {record.name.normalized for record in installed if identity(record) not in identities}
    _note(scripts_not_run(target.prefix, leaving, REMOVAL, windows=target.is_windows), progress)
    linking = tuple(cached_name(record) for record in fresh)
    mark_unfinished(target.prefix, Unfinished(packages=linking, requested=target.requested))
    await _install(solution, target, installed=installed, relinked=relinked, progress=progress)
    _record(target, solution)
    unmark(target.prefix)
    linked = {record.name.normalized for record in fresh}
    _note(scripts_not_run(target.prefix, linked, ACTIONS, windows=target.is_windows), progress)
    return len(fresh) + len(_names(present) - _names(identities))


def _names(identities: Iterable[Identity]) -> set[str]:
    return {name for name, *_ in identities}


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


def _record(target: InstallTarget, solution: Iterable[rattler.RepoDataRecord]) -> None:
    """Record in conda-meta what was asked for: py-rattler 0.28's install() fails with its ``requested_specs``.

    All records are read, also those that are written here: py-rattler 0.28 reports no full disk when it writes the last
    bytes of one. Raises as install_error says for one that is cut off.
    """
    mode = new_file_mode()  # py-rattler 0.28 writes records that its user alone can read
    records = []
    try:
        for path in sorted((target.prefix / META).glob("*.json")):
            record = rattler.PrefixRecord.from_path(path)
            records.append(record)
            specs = list(target.requested.get(record.name.normalized, ()))
            if record.requested_specs != specs:
                record.requested_specs = specs
                with atomic_path(path) as temporary:
                    record.write_to_path(temporary, pretty=True)
                    rattler.PrefixRecord.from_path(temporary)
            path.chmod(mode)
    except IoError as err:
        raise install_error(err, prefix=target.prefix, package_cache=target.package_cache) from err
    append_revision(target.prefix, target.requested, solution, command=target.command)
    write_constraints(target.prefix, records)


def _packages(records: Iterable[rattler.RepoDataRecord]) -> tuple[InstalledPackage, ...]:
    return tuple(sorted(map(_installed_package, records), key=lambda package: package.name))


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
