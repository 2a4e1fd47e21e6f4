# SPDX-License-Identifier: BSD-3-Clause
"""What the registry foundation is made of: the rows of its table, the files it took, the context of a repair step.

Plain values only; the table's file format is checked in table.py, and how rows become packages stands in build.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from channel_tools.packages.model import PREFIX_PLACEHOLDER as PREFIX_PLACEHOLDER  # noqa: PLC0414 - for the steps

FileKind = Literal["deb", "wheel"]


@dataclass(frozen=True, kw_only=True, slots=True)
class RunExports:
    """What a package adds to the requirements of packages built with it (CEP 12)."""

    weak: tuple[str, ...] = ()
    strong: tuple[str, ...] = ()
    noarch: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One conda package of the table.

    Either ``debs`` (Debian binary packages, unpacked over each other in this order) or ``wheels`` (project names with
    an optional version specifier) say where its files come from; neither makes a package without files. The version
    is that of the first deb or wheel unless ``version`` states one. ``depends`` are MatchSpecs on other entries; a
    wheel's own requirements are added to them.

    In ``version``, ``depends``, ``constrains``, ``run_exports`` and ``build`` these stand for facts of the finished
    table (expanded in templates.py): ``{version}`` is this package's version, ``{version:NAME}`` and ``{build:NAME}``
    another row's; ``{pin:x.x}`` is the range ``>=1.51.1,<1.52.0a0`` from this version with so many segments held, and
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
    """Made only when needed: asked for by name, a dependency of what is made, or its wheel required by another."""
    path: Path | None = None
    """The table file that holds the row, for messages (with ``line``)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TakenFile:
    """A .deb or wheel as it was taken: enough to demand the same bytes again."""

    kind: FileKind
    name: str
    version: str
    file_name: str
    sha256: str
    size_bytes: int
    """0 for a wheel that was resolved but not downloaded yet."""
    requires: tuple[str, ...] = ()
    """What a wheel requires on the foundation's python, as ``project>=1.2``: markers evaluated, extras followed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RepairContext:
    """What a repair step may know about the package whose tree it mends."""

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
