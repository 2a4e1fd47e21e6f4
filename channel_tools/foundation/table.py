# SPDX-License-Identifier: BSD-3-Clause
"""The foundation's table: reads data/*.yaml into one FoundationTable, or reports which line of which file is wrong.

Several files make one table, so that rows can be grouped by topic; only one of them has the header (``suite`` ...). The
digest leaves out line numbers and file names, so moving a row does not change it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from channel_tools.conda.package import RunExports
from channel_tools.conda.platforms import PlatformName  # noqa: TC001 - pydantic reads it
from channel_tools.foundation.model import (
    DATA_FOLDER,
    TEMPLATE,
    Combination,
    Entry,
    combinations_of,
    names_in,
    reachable,
)
from channel_tools.requests.names import FIRST_BASE, BaseName
from channel_tools.system.errors import ConfigError, UsageError, nearest_names_hint
from channel_tools.system.yamlfile import YamlDocument, read_yaml

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from channel_tools.foundation.model import PytorchSource

_MACHINES: Mapping[PlatformName, str] = {"linux-64": "x86-64", "linux-aarch64": "aarch64"}
"""In names of Debian's packages."""
_HEADER_KEYS = ("suite", "python", "glibc", "conda_names")
_Keys = TypeVar("_Keys", bound=BaseModel)
_Minor = Annotated[str, Field(pattern=r"^3\.\d+$")]
_NAME = re.compile(r"[a-z0-9_][a-z0-9_.-]*")
PYTHON = "python"
"""The row of the Python that all other rows are for."""
_ABI = "python_abi"
_WITH_PYTHON = ("pip", _ABI, "setuptools", "wheel")
_WITH_WHEELS = ("libgcc", "libstdcxx")
"""What compiled wheels without a row depend on."""
_PROGRAM_STEP = "wheel_program"
"""The repair step that leaves a wheel's program and none of its Python modules."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundationTable:
    """All rows, sorted by name, and the settings that apply to all of them."""

    suite: str
    """Debian's code name of the release the .debs come from."""
    python: str
    """``3.11``: the foundation's only python; without a row for it, a recipe builds that."""
    glibc: str
    """``2.36``: the newest glibc that a wheel may require (the suite's own)."""
    conda_names: Mapping[str, str]
    """conda-forge's package name by PyPI's normalised project name, if the two differ."""
    entries: tuple[Entry, ...]
    combinations: tuple[Combination, ...] = ()
    """Pythons and PyTorches besides those of the rows, which are made only on request."""
    combined: frozenset[str] = frozenset()
    """The rows that each combination makes again."""
    asked_combinations: tuple[Combination, ...] = ()
    """Those of ``combinations`` to make."""
    asked: frozenset[str] = frozenset()
    """The optional rows to make: requested by name, or dependencies of rows that are made."""
    needed: frozenset[str] | None = None
    """The only rows that are not optional; None: all whose row does not say that they are."""

    @property
    def wanted(self) -> tuple[Entry, ...]:
        """The rows that are made whatever pip finds: all except unrequested optional ones."""
        return tuple(entry for entry in self.entries if not self.is_optional(entry) or entry.name in self.asked)

    @property
    def optional_names(self) -> frozenset[str]:
        """The rows that are made only when needed."""
        return frozenset(entry.name for entry in self.entries if self.is_optional(entry))

    def asking(self, names: Collection[str]) -> FoundationTable:
        """The table with the optional rows ``names``, and those that rows to make depend on, requested as well.

        ``names`` may include combinations. Raises UsageError for a name that is neither.
        """
        rows = {entry.name: entry for entry in self.entries}
        combinations = {combination.name: combination for combination in self.combinations}
        for name in sorted(names):
            if name not in rows and name not in combinations:
                raise UsageError(
                    f"the foundation's table has no package or combination {name!r}",
                    hint=nearest_names_hint(name, [*rows, *combinations], noun="name"),
                )
        wanted = {*(entry.name for entry in self.wanted), *(rows.keys() & set(names))}
        reached = reachable(wanted, lambda name: names_in(rows[name].depends if name in rows else ()))
        return replace(
            self,
            asked=frozenset(name for name in reached & rows.keys() if self.is_optional(rows[name])),
            asked_combinations=tuple(
                combination for name, combination in sorted(combinations.items()) if name in names
            ),
        )

    def limited_to(self, names: Collection[str]) -> FoundationTable:
        """The table in which every row is optional except for ``names`` and what they lead to.

        Rows lead to what they depend on and to what they export, wheels to Python, and Python to pip, which conda adds
        to every environment with Python. Names without a row are ignored.
        """
        rows = {entry.name: entry for entry in self.entries}
        combined = self.combined if self.asked_combinations else frozenset[str]()
        needed = reachable(rows.keys() & {*names, *combined}, lambda name: _leads_to(rows[name], rows))
        return replace(self, needed=frozenset(needed))

    def is_optional(self, entry: Entry) -> bool:
        """Whether a row is made only when it is asked for, or when a row or wheel that is made leads to it."""
        return entry.optional or (self.needed is not None and entry.name not in self.needed)

    def entry(self, name: str) -> Entry | None:
        """The row of that name."""
        return next((entry for entry in self.entries if entry.name == name), None)

    @property
    def lacks_python(self) -> bool:
        """Whether its packages are for a Python that it has no row for, so that a recipe builds it."""
        return self.entry(PYTHON) is None and any(entry.name == _ABI for entry in self.wanted)

    @property
    def digest(self) -> str:
        """The sha256 over the content of the table."""
        value = {
            "header": [self.suite, self.python, self.glibc, sorted(self.conda_names.items())],
            "entries": [entry_value(entry) for entry in self.entries],
            "asked": sorted(self.asked),
        }
        if self.needed is not None:
            value["needed"] = sorted(self.needed)
        if self.asked_combinations:
            value["combinations"] = [
                sorted(self.combined),
                [combination.name for combination in self.asked_combinations],
            ]
        return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _leads_to(entry: Entry, rows: Mapping[str, Entry]) -> Sequence[str]:
    exports = entry.run_exports
    named = names_in((*entry.depends, *exports.weak, *exports.strong, *exports.noarch))
    runtime = _WITH_PYTHON if entry.name == PYTHON else _WITH_WHEELS if entry.wheels else ()
    # pip and the like also where a recipe builds Python, so that there is no row that leads to them
    modules = (PYTHON, *_WITH_PYTHON) if entry.wheels and _PROGRAM_STEP not in entry.repairs else ()
    return [name for name in (*named, *runtime, *modules) if name in rows]


