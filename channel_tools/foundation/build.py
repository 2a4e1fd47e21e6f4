# SPDX-License-Identifier: BSD-3-Clause
"""Making the registry foundation: resolve, plan, download, make, record, and only what changed.

Every package enters by a rename and the record is written last, so an interruption leaves packages that the next run
recognises by their names. A finished foundation is recognised by one digest, without asking a registry.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from channel_tools.conda.archive import read_index_json, read_info_json
from channel_tools.conda.package import NOARCH, PackageKey, link_sidecar, remove_sidecars
from channel_tools.foundation.codes import engine_digest, step_digest
from channel_tools.foundation.combinations import given_python, plan_combinations, resolve_combinations, table_of
from channel_tools.foundation.downloads import Sources, UnavailableError, fetch, make_sources, with_sizes
from channel_tools.foundation.model import names_in, reachable
from channel_tools.foundation.plan import WHEEL_STEP, PackagePlan, flavour, needed_by_wheels, plan_packages
from channel_tools.foundation.pypi import PytorchChoice
from channel_tools.foundation.record import (
    RECORD_NAME,
    FoundationRecord,
    RecordedCombination,
    RecordedPackage,
    read_record,
    read_record_file,
    recorded,
    write_record,
)
from channel_tools.foundation.resolve import resolve, resolve_locked, wheel_requirements
from channel_tools.foundation.table import PYTHON
from channel_tools.foundation.unpack import unpack_conda
from channel_tools.foundation.worker import MULTIARCH, PackageJob, make_packages
from channel_tools.requests.foundation import FoundationRequest
from channel_tools.system.beneath import Beneath
from channel_tools.system.errors import FoundationError, UsageError
from channel_tools.system.files import TEMPORARY_PREFIX, link_or_copy, remove_leftovers, sha256_of_file
from channel_tools.system.locks import exclusive_lock

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from channel_tools.foundation.downloads import LockedArtifacts
    from channel_tools.foundation.model import Combination, Entry, LockedArtifact
    from channel_tools.foundation.table import FoundationTable
    from channel_tools.system.progress import Progress


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundationResult:
    """What a run did, or would do with ``dry_run``; file names with their subdir, sorted."""

    made: tuple[str, ...]
    kept: tuple[str, ...]
    removed: tuple[str, ...]


def build_foundation(
    table: FoundationTable,
    request: FoundationRequest,
    *,
    destination: Path,
    downloads: Path,
    subdir: str,
    progress: Progress,
    pytorch_index: str | None = None,
    sources: Sources | None = None,
) -> FoundationResult:
    """Make the channel folder ``destination`` have exactly the packages of ``table``, and its record. Not indexed.

    ``pytorch_index`` is where a wheel of PyTorch for the CPU is looked for that pip does not find otherwise (None:
    nowhere). ``sources`` is for other registries than the host's (None). If nothing changed, nothing is fetched or
    written.

    Raises FoundationError, NetworkError, IntegrityError, ConfigError, DiskFullError, UsageError for names in ``asked``
    and for ``cuda`` where there is a PyTorch for the CPU, and ChannelError if another run is writing to the same
    folder; what was made before an error is used by the next run. Superseded packages stay in the folder until
    remove_superseded.
    """
    if subdir not in MULTIARCH:
        raise FoundationError(f"there is no registry foundation for {subdir}; supported: {', '.join(MULTIARCH)}")
    lock = read_record_file(request.locked) if request.locked else None
    with contextlib.ExitStack() as stack:
        if not request.dry_run:
            stack.enter_context(exclusive_lock(destination / ".lock", resource=f"the foundation {destination}"))
            remove_leftovers(destination)
            # a failing run removes its half-written packages: on a full disk they would be in the way
            stack.callback(remove_leftovers, destination)
        known = _record_or_none(destination)
        table = _with_asked(_limited(table, request, known), request.asked, known, lock)
        pytorch = PytorchChoice(cuda=_takes_cuda(known, request, destination), index=pytorch_index)
        digest = foundation_digest(table, subdir)
        python_files = {path.name for path in request.pythons.values()}
        if (
            known
            and not request.update
            and python_files <= {package.file_name for package in known.packages}
            and _is_finished(known, digest, destination, lock)
        ):
            return FoundationResult(
                made=(), kept=tuple(sorted(str(package.key) for package in known.packages)), removed=()
            )
        run = _FoundationRun(
            table=table,
            destination=destination,
            subdir=subdir,
            digest=digest,
            request=request,
            progress=progress,
            sources=sources
            or make_sources(table, downloads=downloads, subdir=subdir, pytorch=pytorch, offline=request.offline),
        )
        planned, plans, present = run.begin(known, lock=lock, update=request.update)
        return planned.finish(plans, present)


def check_versions(
    table: FoundationTable,
    request: FoundationRequest,
    *,
    destination: Path,
    downloads: Path,
    subdir: str,
    progress: Progress,
    pytorch_index: str | None = None,
    sources: Sources | None = None,
) -> None:
    """Raise what build_foundation raises for a version that nobody offers, before a Python is built for it.

    No package is downloaded, nothing is made, and nobody is asked for what was recorded.
    """
    lock = read_record_file(request.locked) if request.locked else None
    known = _record_or_none(destination)
    table = _with_asked(_limited(table, request, known), request.asked, known, lock)
    if sources is None:
        pytorch = PytorchChoice(cuda=_takes_cuda(known, request, destination), index=pytorch_index)
        sources = make_sources(table, downloads=downloads, subdir=subdir, pytorch=pytorch, offline=request.offline)
    with progress.task("resolving versions", total=None):
        _resolve_all(table, None if request.update else known, lock, sources)


def remove_superseded(destination: Path, result: FoundationResult, *, listed: Collection[str] = ()) -> None:
    """Delete the packages that ``result`` lists as removed, unless they are ``listed`` (``subdir/file name``)."""
    for name in result.removed:
        if name not in listed:
            remove_sidecars(Beneath(root=destination), name)
            (destination / name).unlink(missing_ok=True)


def foundation_digest(table: FoundationTable, subdir: str) -> str:
    """The digest of everything that decides a foundation, except the registries' responses."""
    code = {entry.name: code_digest(entry) for entry in table.entries}
    return _sha256([table.digest, subdir, engine_digest(), step_digest(WHEEL_STEP), code])


