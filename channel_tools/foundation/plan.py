# SPDX-License-Identifier: BSD-3-Clause
"""Plans packages from rows and files: versions, dependencies, build strings. Pure.

A build string's hash covers the row, the files, the code that repairs and packs them, and the resulting dependencies,
so a package's file name never has two contents.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from channel_tools.conda.package import NOARCH, PackageKey, RunExports
from channel_tools.conda.specs import InvalidSpecError, is_virtual, spec_name
from channel_tools.foundation.model import TEMPLATE, Combination, Entry, deb_name, names_in, reachable
from channel_tools.foundation.table import PYTHON, FoundationTable, entry_value
from channel_tools.foundation.wheel import is_pure_wheel
from channel_tools.system.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from channel_tools.foundation.model import LockedArtifact

WHEEL_STEP = "wheel_libraries"
"""The repair step for compiled wheels that have no row."""
_RUNTIME_PACKAGES = frozenset({"libgcc", "libstdcxx"})
_HASH_DIGITS = 7
_REQUIREMENT_NAME = re.compile(r"[a-z0-9-]+")
_PROJECT_NAME = re.compile(r"\s*([A-Za-z0-9._-]+)")
_CUDA_RUNTIME = re.compile(r"nvidia-cuda-runtime(?:-cu\d+)?==(\d+)\.(\d+)\.")
_SEGMENTS = re.compile(r"x(\.x)*")
# What Debian appends to an upstream version when it repacked the sources or took a later snapshot of them.
# What it puts between a version that it had by mistake and the real one, when it goes back
_DEBIAN_REALLY = re.compile(r".*[+~.]really\.?(?=\d)")
_DEBIAN_SUFFIX = re.compile(r"(?:[.+~](?:dfsg|ds|debian|really|git|repack)|[+~]).*$")


@dataclass(frozen=True, kw_only=True, slots=True)
class PackagePlan:
    """The plan of one package, with its final name, before it is made."""

    entry: Entry
    version: str
    build: str
    subdir: str
    holds_bytecode: bool
    """Whether the table's python compiles its modules: it is a package for only that python, or python itself."""
    taken: tuple[LockedArtifact, ...] = ()
    depends: tuple[str, ...] = ()
    python_depends: tuple[str, ...] = ()
    """Dependencies of its Python modules, which apply only if any are left after the row's keep and drop."""
    constrains: tuple[str, ...] = ()
    run_exports: RunExports = field(default_factory=RunExports)
    digest: str = ""
    combination: Combination | None = None
    """The combination that it was planned for; None: the table's own Python and PyTorch."""

    @property
    def file_name(self) -> str:
        """Its file name in the channel."""
        return f"{self.entry.name}-{self.version}-{self.build}.conda"

    @property
    def key(self) -> PackageKey:
        """Its key in the channel."""
        return PackageKey(self.subdir, self.file_name)

    @property
    def is_noarch_python(self) -> bool:
        """Whether one package is for every python."""
        return bool(self.taken) and all(is_pure_wheel(artifact.file_name) for artifact in self.taken)


def project_of(requirement: str) -> str:
    """The normalised project name of a wheel row's requirement."""
    match = _PROJECT_NAME.match(requirement)
    return canonicalize_name(match[1]) if match else ""


def with_wheel_rows(table: FoundationTable, wheels: Mapping[str, LockedArtifact]) -> tuple[Entry, ...]:
    """The table's rows without unneeded optional ones, and a row for each wheel that has none."""
    named = {project_of(requirement) for entry in table.entries for requirement in entry.wheels}
    taken_names = {entry.name for entry in table.entries}
    added = []
    for project in sorted(wheels.keys() - named):
        name = table.conda_names.get(project, project)
        if name in taken_names:
            message = f"the wheel {project} would become package {name}, whose row does not name that wheel"
            raise ConfigError(message, hint="add the wheel to that row, or map the project in conda_names")
        added.append(_added_row(name, project, wheels[project], taken_names))
    names = {entry.name for entry in table.wanted} | _required_names(table, wheels)
    rows = [entry for entry in table.entries if entry.name in names]
    return tuple(sorted((*rows, *added), key=lambda entry: entry.name))


