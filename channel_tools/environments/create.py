# SPDX-License-Identifier: BSD-3-Clause
"""Makes environments of MatchSpecs or of locks, adds to them, and updates them.

Creating one never changes another that is there: it does nothing where all that is asked for is in it, completes a run
of its own that was interrupted, and else is an error, unless the environment is to be replaced. Adding and updating
solve for what is asked for now together with what the environment was asked for before (``history``), so that no
change leaves any of it out.

For a lock, no index is read and nothing is solved; every package is identified by its sha256. Some formats have only
addresses and hashes: then a package's requirements are read from the package itself, once it is in the package cache.
"""

from __future__ import annotations

import contextlib
import functools
import json
import shlex
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace as replace_fields
from pathlib import Path
from typing import TYPE_CHECKING

import rattler
from rattler.exceptions import ConvertSubdirError, IoError

from channel_tools.conda.addressed import addressed_packages
from channel_tools.conda.addresses import channel_address, text_without_credentials, without_credentials
from channel_tools.conda.clients import make_client
from channel_tools.conda.contents import METADATA_BYTES
from channel_tools.conda.metadata import checked_index, subdir_of
from channel_tools.conda.package import NOARCH
from channel_tools.conda.solving import detect_virtual_packages, make_gateway, parse_spec, solve_specs
from channel_tools.conda.specs import as_record, is_virtual, read_spec, spec_names
from channel_tools.environments.activation import check_environment
from channel_tools.environments.history import by_name
from channel_tools.environments.install_errors import damaged_package_error
from channel_tools.environments.package_cache import cached_name, fetch_packages
from channel_tools.environments.state import identity, is_for, read_state
from channel_tools.environments.transaction import (
    InstallTarget,
    apply_solution,
    check_complete,
    unchanged,
    usable_target,
)
from channel_tools.pins.lock import in_installation_order, repodata_record
from channel_tools.system.counting import counted
from channel_tools.system.document import decode_json
from channel_tools.system.errors import IntegrityError, SolveError, UsageError
from channel_tools.system.files import absolute_path, read_regular

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from channel_tools.conda.metadata import Correction
    from channel_tools.environments.package_cache import PackageStore
    from channel_tools.environments.state import EnvironmentState
    from channel_tools.environments.transaction import Announce, EnvironmentResult
    from channel_tools.pins import PlatformLock
    from channel_tools.pins.md5 import LookUp
    from channel_tools.system.progress import Progress


_SHOWN = 5
Check = Callable[[Sequence[rattler.RepoDataRecord]], None]


class ExistingEnvironmentError(UsageError):
    """An environment is there already, and is not the one that was to be created."""