def _texts(description: str) -> Any:  # noqa: ANN401 - as Field
    """A list of strings in the table, empty if it is left out."""
    return Field(default_factory=list, description=description)


class _Strict(BaseModel):
    # as in matrix/load.py: docstrings of attributes would make every command parse this file and build models
    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)


class _RunExportsRow(_Strict):
    """run_exports of a package (CEP 12): MatchSpecs by kind."""

    model_config = ConfigDict(title="RunExports")

    weak: list[str] = Field(default_factory=list)
    strong: list[str] = Field(default_factory=list)
    noarch: list[str] = Field(default_factory=list)


class _RowKeys(_Strict):
    """The keys of a row that may differ by base and platform."""

    model_config = ConfigDict(title="PackageKeys")

    debs: list[str] = _texts(
        "Debian binary packages, each ``name`` or ``name=version``, unpacked over each other in this order."
    )
    wheels: list[str] = _texts("Projects on PyPI, with an optional version specifier.")
    version: str | None = Field(
        default=None, description="The package's version; by default that of the first deb or wheel."
    )
    depends: list[str] = _texts("MatchSpecs on other rows; a wheel's own requirements are added.")
    constrains: list[str] = _texts("MatchSpecs that apply if these packages are installed as well.")
    run_exports: _RunExportsRow = Field(default_factory=_RunExportsRow)
    keep: list[str] = _texts(
        "Globs on paths in the prefix, applied after the repairs: what to keep. Empty keeps all; ``*`` matches ``/``."
    )
    drop: list[str] = _texts("Globs on paths in the prefix, applied after the repairs: what to leave out.")
    skip: list[str] = _texts("Globs on paths in the .deb or wheel that are never unpacked.")
    repairs: list[str] = _texts(
        "Steps that make the unpacked tree work at any prefix, in order: the names in foundation/repairs."
    )
    build: str = Field(
        default="h{hash}_0",
        description="The build string; must contain ``{hash}``, may contain ``{py}`` and ``{flavour}``.",
    )
    noarch: bool = Field(
        default=False, description="Whether it goes into the noarch subdir; a wheel's own tag decides."
    )
    optional: bool = Field(
        default=False,
        description="Made only when needed: requested by name, a dependency of another row, or required by a wheel.",
    )


class _Row(_RowKeys):
    """One conda package of the table; its files come from ``debs`` or from ``wheels``, or it has none."""

    model_config = ConfigDict(title="Package")

    bases: list[BaseName] = _texts("The Debian releases of which it is made; empty: all.")
    by_base: dict[BaseName, _RowKeys] = Field(
        default_factory=dict, description="The keys that differ on a Debian release other than the header's."
    )
    platforms: list[PlatformName] = _texts("The platforms for which it is made; empty: all.")
    by_platform: dict[PlatformName, _RowKeys] = Field(
        default_factory=dict, description="The keys that differ on a platform, whatever the base."
    )
    debian_pytorch: dict[BaseName, _RowKeys] = Field(
        default_factory=dict,
        description="The keys that differ where no wheel of PyTorch for the CPU is found, on releases of Debian that "
        "have a PyTorch of their own.",
    )


