# SPDX-License-Identifier: BSD-3-Clause
"""Installs a set of packages into a prefix with py-rattler, and converts its errors to ours.

There is a marker file in ``conda-meta`` while packages are linked, with their names and what is asked for. If a prefix
has it at the start, an earlier run was interrupted: all packages are linked again, since py-rattler takes a package's
record as proof of its files, and the files of packages that have no record yet are removed. Other files are the
user's, and stay.

py-rattler 0.28 links and removes whatever path a package or a record names, so both are checked before it is called:
packages by ``package_cache``, before they are in the cache, the records of the environment here.

Handles what py-rattler 0.28 does not report about files that it links.

Clashes, scripts that are not run, links of several packages that together lead outside, records that name files
outside, and files of a package that was being linked when a run was interrupted.

Where two packages have a file of the same name, the environment has one of them, as with conda. Where one's file or
link is the other's folder, py-rattler 0.28 leaves out all that the other has below it: that is refused beforehand.
"""

from __future__ import annotations

import contextlib
import filecmp
import functools
import os
import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, cast

import rattler
from rattler.exceptions import InstallerError, IoError
from rattler.package_cache import PackageCache, ValidationMode

from channel_tools.conda.contents import METADATA_BYTES, read_path_rows
from channel_tools.conda.metadata import is_inner_path
from channel_tools.conda.package import ACTIONS, NOARCH, PACKAGE_SUFFIX, REMOVAL, link_script_paths, split_file_name
from channel_tools.conda.platforms import current_platform
from channel_tools.conda.specs import as_record, read_spec, spec_name
from channel_tools.environments.activation import check_environment, check_prefix_path
from channel_tools.environments.history import append_revision
from channel_tools.environments.install_errors import install_error, panics_reported
from channel_tools.environments.package_cache import PackageStore, cached_name, fetch_packages
from channel_tools.environments.pip_packages import find_distributions, modules_folder, write_constraints
from channel_tools.environments.state import META, Unfinished, channel_of, identity, mark_unfinished, read_state, unmark
from channel_tools.pins.lock import Lock, PlatformLock, in_installation_order, locked_package
from channel_tools.system.archives import UnsafeMemberError, check_links
from channel_tools.system.errors import ChannelError, FileAccessError, IntegrityError, UsageError
from channel_tools.system.files import (
    absolute_path,
    atomic_path,
    disk_full_reported,
    new_file_mode,
    read_regular,
    walk_entries,
)
from channel_tools.system.locks import exclusive_lock

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from rattler import PrefixRecord, RepoDataRecord
    from rattler.install import InstallerReporter
    from rattler.networking import Client

    from channel_tools.environments.history import Requested
    from channel_tools.environments.package_cache import Unpacked
    from channel_tools.environments.state import EnvironmentState, Identity
    from channel_tools.system.progress import Progress, Task

_LOCK = ".channel_tools.lock"
_STAT_BLOCK_BYTES = 512