async def create_environment(
    prefix: Path,
    specs: Sequence[str],
    channels: Sequence[str],
    *,
    package_cache: Path,
    subdir: str,
    progress: Progress,
    virtual_packages: Sequence[rattler.GenericVirtualPackage | rattler.VirtualPackage] | None = None,
    check: Check | None = None,
    replace: Announce | None = None,
    beside_python: Sequence[str] = (),
) -> EnvironmentResult:
    """Install ``specs`` only from ``channels`` (in order of priority) into ``prefix``.

    ``channels`` are addresses (``file://``, ``http://``) or folders; credentials in them are used but not written.
    ``virtual_packages`` None means those of this machine. ``check`` gets the solution before anything is downloaded,
    and raises an error if it must not be installed; with it, cached files must be those of the packages, too.
    Nothing is done in an environment that has what the specs ask for (``check`` gets its packages). With ``replace``,
    one that is there is made to have exactly the solution, if that function agrees to what goes. With Python, packages
    of the names ``beside_python`` are asked for, too, if they can be had.
    Raises ExistingEnvironmentError without it, UsageError (the prefix is something else, a spec does not parse),
    SolveError, NetworkError, ChannelError (no such channel; the prefix is in use by another run), IntegrityError (a
    damaged package, by name) and DiskFullError; the same call afterwards completes the environment.
    """
    started = time.monotonic()
    for spec in specs:
        parse_spec(spec)
    addresses, client = make_client([channel_address(channel) for channel in channels])
    target = InstallTarget(
        prefix=absolute_path(prefix),
        requested=by_name(specs),
        command=_command("create", prefix, specs, channels),
        package_cache=absolute_path(package_cache),
        subdir=subdir,
        client=client,
        hash_cached=check is not None,
    )
    with usable_target(target):
        state = read_state(target.prefix)
        if replace is None and _is_there(state, target, state.unmet(specs, channels), beside_python):
            if check is not None:
                check(state.records)
            return unchanged(state, started=started)

        with addressed_packages(specs, target.package_cache, known=state.records, progress=progress) as addressed:
            solve = functools.partial(
                solve_specs,
                channels=addresses,
                subdir=subdir,
                gateway=make_gateway(target.package_cache, client),
                virtual_packages=detect_virtual_packages() if virtual_packages is None else virtual_packages,
                addressed=addressed,
            )
            target = replace_fields(target, archives=addressed.archives)
            solution = await solve(specs)
            names = {record.name.normalized for record in solution}
            beside = [name for name in beside_python if "python" in names and name not in target.requested]
            if beside:
                with contextlib.suppress(SolveError):  # a channel without them, or for a Python that they do not know
                    solution = await solve([*specs, *beside])
                    target = replace_fields(target, requested={**target.requested, **by_name(beside)})
            if check is not None:
                check(solution)
            return await apply_solution(target, solution, state, started=started, progress=progress, announce=replace)


def _command(word: str, prefix: Path, specs: Sequence[str], channels: Sequence[str]) -> list[str]:
    """The words of a command for the environment's history."""
    options = [word for channel in channels for word in ("--channel", without_credentials(channel_address(channel)))]
    return ["channel_tools", "env", word, str(absolute_path(prefix)), *specs, *options]


def _is_there(
    state: EnvironmentState, target: InstallTarget, unmet: Sequence[str], beside_python: Sequence[str] = ()
) -> bool:
    """Whether the environment is there and complete, of which ``unmet`` is missing; False if it is to be made.

    What an interrupted run noted as asked for may have ``beside_python``, too.
    Raises ExistingEnvironmentError for any other than the one that the target is about.
    """
    prefix, unfinished = target.prefix, state.unfinished
    own = target.requested
    requested = {name: texts for name, texts in state.requested.items() if name in own or name not in beside_python}
    word = shlex.quote(str(prefix))
    if not state.records and unfinished is None:
        return False
    if unfinished is None and not unmet:
        return True
    if unfinished is not None:
        noted = unfinished.requested is not None
        if requested == own if noted else requested.keys() <= own.keys():
            return False
    packages = f"{counted(len(state.records), 'package')} for {_listed(sorted(requested)) or 'nothing in particular'}"
    if unfinished is not None:
        message = f"{prefix}: is an environment that an interrupted run left incomplete: {packages}"
        hint = f"complete it: channel_tools env update {word}; or put this in its place: env create --replace"
        raise ExistingEnvironmentError(message, hint=hint)
    message = f"{prefix}: is an environment already, of {packages}; it lacks {_listed(unmet)}"
    hint = (
        f"add what it lacks: channel_tools env add {word} SPEC...; bring newer versions: env update {word}; or put "
        "this in its place: env create --replace"
    )
    raise ExistingEnvironmentError(message, hint=hint)


def _listed(texts: Sequence[str]) -> str:
    return text_without_credentials(", ".join(texts[:_SHOWN])) + (
        f" and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
    )


def environment_channels(prefix: Path) -> tuple[str, ...]:
    """The channels that an environment's packages are from, in order of priority. Raises as read_state."""
    check_environment(prefix)
    return read_state(absolute_path(prefix)).channels