def is_outdated(table: FoundationTable, destination: Path, subdir: str) -> bool:
    """Whether the foundation in ``destination`` was made of another table or by other code, so that it is made again.

    False if there is none. Raises ConfigError for a record that is not valid.
    """
    known = _record_or_none(destination)
    if known is None:
        return False
    names = {*known.asked, *(combination.name for combination in known.combinations)}
    # a row that the table lost is asked for no more; that alone changes the digest
    asked = names & {*table.optional_names, *(combination.name for combination in table.combinations)}
    same = FoundationRequest(needed=None if known.needed is None else frozenset(known.needed), asked=frozenset(asked))
    return foundation_digest(_with_asked(_limited(table, same, known), asked, known, None), subdir) != known.digest


def code_digest(entry: Entry) -> str:
    """The digest of the code that makes a row's package."""
    return _sha256([engine_digest(), [step_digest(step) for step in entry.repairs]])


@dataclass(frozen=True, kw_only=True, slots=True)
class _FoundationRun:
    """A run that has something to do."""

    table: FoundationTable
    destination: Path
    subdir: str
    digest: str
    request: FoundationRequest
    progress: Progress
    sources: Sources
    wheels: dict[Combination, LockedArtifacts] = field(default_factory=dict)
    """The wheels of each combination, known once it is planned."""

    def begin(
        self, known: FoundationRecord | None, *, lock: FoundationRecord | None, update: bool
    ) -> tuple[_FoundationRun, list[PackagePlan], dict[str, RecordedPackage]]:
        """Plan, and download the files for the packages to make; returns which packages are already there.

        The run that is returned has the rows that the wheels need as well.
        """
        table, plans = self._plan(None if update else known, lock, record=known)
        run = replace(self, table=table, digest=foundation_digest(table, self.subdir))
        present = self._present(plans, known)
        if self.request.dry_run and not self.sources.offline:
            return run, plans, present
        try:
            self._fetch(plans, present)
        except UnavailableError as err:
            if lock is not None or known is None or update:
                raise
            self.progress.note(f"{err.message}; using the versions that are available now")
            return self.begin(known, lock=None, update=True)
        return run, plans, present

    def finish(self, plans: Sequence[PackagePlan], present: Mapping[str, RecordedPackage]) -> FoundationResult:
        """Make what is missing and write the record."""
        missing = [plan for plan in plans if plan.file_name not in present]
        built = [] if self.request.dry_run or not missing else self._make(plans, missing)
        wanted = {str(plan.key) for plan in plans}
        superseded = sorted(set(self._files()) - wanted)
        if not self.request.dry_run:
            packages = {**present, **{package.file_name: package for package in built}}
            write_record(self.destination, self._record([packages[plan.file_name] for plan in plans]))
        return FoundationResult(
            made=tuple(sorted(str(plan.key) for plan in missing)),
            kept=tuple(sorted(str(plan.key) for plan in plans if plan.file_name in present)),
            removed=tuple(superseded),
        )

    def _plan(
        self, known: FoundationRecord | None, lock: FoundationRecord | None, *, record: FoundationRecord | None
    ) -> tuple[FoundationTable, list[PackagePlan]]:
        with self.progress.task("resolving versions", total=None):
            table, artifacts, wheels = _resolve_all(self.table, known, lock, self.sources)
        artifacts = with_sizes(artifacts, self.sources.store)
        pythons = self._pythons(table, record)
        own = next((plan for plan in pythons if plan.combination is None), None)
        python = None if own is None else own.build
        plans = plan_packages(table, artifacts, subdir=self.subdir, code_of=code_digest, python=python)
        for combination, locked_wheels in wheels.items():
            self.wheels[combination] = with_sizes(locked_wheels, self.sources.store)
        added = plan_combinations(table, self.wheels, artifacts, plans, subdir=self.subdir, code_of=code_digest)
        return table, [*plans, *pythons, *added]

    def _pythons(self, table: FoundationTable, record: FoundationRecord | None) -> list[PackagePlan]:
        """The Pythons that the table and its combinations need without a row: as given, else of an earlier run."""
        pythons: dict[str, PackagePlan] = {}
        wanted: dict[str, Combination | None] = {table.python: None} if table.lacks_python else {}
        for asked in table.asked_combinations:
            if asked.python != table.python:
                wanted.setdefault(asked.python, asked)
        for minor, combination in wanted.items():
            packages = record.packages if record else ()
            before = [self.destination / str(package.key) for package in packages if package.name == PYTHON]
            fitting = (path for path in before if path.is_file() and path.name.startswith(f"{PYTHON}-{minor}."))
            path = self.request.pythons.get(minor) or next(fitting, None)
            if path is None:
                needing = combination or f"the foundation of Debian {table.suite}"
                message = f"{needing} needs Python {minor}, which a recipe builds"
                raise FoundationError(
                    message,
                    hint=f"run channel_tools build --variant python --python {minor}, then foundation build again",
                )
            pythons[minor] = given_python(path, read_index_json(path), minor, combination)
            linked = self.destination / str(pythons[minor].key)
            if not self.request.dry_run and path != linked:
                linked.parent.mkdir(exist_ok=True)
                linked.unlink(missing_ok=True)
                link_or_copy(path, linked)
                link_sidecar(Beneath(root=path.parent), path.name, Beneath(root=linked.parent), linked.name)
        return list(pythons.values())

    def _fetch(self, plans: Sequence[PackagePlan], present: Mapping[str, RecordedPackage]) -> None:
        missing = [plan for plan in plans if plan.file_name not in present]
        for combination in dict.fromkeys(plan.combination for plan in missing):
            files = {artifact for plan in missing if plan.combination == combination for artifact in plan.taken}
            pip = self.sources.pip if combination is None else replace(self.sources.pip, python=combination.python)
            fetch(files, replace(self.sources, pip=pip), self.progress)

    def _present(self, plans: Sequence[PackagePlan], known: FoundationRecord | None) -> dict[str, RecordedPackage]:
        """The planned packages that exist: as recorded, or complete from an earlier run that did not finish."""
        known_packages = {package.file_name: package for package in known.packages} if known else {}
        present: dict[str, RecordedPackage] = {}
        for plan in plans:
            path = self.destination / plan.subdir / plan.file_name
            if not path.is_file():
                continue
            package = known_packages.get(plan.file_name)
            if package is None or package.size_bytes != path.stat().st_size:
                paths = read_info_json(path, "paths.json")["paths"]
                unpacked_bytes = sum(entry["size_in_bytes"] for entry in paths if entry["path_type"] == "hardlink")
                sha256 = sha256_of_file(path)
                package = recorded(plan, size_bytes=path.stat().st_size, unpacked_bytes=unpacked_bytes, sha256=sha256)
            present[plan.file_name] = package
        return present

    def _make(self, plans: Sequence[PackagePlan], missing: Sequence[PackagePlan]) -> list[RecordedPackage]:
        """Make the ``missing`` ones of ``plans``: python and its dependencies before those that it compiles."""
        for subdir in (self.subdir, NOARCH):
            (self.destination / subdir).mkdir(exist_ok=True)
        compiles = any(plan.holds_bytecode for plan in missing)
        python_needs, python, others = _in_making_order(plans)
        built: list[RecordedPackage] = []
        with (
            tempfile.TemporaryDirectory(prefix=TEMPORARY_PREFIX, dir=self.destination) as compiler,
            self.progress.task("foundation packages", total=len(missing)) as task,
        ):
            for group in (python_needs, python, others):
                jobs = [self._job(plan, Path(compiler)) for plan in group if plan in missing]
                for package in make_packages(jobs, processes=self.request.packages_at_once):
                    built.append(package)
                    task.advance(detail=package.file_name)
                for plan in group if compiles and group is not others else ():
                    unpack_conda(self.destination / str(plan.key), Path(compiler))
        return built

    def _job(self, plan: PackagePlan, compiler: Path) -> PackageJob:
        return PackageJob(
            plan=plan,
            sources=tuple(self.sources.store.path_of(artifact) for artifact in plan.taken),
            destination=self.destination,
            subdir=self.subdir,
            python=plan.combination.python if plan.combination else self.table.python,
            compiler=compiler,
        )

    def _files(self) -> Iterator[str]:
        for subdir in (self.subdir, NOARCH):
            for path in (self.destination / subdir).glob("*.conda"):
                yield str(PackageKey(subdir, path.name))

    def _record(self, packages: Sequence[RecordedPackage]) -> FoundationRecord:
        sized = [self._with_sizes(package) for package in packages]
        return FoundationRecord(
            digest=self.digest,
            suite=self.table.suite,
            python=self.table.python,
            subdir=self.subdir,
            requirements=wheel_requirements(self.table),
            packages=tuple(sorted(sized, key=lambda package: (package.name, package.file_name))),
            asked=tuple(sorted(self.table.asked)),
            needed=None if self.table.needed is None else tuple(sorted(self.table.needed)),
            combinations=tuple(
                RecordedCombination(name=combination.name, taken=tuple(with_sizes(wheels, self.sources.store).values()))
                for combination, wheels in self.wheels.items()
            ),
        )

    def _with_sizes(self, package: RecordedPackage) -> RecordedPackage:
        sized = with_sizes({(artifact.kind, artifact.name): artifact for artifact in package.taken}, self.sources.store)
        return replace(package, taken=tuple(sized[artifact.kind, artifact.name] for artifact in package.taken))