class _Combinations(_Strict):
    """Pythons and PyTorches that are made only when a variant needs them, in every combination."""

    model_config = ConfigDict(title="Combinations")

    python: list[_Minor] = _texts("Pythons besides the header's, which a recipe builds.")
    pytorch: list[str] = _texts("Releases of PyTorch besides that of its row.")
    packages: list[str] = Field(description="The rows that are made again for each.")


class _HeaderKeys(_Strict):
    """The keys of the header that may differ by base."""

    model_config = ConfigDict(title="HeaderKeys")

    suite: str | None = Field(default=None, description="Debian's code name of the release that the .debs come from.")
    python: _Minor | None = Field(default=None, description="The foundation's Python, as ``3.11``.")
    glibc: str | None = Field(
        default=None,
        pattern=r"^2\.\d+$",
        description="The newest glibc that a wheel may require: the release's own.",
    )
    combinations: _Combinations | None = Field(
        default=None, description="What is made only when a variant needs it; may be left out."
    )
    versions: dict[str, str] | None = Field(
        default=None,
        description="Versions in the names of Debian's packages: what ``{NAME}`` stands for in the texts of rows.",
    )


class _TableFile(_HeaderKeys):
    """The registry foundation's table, or a part of it; exactly one file has the header (suite, python ...)."""

    model_config = ConfigDict(title="FoundationTable")

    conda_names: dict[str, str] | None = Field(
        default=None, description="conda-forge's package name by PyPI's project name, if the two differ."
    )
    by_base: dict[BaseName, _HeaderKeys] | None = Field(
        default=None, description="The header of further Debian releases, as far as it differs."
    )
    packages: dict[str, _Row] = Field(
        description="Rows by conda package name; ``{subdir}`` stands for the platform, in texts also ``{machine}`` for "
        "its name in those of Debian's packages."
    )