async def extend_environment(
    prefix: Path,
    specs: Sequence[str],
    channels: Sequence[str],
    *,
    newest: bool,
    reinstall: bool = False,
    package_cache: Path,
    subdir: str,
    progress: Progress,
    virtual_packages: Sequence[rattler.GenericVirtualPackage | rattler.VirtualPackage] | None = None,
    check: Check | None = None,
    announce: Announce | None = None,
) -> EnvironmentResult:
    """Add ``specs`` to an environment, whoever made it; all that it was asked for before stays in it.

    A spec takes the place of an earlier one of its name. Installed packages are kept as far as that is possible, unless
    the ``newest`` are wanted: then all are brought to the newest ones, except that Python keeps its minor version,
    for which other programs may have installed modules. With ``reinstall``, what the specs name is linked again, and
    asked for anew only if it is not there. ``channels`` empty means those that the packages are from.
    ``announce`` gets the change first. The rest, and what is raised, is as for create_environment.
    """
    started = time.monotonic()
    for spec in specs:
        parse_spec(spec)
    prefix = absolute_path(prefix)
    check_environment(prefix)
    state = read_state(prefix)
    chosen = channels or state.channels
    if not chosen:
        message = f"{prefix}: was not installed from a channel, so nothing says where packages come from"
        raise UsageError(message, hint="name the channel: --channel ADDRESS")
    addresses, client = make_client([channel_address(channel) for channel in chosen])
    if reinstall:
        check_complete(state)
    again = {
        record.name.normalized: spec for spec in specs for record in state.records if reinstall and is_for(record, spec)
    }
    specs = [spec for spec in specs if spec not in again.values()]
    new = by_name(specs)
    earlier = {name: texts for name, texts in state.requested.items() if name not in new}
    target = InstallTarget(
        prefix=prefix,
        requested={**earlier, **new},
        command=_command("update" if newest and not specs else "add", prefix, specs, channels),
        package_cache=absolute_path(package_cache),
        subdir=subdir,
        client=client,
        hash_cached=check is not None,
        relinked=frozenset(again),
    )
    all_specs = [*(spec for texts in earlier.values() for spec in texts), *specs]
    with (
        usable_target(target),
        addressed_packages(all_specs, target.package_cache, known=state.records, progress=progress) as addressed,
    ):
        target = replace_fields(target, archives=addressed.archives)
        solution = await solve_specs(
            all_specs,
            addresses,
            subdir=subdir,
            gateway=make_gateway(target.package_cache, client),
            virtual_packages=detect_virtual_packages() if virtual_packages is None else virtual_packages,
            preferred=() if newest else state.records,
            constraints=_same_python(state) if newest else (),
            addressed=addressed,
        )
        if check is not None:
            check(solution)
        return await apply_solution(target, solution, state, started=started, progress=progress, announce=announce)


async def reduce_environment(
    prefix: Path,
    specs: Sequence[str],
    *,
    package_cache: Path,
    subdir: str,
    progress: Progress,
    announce: Announce | None = None,
) -> EnvironmentResult:
    """Remove the packages that ``specs`` name from an environment, whoever made it, and what depends on them.

    What these needed goes too, as in conda, if nothing that stays needs it and nobody asked for it. Nothing else
    changes: no index is read and nothing is solved. ``announce`` gets the change first.

    Raises UsageError for what is no environment or was left incomplete, a spec that does not parse and one that names
    no package that is there; and as create_environment.
    """
    started = time.monotonic()
    for spec in specs:
        parse_spec(spec)
    prefix = absolute_path(prefix)
    check_environment(prefix)
    state = read_state(prefix)
    check_complete(state)
    if absent := [spec for spec in specs if not any(is_for(record, spec) for record in state.records)]:
        message = f"{prefix}: has no package for {_listed(absent)}; nothing was changed"
        raise UsageError(message, hint=f"what it has: channel_tools env list {shlex.quote(str(prefix))}")
    named = {record.name.normalized for record in state.records if any(is_for(record, spec) for spec in specs)}
    going = _going(state, named)
    target = InstallTarget(
        prefix=prefix,
        requested={name: texts for name, texts in state.requested.items() if name not in going},
        command=_command("remove", prefix, specs, ()),
        package_cache=absolute_path(package_cache),
        subdir=subdir,
        client=make_client([])[1],
    )
    with usable_target(target):
        solution = [record for record in in_installation_order(state.records) if record.name.normalized not in going]
        return await apply_solution(target, solution, state, started=started, progress=progress, announce=announce)