def _wheels_of(artifacts: LockedArtifacts) -> dict[str, LockedArtifact]:
    return {name: file for (kind, name), file in artifacts.items() if kind == "wheel"}


def _in_making_order(
    plans: Sequence[PackagePlan],
) -> tuple[list[PackagePlan], list[PackagePlan], list[PackagePlan]]:
    """The packages in three groups: the dependencies of the table's python, that python, and the others."""
    own = [plan for plan in plans if plan.combination is None]
    by_name = {plan.entry.name: plan for plan in own}
    needed = reachable([PYTHON], lambda name: names_in(by_name[name].depends if name in by_name else ()))
    needs = [plan for plan in own if plan.entry.name in needed - {PYTHON}]
    python = [plan for plan in own if plan.entry.name in needed & {PYTHON}]
    return needs, python, [plan for plan in plans if plan not in needs and plan not in python]


def _with_asked(
    table: FoundationTable, asked: Collection[str], known: FoundationRecord | None, lock: FoundationRecord | None
) -> FoundationTable:
    """The table with the optional rows of this run and earlier ones; a recorded name may no longer be in the table."""
    records = [record for record in (known, lock) if record]
    recorded = {name for record in records for name in record.asked}
    recorded |= {combination.name for record in records for combination in record.combinations}
    optional = table.optional_names | {combination.name for combination in table.combinations}
    return table.asking({*asked, *recorded.intersection(optional)})