def _required_names(table: FoundationTable, wheels: Mapping[str, LockedArtifact]) -> set[str]:
    """The optional rows that other packages' wheels need, and rows without files that these depend on.

    If several rows split one wheel, a requirement on it means the first; the others must be requested.
    """
    optional = {entry.name: entry for entry in table.entries if table.is_optional(entry)}
    first = {project_of(text): entry.name for entry in reversed(optional.values()) for text in entry.wheels}
    required = {first[project] for project in wheels if project in first}
    for name in list(required):
        named = (other for other in names_in(optional[name].depends) if other in optional)
        required.update(other for other in named if not _has_files(optional[other]))
    return required


def needed_by_wheels(table: FoundationTable, wheels: Mapping[str, LockedArtifact]) -> set[str]:
    """The optional rows of Debian's packages that rows depend on which other packages' wheels need."""
    rows = {entry.name: entry for entry in table.entries}
    reached = reachable(
        _required_names(table, wheels),
        lambda name: [needed for needed in names_in(rows[name].depends) if needed in rows],
    )
    return {name for name in reached if rows[name].debs and table.is_optional(rows[name])}


def _has_files(entry: Entry) -> bool:
    return bool(entry.debs or entry.wheels)


def _added_row(name: str, project: str, artifact: LockedArtifact, rows: set[str]) -> Entry:
    if is_pure_wheel(artifact.file_name):
        return Entry(name=name, line=0, wheels=(project,))
    runtime = tuple(sorted(rows.intersection(_RUNTIME_PACKAGES)))
    return Entry(name=name, line=0, wheels=(project,), depends=runtime, repairs=(WHEEL_STEP,))


def plan_packages(
    table: FoundationTable,
    artifacts: Mapping[tuple[str, str], LockedArtifact],
    *,
    subdir: str,
    code_of: Callable[[Entry], str],
    python: str | None = None,
) -> list[PackagePlan]:
    """The packages of ``table`` to make from ``artifacts`` (by kind and name), sorted by name.

    ``code_of`` gives the digest of the code that makes a row's package. ``python`` is the build string of the Python
    that compiles modules where the table has no row for one; None leaves them uncompiled there. Raises ConfigError,
    with the row's file and line, for unknown templates, dependencies without a row and circular references between
    builds.
    """
    wheels = {name: file for (kind, name), file in artifacts.items() if kind == "wheel"}
    planner = _Planner(table, with_wheel_rows(table, wheels), artifacts, subdir, code_of, python)
    return [planner.plan(name) for name in sorted(planner.entries)]