_CLOBBERS = "__clobbers__"
"""The folder to which rattler moves files of a package that clash with another's, by the package's name."""
_SHOWN = 5
_WITHOUT_PYTHON = "lib/python/site-packages"
"""A place as deep as a Python's."""
_OTHER_BUILDS = "choose other builds of them, or another channel"
_NOARCH_PLACES = {"site-packages": "lib/python*/site-packages", "python-scripts": "bin"}
"""Where the folders of a package of Python modules are linked to."""


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
    relinked: frozenset[str] = frozenset()
    """The names of packages that are linked again, though they are there."""
    look_up: Callable[[RepoDataRecord], Mapping[str, object] | None] = lambda _record: None
    """As PackageStore has it."""
    archives: Mapping[str, Path] = field(default_factory=dict)
    """As PackageStore has them."""

    @property
    def store(self) -> PackageStore:
        """The package cache, and how it is filled."""
        return PackageStore(
            folder=self.package_cache,
            client=self.client,
            locked=self.locked,
            hash_all=self.hash_cached,
            look_up=self.look_up,
            archives=self.archives,
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
    incomplete, and IntegrityError for a package whose record has no sha256.
    """
    prefix = absolute_path(prefix)
    check_environment(prefix)
    state = read_state(prefix)
    check_complete(state)
    records = in_installation_order(state.records)
    for record in records:
        if not record.sha256:
            message = f"{prefix}: the record of {record.file_name} has no sha256"
            hint = (
                "if it was asked for by its address, which earlier versions recorded without, have it read again: "
                f"channel_tools env update {shlex.quote(str(prefix))}; "
                "else make the environment again: env create --replace"
            )
            raise IntegrityError(message, hint=hint)
    # those that were installed from an explicit list have no size, which no format needs
    packages = (replace(locked_package(record, complete=False), channel=channel_of(record)) for record in records)
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
    if unfinished is None and present == identities and not target.relinked:
        _record(target, solution)
        return 0
    if unfinished is None:
        # where Python's minor version changes, rattler links its modules again without being told to, but from packages
        # that were not checked here; where a free-threaded one comes (CEP 17), it does not
        before, after = modules_folder(installed), modules_folder(solution)
        relinked = set() if before == after else {record.name.normalized for record in solution if record.noarch.python}
        relinked |= target.relinked
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
    of_pip = _left_behind(target.prefix, installed, solution)
    linking = tuple(cached_name(record) for record in fresh)
    mark_unfinished(target.prefix, Unfinished(packages=linking, requested=target.requested))
    await _install(solution, target, installed=installed, relinked=relinked, progress=progress)
    _record(target, solution)
    unmark(target.prefix)
    linked = {record.name.normalized for record in fresh}
    _note(scripts_not_run(target.prefix, linked, ACTIONS, windows=target.is_windows), progress)
    _note(of_pip, progress)
    return len(fresh) + len(_names(present) - _names(identities))


def _names(identities: Iterable[Identity]) -> set[str]:
    return {name for name, *_ in identities}


def _left_behind(prefix: Path, installed: Sequence[PrefixRecord], solution: Sequence[RepoDataRecord]) -> str:
    """Describe what pip installed for a Python that another one replaces, which looks elsewhere; "" if nothing."""
    before, after = modules_folder(installed), modules_folder(solution)
    if before is None or after is None or before == after:
        return ""
    names = [row.name for row in find_distributions(prefix, installed) if row.is_of_pip]
    if not names:
        return ""
    listed = ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
    return f"{prefix}: pip has to install again, for the Python that is there now: {listed}"


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


def check_recorded_paths(prefix: Path, installed: Iterable[PrefixRecord]) -> None:
    """Raise IntegrityError if a record in conda-meta names a file that is not in the environment.

    rattler removes the files of a package that leaves, whatever their paths; earlier versions of this program, and
    other clients, installed such packages.
    """
    home = prefix.resolve()
    is_inside = functools.cache(lambda folder: (prefix / folder).resolve().is_relative_to(home))
    for record in installed:
        for name in {*record.files, *(str(row.relative_path) for row in record.paths_data.paths)}:
            folder = str(name).rpartition("/")[0]
            if not is_inner_path(str(name)) or not is_inside(folder):
                message = f"{prefix}: the record of {cached_name(record)} names {str(name)!r}, which is outside"
                hint = (
                    f"remove that line from {prefix}/conda-meta/{cached_name(record)}.json, or make another environment"
                )
                raise IntegrityError(message, hint=hint)


def check_packages_together(
    prefix: Path,
    staying: Iterable[PrefixRecord],
    fresh: Sequence[RepoDataRecord],
    unpacked: Mapping[str, Unpacked],
    *,
    of_packages: Collection[str] | None,
) -> None:
    """Raise IntegrityError if packages, each harmless, cannot be in one environment.

    Their links may together lead out of it, and a file or link of one may have the name of a folder of another.
    A file of the user's may not be in the place of theirs: what is not among the paths ``of_packages``, None if that is
    not known. ``staying`` are installed and stay, ``fresh`` are to be linked from what is ``unpacked``, by cached_name.
    """
    links = {
        str(row.relative_path): str((prefix / row.relative_path).readlink())
        for record in staying
        for row in record.paths_data.paths
        if row.path_type.softlink and (prefix / row.relative_path).is_symlink()
    }
    folders: set[str] = set()
    packages: dict[str, str] = {}
    coming: set[str] = set()
    for installed in staying:
        rows = installed.paths_data.paths
        packages |= dict.fromkeys((str(row.relative_path) for row in rows), cached_name(installed))
    modules = modules_folder([*fresh, *staying]) or _WITHOUT_PYTHON
    for record in fresh:
        package = unpacked[cached_name(record)]
        linked_path = functools.partial(_place_of, modules=modules if record.noarch.python else None)
        links |= {linked_path(name): target for name, target in package.links.items() if not name.startswith("info/")}
        folders |= {linked_path(name) for name in package.folders if name.partition("/")[0] != "info"}
        linked = {linked_path(name) for name in package.files if name.partition("/")[0] != "info"}
        packages |= dict.fromkeys(linked, cached_name(record))
        coming |= linked
    _check_folders(prefix, packages)
    if of_packages is not None:
        _check_users_files(prefix, coming.difference(of_packages))
    try:
        check_links(links, folders)
    except UnsafeMemberError as err:
        names = ", ".join(sorted(cached_name(record) for record in fresh if unpacked[cached_name(record)].links))
        message = f"{prefix}: these packages cannot be installed together: {err} (packages with links: {names})"
        raise IntegrityError(message, hint=_OTHER_BUILDS) from None


def _check_folders(prefix: Path, packages: Mapping[str, str]) -> None:
    """Raise IntegrityError if a path is a folder, too; ``packages`` maps the paths of files and links to packages."""
    folders: dict[str, str] = {}
    for path, package in packages.items():
        while (path := path.rpartition("/")[0]) and path not in folders:
            folders[path] = package
    if both := sorted(packages.keys() & folders.keys()):
        listed = "; ".join(
            f"{path!r} is a file of {packages[path]}, a folder of {folders[path]}" for path in both[:_SHOWN]
        )
        message = f"{prefix}: these packages cannot be installed together: {listed}"
        raise IntegrityError(message, hint=_OTHER_BUILDS)


def _check_users_files(prefix: Path, coming: Iterable[str]) -> None:
    """Raise UsageError if something else is where the files and folders of packages that are ``coming`` would be."""
    taken, seen = set(), set[str]()
    for path in coming:
        if os.path.lexists(prefix / path):
            taken.add(path)
        while (path := path.rpartition("/")[0]) and path not in seen:
            seen.add(path)
            if os.path.lexists(prefix / path) and not (prefix / path).is_dir():
                taken.add(path)
    if taken:
        listed = ", ".join(sorted(taken)[:_SHOWN]) + (f" and {len(taken) - _SHOWN} more" if len(taken) > _SHOWN else "")
        message = f"{prefix}: packages would replace files that are of no package: {listed}; nothing was changed"
        raise UsageError(message, hint="move these away, or remove what brought them (pip uninstall), and run it again")


def _place_of(path: str, *, modules: str | None) -> str:
    """Where a package's path is in an environment; ``modules`` is the folder for those of a package of modules."""
    first, _, below = path.partition("/")
    folder = {"site-packages": modules, "python-scripts": "bin"}.get(first) if modules else None
    return path if folder is None else f"{folder}/{below}".rstrip("/")


def clashing_files(prefix: Path) -> tuple[str, ...]:
    """``FILE of PACKAGE`` for files that are not in the environment, since another package has others of that name."""
    folder = prefix / _CLOBBERS
    lost = []
    for path in folder.rglob("*"):
        if path.is_symlink() or not path.is_dir():
            package, *file = path.relative_to(folder).parts
            if not _is_same(path, prefix.joinpath(*file)):
                lost.append(f"{'/'.join(file)} of {package}")
    return tuple(sorted(lost))


def _is_same(file: Path, other: Path) -> bool:
    if file.is_symlink() or other.is_symlink():
        return file.is_symlink() and other.is_symlink() and file.readlink() == other.readlink()
    return other.is_file() and filecmp.cmp(file, other, shallow=False)


def scripts_not_run(prefix: Path, names: Iterable[str], actions: Iterable[str], *, windows: bool) -> str:
    """Describe the link scripts in the prefix of the packages ``names`` that a client with them would run.

    They are not run here: py-rattler 0.28 runs post-link and pre-unlink scripts only, and does not report whether one
    failed. Returns "" if there are none.
    """
    stages = tuple(actions)
    scripts = [
        path
        for name in sorted(names)
        for path in link_script_paths(name, stages, windows=windows)
        if (prefix / path).is_file()
    ]
    if not scripts:
        return ""
    listed = ", ".join(scripts[:_SHOWN]) + (f" and {len(scripts) - _SHOWN} more" if len(scripts) > _SHOWN else "")
    return f"{prefix}: packages have scripts that conda runs and this command does not: {listed}"


def remove_unrecorded(prefix: Path, names: Iterable[str], package_cache: Path) -> None:
    """Remove the files of packages (by cached_name) that were linked into ``prefix`` and have no record; nothing else.

    The files of a package that is no longer in the cache are unknown: they stay.
    """
    home = prefix.resolve()
    is_inside = functools.cache(lambda folder: folder.resolve().is_relative_to(home))
    for name in names:
        for path in _linked(prefix, package_cache / name):
            if (path.is_file() or path.is_symlink()) and is_inside(path.parent):
                path.unlink()
                _remove_empty(path.parent, prefix)


def _linked(prefix: Path, package: Path) -> Iterator[Path]:
    """Where the files of an unpacked package are in a prefix, and the byte code that Python compiled from them."""
    try:
        rows = read_path_rows(
            read_regular(package / "info/paths.json", limit_bytes=METADATA_BYTES["paths.json"]), package
        )
    except (OSError, FileAccessError, IntegrityError):
        return
    for row in rows:
        first, _, below = row.partition("/")
        folders = prefix.glob(_NOARCH_PLACES[first]) if first in _NOARCH_PLACES else [prefix / first]
        for path in [folder / below for folder in folders]:
            if path.suffix == ".py":
                yield from (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc")
            yield path


def _remove_empty(folder: Path, prefix: Path) -> None:
    """Remove the folder, and those above it below the prefix, as far as they are empty."""
    with contextlib.suppress(OSError):
        while folder != prefix:
            folder.rmdir()
            folder = folder.parent