def _limited(table: FoundationTable, request: FoundationRequest, known: FoundationRecord | None) -> FoundationTable:
    """The table with the rows that are needed now or were in earlier runs; a whole foundation stays whole."""
    if request.needed is None or (known is not None and known.needed is None):
        return table
    combinations = tuple(combination for combination in table.combinations if combination.name in request.asked)
    earlier = known.needed if known is not None and known.needed is not None else ()
    return replace(table, asked_combinations=combinations).limited_to({*request.needed, *earlier})


def _resolve_all(
    table: FoundationTable, known: FoundationRecord | None, lock: FoundationRecord | None, sources: Sources
) -> tuple[FoundationTable, LockedArtifacts, dict[Combination, LockedArtifacts]]:
    """The table with the rows that wheels turn out to need, its debs and wheels, and those of its combinations."""
    artifacts: LockedArtifacts = {}
    by_combination: dict[Combination, LockedArtifacts] | None = None
    while True:
        artifacts = resolve_locked(table, lock) if lock else resolve(table, known, sources, resolved=artifacts)
        names = {*table.asked, *(combination.name for combination in table.asked_combinations)}
        names |= needed_by_wheels(table, _wheels_of(artifacts))
        if by_combination is None:
            by_combination = resolve_combinations(table, artifacts, lock or known, sources, locked=lock is not None)
        for combination, wheels in by_combination.items():
            names |= needed_by_wheels(table_of(table, combination), _wheels_of(wheels))
        grown = table.asking(names)
        if grown.asked == table.asked:
            return table, artifacts, by_combination
        table = grown


