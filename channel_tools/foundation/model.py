# SPDX-License-Identifier: BSD-3-Clause
"""The values of the registry foundation: the rows of its table, the files used, the context of a repair step.

Plain values only; table.py checks the table's file format, and build.py makes packages from rows.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from channel_tools.conda.metadata import PREFIX_PLACEHOLDER as PREFIX_PLACEHOLDER  # noqa: PLC0414 - for the steps
from channel_tools.conda.package import RunExports
from channel_tools.system.errors import ConfigError
from channel_tools.system.yamlfile import read_yaml

if TYPE_CHECKING:
    from channel_tools.conda.platforms import PlatformName
    from channel_tools.requests.names import BaseName

FileKind = Literal["deb", "wheel"]
PytorchSource = Literal["wheel", "debian"]
"""Where PyTorch comes from: its wheel, or Debian's own packages, on releases that have it."""
Sha256 = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}$")]
DATA_FOLDER = Path(__file__).parent / "data"
"""The program's own table, and the templates of its repair steps."""
TEMPLATE = re.compile(r"\{([^{}]*)\}")
"""What is filled in where a row names a version: ``{version}``, ``{pin:x.x}``."""


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class Combination:
    """A pair of a Python and a PyTorch: ``3.13`` and ``2.12.0``."""

    python: str
    pytorch: str

    @property
    def name(self) -> str:
        """Its name for users: ``python3.13-pytorch2.12``."""
        return f"python{self.python}-pytorch{self.pytorch.rpartition('.')[0]}"

    def __str__(self) -> str:
        return f"PyTorch {self.pytorch} on Python {self.python}"


def combinations_of(default: Combination, pythons: Iterable[str], pytorches: Iterable[str]) -> tuple[Combination, ...]:
    """Every pair of the Pythons and PyTorches, except the table's ``default``."""
    pairs = itertools.product((default.python, *pythons), (default.pytorch, *pytorches))
    return tuple(pair for pair in (Combination(python=a, pytorch=b) for a, b in pairs) if pair != default)


def deb_name(text: str) -> str:
    """The name of a row's Debian package.

    >>> deb_name("libabsl-dev=0~20200923.3-2")
    'libabsl-dev'
    """
    return text.partition("=")[0]


def reachable(start: Iterable[str], leads_to: Callable[[str], Iterable[str]]) -> set[str]:
    """The names in ``start`` and all that are reachable from them."""
    names: set[str] = set()
    waiting = list(start)
    while waiting:
        name = waiting.pop()
        if name not in names:
            names.add(name)
            waiting += leads_to(name)
    return names


def names_in(specs: Iterable[str]) -> list[str]:
    """The package names of a row's MatchSpecs, whose templates need not be filled in. Raises InvalidSpecError."""
    from channel_tools.conda.specs import spec_name  # noqa: PLC0415 - it imports rattler, which the steps do without

    return [spec_name(TEMPLATE.sub("0", spec)) for spec in specs]


@dataclass(frozen=True, kw_only=True, slots=True)
class TableSummary:
    """The part of the program's table that planning needs."""

    rows: frozenset[str]
    """All rows."""
    optional: frozenset[str]
    """The rows that are made only when needed."""
    default: Combination
    """What is made without being requested."""
    combinations: tuple[Combination, ...]
    """What is made only on request."""
    debian_pytorch: str | None
    """The version of Debian's own PyTorch; None: the release has none."""