class _Planner:
    """Plans rows in any order; a build string that another row refers to is planned first."""

    def __init__(
        self,
        table: FoundationTable,
        entries: tuple[Entry, ...],
        artifacts: Mapping[tuple[str, str], LockedArtifact],
        subdir: str,
        code_of: Callable[[Entry], str],
        python: str | None,
    ) -> None:
        self.entries = {entry.name: entry for entry in entries}
        self._table = table
        self._artifacts = artifacts
        self._subdir = subdir
        self._code_of = code_of
        self._python = python
        self._planned: dict[str, PackagePlan] = {}
        self._under_way: list[str] = []
        self._package_of_project = {
            project_of(requirement): entry.name for entry in reversed(entries) for requirement in entry.wheels
        }
        self._package_of_project |= {p: n for p, n in table.conda_names.items() if n in self.entries}

    def plan(self, name: str) -> PackagePlan:
        if name in self._planned:
            return self._planned[name]
        entry = self.entries[name]
        if name in self._under_way:
            circle = " -> ".join([*self._under_way, name])
            raise entry.error(f"the build strings refer to each other in a circle: {circle}")
        self._under_way.append(name)
        self._planned[name] = self._plan(entry)
        self._under_way.pop()
        return self._planned[name]

    def _plan(self, entry: Entry) -> PackagePlan:
        files = self._files(entry)
        draft = PackagePlan(
            entry=entry,
            version=self._version(entry),
            build="",
            subdir=NOARCH if entry.noarch else self._subdir,
            taken=files,
            depends=self._expanded(entry, entry.depends),
            constrains=self._expanded(entry, entry.constrains),
            run_exports=RunExports(
                weak=self._expanded(entry, entry.run_exports.weak),
                strong=self._expanded(entry, entry.run_exports.strong),
                noarch=self._expanded(entry, entry.run_exports.noarch),
            ),
            holds_bytecode=self._compiles and (entry.name == PYTHON or "{py}" in self._template(entry, files)),
        )
        self._check_depends(draft)
        draft = replace(
            draft,
            subdir=NOARCH if draft.is_noarch_python else draft.subdir,
            depends=tuple(sorted({*draft.depends, *self._library_wheels(files)})),
            python_depends=self._python_depends(draft),
        )
        digest = self._digest(draft)
        return replace(draft, digest=digest, build=self._build(draft, digest))

    def _files(self, entry: Entry) -> tuple[LockedArtifact, ...]:
        keys = [("deb", deb_name(text)) for text in entry.debs] + [("wheel", project_of(text)) for text in entry.wheels]
        return tuple(self._artifacts[key] for key in keys)

    def _version(self, entry: Entry) -> str:
        files = self._files(entry)
        if entry.version is None:
            return conda_version(files[0])
        own = conda_version(files[0]) if files else entry.version
        return self._expand(entry, entry.version, own)

    def _expanded(self, entry: Entry, texts: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(self._expand(entry, text, None) for text in texts)

    def _expand(self, entry: Entry, text: str, own: str | None) -> str:
        def version_of(name: str | None) -> str:
            if name is None:
                return own or self._version(entry)
            return self._version(self._other(entry, name))

        def build_of(name: str) -> str:
            return self.plan(self._other(entry, name).name).build

        try:
            return expand(text, version_of=version_of, build_of=build_of)
        except TemplateError as err:
            raise entry.error(f"{text!r}: {err}") from None

    def _other(self, entry: Entry, name: str) -> Entry:
        if name not in self.entries:
            raise entry.error(f"refers to {name!r}, which has no row")
        return self.entries[name]

    def _check_depends(self, plan: PackagePlan) -> None:
        for spec in plan.depends:
            try:
                name = spec_name(spec)
            except InvalidSpecError as err:
                raise plan.entry.error(f"depends: {err}") from None
            if name not in self.entries and not is_virtual(name):
                raise plan.entry.error(f"depends on {spec!r}, but no row makes {name}")

    def _library_wheels(self, files: tuple[LockedArtifact, ...]) -> list[str]:
        """Requirements on wheels that only contain libraries: they apply even if the package's modules are dropped."""
        return [self._spec(text) for text in _requirements(files) if self._is_library_wheel(text)]

    def _is_library_wheel(self, requirement: str) -> bool:
        name = self._artifacts["wheel", _requirement_name(requirement)].file_name
        return "-py3-none-" in name and not is_pure_wheel(name)

    def _python_depends(self, plan: PackagePlan) -> tuple[str, ...]:
        if not any(artifact.kind == "wheel" for artifact in plan.taken):
            return ()
        required = [self._spec(text) for text in _requirements(plan.taken) if not self._is_library_wheel(text)]
        minor = int(self._table.python.removeprefix("3."))
        own = () if plan.is_noarch_python else (f"python >={self._table.python},<3.{minor + 1}.0a0", self._abi())
        return tuple(sorted({*required, *own}))

    def _abi(self) -> str:
        return f"python_abi {self._table.python}.* *_cp{self._python_tag()}"

    def _python_tag(self) -> str:
        return self._table.python.replace(".", "")

    def _spec(self, requirement: str) -> str:
        project = _requirement_name(requirement)
        name = self._package_of_project.get(project, self._table.conda_names.get(project, project))
        return f"{name} {requirement.removeprefix(project)}".strip()

    def _digest(self, plan: PackagePlan) -> str:
        value = {
            "row": entry_value(plan.entry),
            "taken": [[artifact.kind, artifact.name, artifact.version, artifact.sha256] for artifact in plan.taken],
            "code": self._code_of(plan.entry),
            "depends": [plan.depends, plan.python_depends, plan.constrains],
            "run_exports": [plan.run_exports.weak, plan.run_exports.strong, plan.run_exports.noarch],
            "where": [self._subdir, self._table.python],
            "compiled by": self._compiler() if plan.holds_bytecode and plan.entry.name != PYTHON else None,
        }
        return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()

    @property
    def _compiles(self) -> bool:
        return self._python is not None or PYTHON in self.entries

    def _compiler(self) -> str:
        return self._python or self.plan(PYTHON).build

    def _build(self, plan: PackagePlan, digest: str) -> str:
        facts = {
            "{hash}": digest[:_HASH_DIGITS],
            "{py}": f"py{self._python_tag()}",
            "{flavour}": flavour(plan.taken[0]) if plan.taken else "none",
        }
        build = self._template(plan.entry, plan.taken)
        for template, fact in facts.items():
            build = build.replace(template, fact)
        if not re.fullmatch(r"[A-Za-z0-9_.+]+", build):
            raise plan.entry.error(f"build {build!r} is not a valid build string: expected letters, digits, _ . +")
        return build

    def _template(self, entry: Entry, files: tuple[LockedArtifact, ...]) -> str:
        if entry.build == "h{hash}_0" and any(f"-cp{self._python_tag()}-" in artifact.file_name for artifact in files):
            return "{py}h{hash}_0"  # conda-forge's convention for packages for one python
        return entry.build


def _requirements(files: tuple[LockedArtifact, ...]) -> list[str]:
    return sorted({text for artifact in files for text in artifact.requires})


def _requirement_name(requirement: str) -> str:
    match = _REQUIREMENT_NAME.match(requirement)
    if match is None:
        raise ConfigError(f"requirement {requirement!r} does not start with a project name")
    return match[0]


class TemplateError(Exception):
    """An unknown ``{...}``; the caller adds the row."""


def conda_version(artifact: LockedArtifact) -> str:
    """The version of a conda package from a .deb or wheel: upstream's, without epoch, revision or local version."""
    if artifact.kind == "wheel":
        return artifact.version.split("+")[0]
    upstream = artifact.version.partition(":")[2] or artifact.version
    upstream = upstream.rpartition("-")[0] or upstream
    return _DEBIAN_SUFFIX.sub("", _DEBIAN_REALLY.sub("", upstream)).replace("-", "_")


def flavour(artifact: LockedArtifact) -> str:
    """``cpu`` or ``cuda130``: a wheel's local version (``+cpu``, ``+cu130``), else the CUDA runtime that it requires.

    PyTorch's wheels on PyPI have no local version; those for CUDA require NVIDIA's wheels.
    """
    local = artifact.version.partition("+")[2]
    if local:
        return f"cuda{local.removeprefix('cu')}" if local.startswith("cu") else local
    for requirement in artifact.requires:
        if match := _CUDA_RUNTIME.match(requirement):
            return f"cuda{match[1]}{match[2]}"
    return "cpu"


def pin_range(version: str, segments: str) -> str:
    """``>=1.51.1,<1.52.0a0`` for 1.51.1 and ``x.x``: the range with the same first segments (as conda-build's pins).

    Raises TemplateError if the last of these segments is not a number or ``segments`` is not like ``x.x``.
    """
    if not _SEGMENTS.fullmatch(segments):
        raise TemplateError(f"{segments!r} is not a valid pin: expected x, x.x or x.x.x")
    digits = version.split(".")[: segments.count("x")]
    if not digits[-1].isdigit():
        raise TemplateError(f"version {version} cannot be pinned at {segments}: {digits[-1]!r} is not a number")
    upper = [*digits[:-1], str(int(digits[-1]) + 1), "0a0"]
    return f">={version},<{'.'.join(upper)}"


def expand(text: str, *, version_of: Callable[[str | None], str], build_of: Callable[[str], str]) -> str:
    """``text`` with each ``{...}`` replaced; ``version_of(None)`` is the row's own version.

    Raises TemplateError for an unknown one; the two functions raise their own errors for unknown rows.
    """

    def replacement(match: re.Match[str]) -> str:
        match match[1].split(":"):
            case ["version"]:
                return version_of(None)
            case ["version", name]:
                return version_of(name)
            case ["build", name]:
                return build_of(name)
            case ["pin", segments]:
                return pin_range(version_of(None), segments)
            case ["pin", name, segments]:
                return pin_range(version_of(name), segments)
            case _:
                raise TemplateError(
                    f"{match[0]} is unknown; known: {{version}}, {{version:NAME}}, {{build:NAME}}, {{pin:x.x}}, "
                    "{pin:NAME:x.x}"
                )

    return TEMPLATE.sub(replacement, text)