def table_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of a table file, for editors."""
    return _TableFile.model_json_schema()


def load_table(
    paths: Sequence[Path] | None = None,
    *,
    subdir: PlatformName,
    repairs: Collection[str] | None = None,
    base: BaseName = FIRST_BASE,
    pytorch: PytorchSource = "wheel",
) -> FoundationTable:
    """Read the table of a Debian release and platform from ``paths`` (None: the program's own files, data/*.yaml).

    With Debian's own PyTorch, it has no combinations, which are made of wheels. ``repairs`` are the names of the steps
    that exist (None: those of the program). Raises ConfigError with file and
    line for anything that is wrong with a row or with the set of rows.
    """
    platform = {"subdir": subdir, "machine": _MACHINES[subdir]}
    known_repairs = _program_repairs() if repairs is None else repairs
    documents = [read_yaml(path) for path in (sorted(DATA_FOLDER.glob("*.yaml")) if paths is None else paths)]
    files = [(document, _parse(document)) for document in documents]
    document, header = _header(files)
    header = _changed(header, (header.by_base or {}).get(base))
    texts = {**platform, **{name: _filled(value, platform) for name, value in (header.versions or {}).items()}}
    entries: dict[str, Entry] = {}
    for document, file in files:
        for key, row in file.packages.items():
            if (row.bases and base not in row.bases) or (row.platforms and subdir not in row.platforms):
                continue
            keys = _changed(_changed(row, row.by_base.get(base)), row.by_platform.get(subdir))
            if pytorch == "debian":
                keys = _changed(keys, row.debian_pytorch.get(base))
            entry = _entry(document, key, keys, known_repairs, texts)
            if (other := entries.get(entry.name)) is not None:
                message = f"package {entry.name!r} already has a row, in {other.path}:{other.line}"
                raise document.error(message, "packages", key, hint="keep one of the two rows")
            entries[entry.name] = entry
    table = FoundationTable(
        suite=header.suite or "",
        python=header.python or "",
        glibc=header.glibc or "",
        conda_names=header.conda_names or {},
        entries=tuple(entries[name] for name in sorted(entries)),
    )
    if header.combinations is None or pytorch == "debian":
        return table
    return _with_combinations(table, document, header.combinations)


def _changed(keys: _Keys, different: BaseModel | None) -> _Keys:
    """The keys with those that differ on a base or platform."""
    changed = () if different is None else different.model_fields_set
    return keys.model_copy(update={name: getattr(different, name) for name in changed})


def _filled(text: str, values: Mapping[str, str]) -> str:
    """A text with the platform's and the Debian release's values for ``{subdir}``, ``{gcc}`` and the like."""
    return TEMPLATE.sub(lambda match: values.get(match[1], match[0]), text)


def _with_combinations(table: FoundationTable, document: YamlDocument, stated: _Combinations) -> FoundationTable:
    row = table.entry("pytorch")
    if row is None or not any("==" in text for text in row.wheels):
        message = "combinations need a PyTorch version, but the row 'pytorch' has no wheel with a version"
        raise document.error(message, "combinations", hint='give it wheels: ["torch==2.13.0"]')
    for index, name in enumerate(stated.packages):
        if table.entry(name) is None:
            hint = nearest_names_hint(name, [entry.name for entry in table.entries], noun="package")
            raise document.error(f"there is no row {name!r}", "combinations", "packages", index, hint=hint)
    default = Combination(python=table.python, pytorch=row.wheels[0].partition("==")[2])
    return replace(
        table,
        combinations=combinations_of(default, stated.python, stated.pytorch),
        combined=frozenset(stated.packages),
    )


def entry_value(entry: Entry) -> dict[str, Any]:
    """A row as plain JSON values, without its position in a file."""
    value = dataclasses.asdict(entry)
    del value["line"], value["path"]
    return value


def _program_repairs() -> Collection[str]:
    from channel_tools.foundation.repairs import REPAIRS  # noqa: PLC0415 - the steps need pyelftools and more

    return REPAIRS.keys()


def _parse(document: YamlDocument) -> _TableFile:
    if not isinstance(document.value, dict):
        message = "a table file must be a mapping with the key 'packages'"
        raise document.error(message, hint="see the files in channel_tools/foundation/data")
    try:
        return _TableFile.model_validate(document.value)
    except ValidationError as err:
        first = err.errors(include_url=False)[0]
        key_path = first["loc"]
        name = ".".join(str(part) for part in key_path)
        if first["type"] == "extra_forbidden":
            known = _Row.model_fields if key_path[0] == "packages" else _TableFile.model_fields
            raise document.error(
                f"unknown key {name}", *key_path, hint=nearest_names_hint(str(key_path[-1]), known, noun="key")
            ) from None
        raise document.error(f"{name}: {first['msg']}, found {first['input']!r}", *key_path) from None


def _header(files: Sequence[tuple[YamlDocument, _TableFile]]) -> tuple[YamlDocument, _TableFile]:
    """The one file with the header, which must be complete."""
    holders = [(document, file) for document, file in files if file.suite is not None]
    names = ", ".join(str(document.path) for document, _ in files) or f"{DATA_FOLDER}/*.yaml"
    if len(holders) != 1:
        message = f"{len(holders)} of these table files have the key 'suite'; expected exactly one: {names}"
        raise ConfigError(message, hint="put suite, python, glibc and conda_names into one file")
    document, header = holders[0]
    missing = [key for key in _HEADER_KEYS if getattr(header, key) is None]
    if missing:
        raise document.error(f"the header lacks {', '.join(missing)}", "suite")
    for other, file in files:
        for key in (*_HEADER_KEYS, "combinations", "versions", "by_base"):
            if file is not header and getattr(file, key) is not None:
                raise other.error(f"{key} must be in the same file as 'suite', {document.path}", key)
    return document, header


def _entry(
    document: YamlDocument, key: str, row: _Row, known_repairs: Collection[str], texts: Mapping[str, str]
) -> Entry:
    """The row ``key``, with ``texts`` for what its texts name."""
    key_path, name = ("packages", key), _filled(key, texts)
    if not _NAME.fullmatch(name):
        raise document.error(
            f"{name!r} is not a valid conda package name: expected lower-case letters, digits, - _ .", *key_path
        )
    if row.debs and row.wheels:
        raise document.error(f"{name}: give debs or wheels, not both", *key_path)
    if not (row.debs or row.wheels or row.version):
        raise document.error(f"{name}: a row without debs and wheels needs a version", *key_path)
    if row.optional and len(row.wheels) > 1:
        raise document.error(
            f"{name}: an optional row can have at most one wheel, which other wheels require", *key_path
        )
    if "{hash}" not in row.build:
        message = f"{name}: build {row.build!r} lacks {{hash}}, without which one name could have two contents"
        raise document.error(message, *key_path, "build", hint='for example build: "h{hash}_0"')
    for index, step in enumerate(row.repairs):
        if step not in known_repairs:
            message = f"{name}: there is no repair step {step!r}"
            raise document.error(
                message, *key_path, "repairs", index, hint=nearest_names_hint(step, known_repairs, noun="repair step")
            )

    def finished(value: object) -> Any:  # noqa: ANN401 - of any field
        if isinstance(value, list):
            return tuple(map(finished, value))
        return _filled(value, texts) if isinstance(value, str) else value

    values = {field: finished(value) for field, value in row if field in _RowKeys.model_fields}
    values["run_exports"] = RunExports(**{kind: finished(specs) for kind, specs in row.run_exports})
    return Entry(name=name, line=document.line_of(*key_path), path=document.path, **values)