def _going(state: EnvironmentState, named: set[str]) -> set[str]:
    """The packages that go with those ``named``: what depends on them, and what only these needed."""
    needs = {
        record.name.normalized: {*spec_names(record.depends, record.file_name)} & {*state.names}
        for record in state.records
    }
    needed_by: dict[str, set[str]] = {name: set() for name in needs}
    for name, others in needs.items():
        for other in others:
            needed_by[other].add(name)
    removed = _reached(named, needed_by)
    with_needs = _reached(removed, needs)
    # what is beside them stays, whether anybody asked for it or not
    kept = _reached(({*state.requested} | (needs.keys() - with_needs)) - removed, needs)
    return removed | (with_needs - kept)


def _reached(start: set[str], edges: Mapping[str, set[str]]) -> set[str]:
    """The names that edges lead to from those of ``start``, and these."""
    reached, waiting = set[str](), [*start]
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting += edges.get(name, ())
    return reached


def _same_python(state: EnvironmentState) -> list[str]:
    """A MatchSpec for the Python that the environment has, by its minor version; empty without one."""
    versions = [str(record.version).split(".") for record in state.records if record.name.normalized == "python"]
    return [f"python {'.'.join(parts[:2])}.*" for parts in versions]


async def create_locked_environment(
    prefix: Path,
    lock: PlatformLock,
    *,
    specs: Sequence[str],
    sources: Mapping[str, str],
    virtual_packages: Sequence[rattler.GenericVirtualPackage],
    package_cache: Path,
    progress: Progress,
    check: Check | None = None,
    replace: Announce | None = None,
    look_up: LookUp = lambda _packages: {},
) -> EnvironmentResult:
    """Install exactly the packages of ``lock`` into ``prefix``.

    ``specs`` are recorded as the requested ones; without any, each package is, in its version and build. ``sources``
    maps channels of the lock to addresses that replace them (credentials are used but not written). Packages in the
    package cache are not downloaded, wherever they come from. Nothing is done in an environment that has the packages.
    ``check`` and ``replace`` are as for create_environment. ``look_up`` finds the records of packages of which the lock
    has none, and whose own requirements are wrong. Raises SolveError if the packages need virtual packages
    that are not among ``virtual_packages``, IntegrityError (a package that is missing or has other bytes), and else as
    create_environment does.
    """
    started = time.monotonic()
    addresses, client = make_client(list(sources.values()))
    moved_to = dict(zip(sources, addresses, strict=True))
    packages = [package.moved(moved_to) for package in lock.packages]
    records = [repodata_record(package) for package in packages]
    locked = {package.url: package for package in packages}

    def listed(record: rattler.RepoDataRecord) -> Mapping[str, object] | None:
        package = locked[record.url]
        rows = look_up([package]).get(str(package.ref.key), [])
        return next((row for row in rows if row.get("sha256") == package.sha256), None)

    for spec in specs:
        parse_spec(spec)
    exact = [f"{record.name.normalized}=={record.version}={record.build}" for record in records]
    target = InstallTarget(
        prefix=absolute_path(prefix),
        requested=by_name(specs or exact),
        command=_command("create", prefix, specs, sorted({str(record.channel) for record in records})),
        package_cache=absolute_path(package_cache),
        subdir=lock.platform,
        client=client,
        hash_cached=check is not None,
        locked=True,
        look_up=listed,
    )
    with usable_target(target):
        state = read_state(target.prefix)
        absent = [cached_name(record) for record in records if identity(record) not in state.identities]
        if replace is None and _is_there(state, target, absent):
            if check is not None:
                check(state.records)
            return unchanged(state, started=started)
        if check is not None:
            check(records)
        if any(record.size is None for record in records):
            await fetch_packages(records, target.store, name=target.prefix.name, progress=progress)
            records = [record if record.size is not None else _from_index(record, target.store) for record in records]
            for record in records:
                if record.subdir not in {lock.platform, NOARCH}:
                    message = f"{record.url}: is a package for {record.subdir}; the lock is for {lock.platform}"
                    raise IntegrityError(message, hint="remove it from the lock, or write the lock again")
        _check_requirements(records, virtual_packages)
        solution = in_installation_order(records)
        return await apply_solution(target, solution, state, started=started, progress=progress, announce=replace)