@functools.cache
def table_summary(base: BaseName, subdir: PlatformName, pytorch: PytorchSource = "wheel") -> TableSummary:
    """The summary of the program's table on a Debian release and platform; the rows are not checked, as by load_table.

    Raises ConfigError for a table that does not parse.
    """
    values = [read_yaml(path).value for path in sorted(DATA_FOLDER.glob("*.yaml"))]
    tables: list[dict[str, Any]] = [value for value in values if isinstance(value, dict)]
    groups = [group for table in tables if isinstance(group := table.get("packages"), dict)]

    def of_debian(row: dict[str, Any]) -> dict[str, Any]:
        return row.get("debian_pytorch", {}).get(base, {}) if pytorch == "debian" else {}

    rows = {
        name.replace("{subdir}", subdir): row | row.get("by_base", {}).get(base, {}) | of_debian(row)
        for group in groups
        for name, row in group.items()
        if isinstance(row, dict) and base in row.get("bases", [base]) and subdir in row.get("platforms", [subdir])
    }
    header: dict[str, Any] = next(table for table in tables if "suite" in table)
    header = {**header, **header.get("by_base", {}).get(base, {})}
    row = rows["pytorch"]
    version = row["version"] if pytorch == "debian" else "".join(row["wheels"]).partition("==")[2]
    default = Combination(python=header["python"], pytorch=version)
    more = header.get("combinations", {}) if pytorch == "wheel" else {}
    return TableSummary(
        rows=frozenset(rows),
        optional=frozenset(name for name, row in rows.items() if row.get("optional") is True),
        default=default,
        combinations=combinations_of(default, more.get("python", ()), more.get("pytorch", ())),
        debian_pytorch=row.get("debian_pytorch", {}).get(base, {}).get("version"),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One conda package of the table.

    Either ``debs`` (Debian binary packages, unpacked over each other in this order) or ``wheels`` (project names with
    an optional version specifier) say where its files come from; neither makes a package without files. The version
    is that of the first deb or wheel unless ``version`` states one. ``depends`` are MatchSpecs on other entries; a
    wheel's own requirements are added to them.

    In ``version``, ``depends``, ``constrains``, ``run_exports`` and ``build`` these stand for facts of the finished
    table (expanded in templates.py): ``{version}`` is this package's version, ``{version:NAME}`` and ``{build:NAME}``
    another row's; ``{pin:x.x}`` is the range ``>=1.51.1,<1.52.0a0`` from this version with so many segments kept, and
    ``{pin:NAME:x.x}`` the same for another row. ``build`` must hold ``{hash}`` (seven digits over all that decides the
    content) and may hold ``{py}`` (``py311``) and ``{flavour}`` (``cpu`` or ``cuda130``, a wheel's local version).

    ``skip`` are globs on paths inside the .deb or wheel that are never unpacked (large parts of another row);
    ``keep`` and ``drop`` are globs on paths inside the prefix, applied after the repair steps; ``keep`` empty keeps
    all. A glob's ``*`` also matches ``/``. ``noarch`` puts a package into the noarch subdir; for wheels their own tag
    decides.
    """

    name: str
    line: int
    debs: tuple[str, ...] = ()
    wheels: tuple[str, ...] = ()
    version: str | None = None
    depends: tuple[str, ...] = ()
    constrains: tuple[str, ...] = ()
    run_exports: RunExports = field(default_factory=RunExports)
    keep: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    repairs: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    build: str = "h{hash}_0"
    noarch: bool = False
    optional: bool = False
    """Made only when needed: requested by name, a dependency of another row, or its wheel required by another."""
    path: Path | None = None
    """The table file with the row, for messages (with ``line``)."""

    @property
    def position(self) -> str:
        """Name, file and line, for messages of errors other than ConfigError."""
        return f"{self.name} ({self.path.name}:{self.line})" if self.path else f"{self.name} (line {self.line})"

    def error(self, message: str) -> ConfigError:
        """A ConfigError on this row."""
        return ConfigError(f"package {self.name!r}: {message}", path=self.path, line=self.line)


@dataclass(frozen=True, kw_only=True, slots=True)
class LockedArtifact:
    """A .deb or wheel that was used, with all that is needed to get the same bytes again."""

    kind: FileKind
    name: str
    version: str
    file_name: Annotated[str, msgspec.Meta(pattern=r"^[^/]+$")]
    sha256: Sha256
    size_bytes: Annotated[int, msgspec.Meta(ge=0)]
    """0 for a wheel that was resolved but not yet downloaded."""
    requires: tuple[str, ...] = ()
    """A wheel's requirements on the foundation's python, as ``project>=1.2``: markers evaluated, extras resolved."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RepairContext:
    """What a repair step knows about the package whose tree it changes."""

    entry: Entry
    version: str
    subdir: str
    """``linux-64`` or ``linux-aarch64``."""
    multiarch: str
    """Debian's name of the architecture in paths, ``x86_64-linux-gnu``."""
    python_version: str
    """``3.11``: major and minor of the foundation's python."""


# A step edits the unpacked tree in place; the tree's root stands for the installation prefix (bin/, lib/ ...). It
# raises FoundationError when the tree is not what the step expects, so that a changed upstream is noticed.
Repair = Callable[[Path, RepairContext], None]