def _takes_cuda(known: FoundationRecord | None, request: FoundationRequest, destination: Path) -> bool:
    """Whether PyTorch's wheels with CUDA are taken: requested, or taken before. Raises as build_foundation."""
    taken = known.pytorch if known else None
    has_cuda = taken is not None and taken.kind == "wheel" and flavour(taken).startswith("cuda")
    if taken is None or request.update:
        return request.cuda or has_cuda
    if request.cuda and not has_cuda:
        message = f"{destination} has PyTorch {taken.version} for the CPU, which --cuda does not replace by itself"
        raise UsageError(message, hint="give --update as well, for the newest versions of all, PyTorch's with CUDA")
    return has_cuda


def _record_or_none(destination: Path) -> FoundationRecord | None:
    return read_record(destination) if (destination / RECORD_NAME).exists() else None


def _is_finished(known: FoundationRecord, digest: str, destination: Path, lock: FoundationRecord | None) -> bool:
    """Whether the folder matches the record, and the record what is wanted."""
    if known.digest != digest or (lock is not None and not (_hashes(known).items() <= _hashes(lock).items())):
        return False
    expected = {str(package.key): package.size_bytes for package in known.packages}
    present = {
        str(PackageKey.of(path)): path.stat().st_size
        for subdir in (known.subdir, NOARCH)
        for path in (destination / subdir).glob("*.conda")
    }
    return present == expected


def _hashes(record: FoundationRecord) -> dict[tuple[str, ...], str]:
    hashes: dict[tuple[str, ...], str] = {key: artifact.sha256 for key, artifact in record.artifacts().items()}
    for combination in record.combinations:
        hashes |= {(combination.name, artifact.name): artifact.sha256 for artifact in combination.taken}
    return hashes


def _sha256(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