def _from_index(record: rattler.RepoDataRecord, store: PackageStore) -> rattler.RepoDataRecord:
    index = store.folder / cached_name(record) / "info" / "index.json"
    try:
        package_record = _record_in(index, subdir=record.subdir, correction=lambda: store.correction(record))
    except (OSError, ValueError, IoError, ConvertSubdirError) as err:
        reason = f"its index.json cannot be read: {' '.join(str(err).split())}"
        raise damaged_package_error(record.file_name, reason) from None
    package_record.sha256, package_record.md5 = record.sha256, record.md5
    return rattler.RepoDataRecord(package_record, record.file_name, record.url, record.channel)


def _record_in(index: Path, *, subdir: str, correction: Correction) -> rattler.PackageRecord:
    """The record in an unpacked index.json, which packages of 2013 to 2017 have without a subdir: then ``subdir``.

    ``correction`` is as for checked_index. Raises as py-rattler does, which reads only files, and ValueError for a file
    that is not a mapping.
    """
    document = decode_json(read_regular(index, limit_bytes=METADATA_BYTES["index.json"]))
    if not isinstance(document, dict):
        message = "it is not a mapping"
        raise ValueError(message)  # noqa: TRY004 - for the caller, a file with another value than expected
    corrected = checked_index(document, index, correction)
    if corrected is document and document.get("subdir"):
        return rattler.PackageRecord.from_index_json(index)
    with tempfile.TemporaryDirectory() as folder:
        completed = Path(folder, index.name)
        known = subdir or subdir_of(corrected) or NOARCH
        completed.write_text(json.dumps({**corrected, "subdir": known}), encoding="utf-8")
        return rattler.PackageRecord.from_index_json(completed)


def _check_requirements(
    records: Sequence[rattler.RepoDataRecord], virtual_packages: Sequence[rattler.GenericVirtualPackage]
) -> None:
    """Check the virtual packages, as the solver would have. Raises SolveError."""
    available = {str(package.name.normalized): package for package in virtual_packages}
    unmet = [text for record in records for text in _unmet(record, available)]
    if not unmet:
        return
    listed = "; ".join(unmet[:_SHOWN]) + (f"; and {len(unmet) - _SHOWN} more" if len(unmet) > _SHOWN else "")
    message = f"this machine does not have what the locked packages need: {listed}"
    hint = (
        "lock for such machines (channel_tools pins --virtual-package ...); if the environment is for another machine, "
        "give its virtual packages, for example: --virtual-package __glibc=2.36"
    )
    raise SolveError(message, hint=hint)


def _unmet(record: rattler.RepoDataRecord, available: Mapping[str, rattler.GenericVirtualPackage]) -> Iterator[str]:
    requirements = [(text, True) for text in record.depends] + [(text, False) for text in record.constrains]
    for text, required in requirements:
        (name,) = spec_names([text], record.file_name)
        if not is_virtual(name):
            continue
        package = available.get(name)
        if package is None:
            if required:
                yield f"{record.name.normalized} needs {text} (this machine has no {name})"
        elif not read_spec(text).matches(as_record(name, str(package.version), str(package.build_string))):
            yield f"{record.name.normalized} needs {text} (this machine has {package.version})"
