# SPDX-License-Identifier: BSD-3-Clause
"""The foundation's record, ``foundation.json``: what was made from which files. --locked reads such a file.

It has versions, hashes and sizes, but not addresses: another site has other mirrors, but the same bytes. ``foundation
list`` shows it with the table.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from channel_tools.conda.package import PackageKey
from channel_tools.foundation.model import LockedArtifact, Sha256  # noqa: TC001 - msgspec reads the annotations
from channel_tools.system.document import decode_json
from channel_tools.system.errors import ConfigError, FoundationError
from channel_tools.system.files import write_text_atomically

if TYPE_CHECKING:
    from pathlib import Path

    from channel_tools.foundation.model import Entry, PytorchSource
    from channel_tools.foundation.plan import PackagePlan
    from channel_tools.foundation.table import FoundationTable

RECORD_NAME = "foundation.json"
_DEBIAN_PYTORCH = ("deb", "python3-torch")
SCHEMA = 1
State = Literal["made", "not made"]


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordedPackage:
    """One package that was made: its name, its hash and size, and the files that it was made from."""

    name: str
    version: str
    build: str
    subdir: Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9-]+$")]
    file_name: Annotated[str, msgspec.Meta(pattern=r"^[^/]+\.conda$")]
    size_bytes: int
    unpacked_bytes: int
    sha256: Sha256
    digest: str
    taken: tuple[LockedArtifact, ...]
    combination: str | None = None
    """The first combination that it was made for; None: it belongs to the table itself."""

    @property
    def key(self) -> PackageKey:
        """Its key in the channel."""
        return PackageKey(self.subdir, self.file_name)

    @property
    def is_given(self) -> bool:
        """Whether a recipe built it and the foundation uses it unchanged, so that it counts as our own package."""
        return not self.digest


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordedCombination:
    """The wheels of a combination of a Python and a PyTorch."""

    name: str
    taken: tuple[LockedArtifact, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundationRecord:
    """Everything that describes a finished foundation."""

    digest: str
    """The digest of the table, the code that made the packages and the subdir; if equal, there is nothing to do."""
    suite: str
    python: str
    subdir: str
    requirements: tuple[str, ...]
    """The requirements given to pip; its result is reused while they are unchanged."""
    packages: tuple[RecordedPackage, ...]
    asked: tuple[str, ...] = ()
    """The requested optional rows; they stay until the record is made again without them."""
    combinations: tuple[RecordedCombination, ...] = ()
    """The requested combinations; they stay, too."""
    needed: tuple[str, ...] | None = None
    """The rows that are made without being requested by name; they stay. None: all that are not optional."""

    def artifacts(self) -> dict[tuple[str, str], LockedArtifact]:
        """Every file used for the table's own packages, by kind and name."""
        own = (package for package in self.packages if package.combination is None)
        return {(file.kind, file.name): file for package in own for file in package.taken}

    @property
    def pytorch_source(self) -> PytorchSource:
        """Where its PyTorch comes from."""
        return "debian" if _DEBIAN_PYTORCH in self.artifacts() else "wheel"

    @property
    def pytorch(self) -> LockedArtifact | None:
        """The wheel or Debian package of its PyTorch, if it has one."""
        artifacts = self.artifacts()
        return artifacts.get(_DEBIAN_PYTORCH) or artifacts.get(("wheel", "torch"))


@dataclass(frozen=True, kw_only=True, slots=True)
class _Header:
    schema: Literal[1]


def read_record(destination: Path) -> FoundationRecord:
    """The record of the foundation in the folder ``destination``.

    Raises FoundationError if there is none, ConfigError if it is not valid.
    """
    path = destination / RECORD_NAME
    if not path.is_file():
        message = f"{path}: there is no foundation here"
        raise FoundationError(message, hint="make it with channel_tools foundation build")
    return read_record_file(path)


def read_record_file(path: Path) -> FoundationRecord:
    """The record in a file of any name (a lock). Raises ConfigError if it is missing or not a record."""
    try:
        content = path.read_bytes()
        decode_json(content, _Header)
        return decode_json(content, FoundationRecord)
    except OSError as err:
        raise ConfigError(f"cannot be read: {err.strerror}", path=path) from None
    except msgspec.DecodeError as err:
        message = f"not a valid foundation record (schema {SCHEMA}): {err}"
        raise ConfigError(message, path=path, hint="give a foundation.json that this program wrote") from None


def write_record(destination: Path, record: FoundationRecord) -> None:
    """Replace the record in the folder ``destination``."""
    value = {"schema": SCHEMA, **asdict(record)}
    write_text_atomically(destination / RECORD_NAME, json.dumps(value, indent=1, sort_keys=True) + "\n")


def recorded(plan: PackagePlan, *, size_bytes: int, unpacked_bytes: int, sha256: str) -> RecordedPackage:
    """The record of a package that was made as planned."""
    return RecordedPackage(
        name=plan.entry.name,
        version=plan.version,
        build=plan.build,
        subdir=plan.subdir,
        file_name=plan.file_name,
        size_bytes=size_bytes,
        unpacked_bytes=unpacked_bytes,
        sha256=sha256,
        digest=plan.digest,
        taken=plan.taken,
        combination=None if plan.combination is None else plan.combination.name,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundationRow:
    """One package of the table or of the record."""

    name: str
    state: State
    kind: Literal["deb", "wheel", "none"]
    version: str | None
    build: str | None
    subdir: str | None
    size_bytes: int | None
    taken: tuple[str, ...]
    """``name=version`` of the files used, or the names to use if nothing was made yet."""


def list_foundation(table: FoundationTable, record: FoundationRecord | None) -> list[FoundationRow]:
    """A row per package, by name: those of the table, and those made from wheels that pip added."""
    packages = record.packages if record else ()
    missing = {entry.name for entry in table.entries} - {package.name for package in packages}
    rows = [_row(table.entry(package.name), package, package.name) for package in packages]
    rows += [_row(table.entry(name), None, name) for name in missing]
    return sorted(rows, key=lambda row: (row.name, row.version or "", row.build or ""))


def _row(entry: Entry | None, package: RecordedPackage | None, name: str) -> FoundationRow:
    sources = () if entry is None else (*entry.debs, *entry.wheels)
    kinds = {file.kind for file in package.taken} if package else set()
    return FoundationRow(
        name=name,
        state="not made" if package is None else "made",
        kind=next(iter(kinds), "deb" if entry and entry.debs else "wheel" if sources else "none"),
        version=package.version if package else entry.version if entry else None,
        build=package.build if package else None,
        subdir=package.subdir if package else None,
        size_bytes=package.size_bytes if package else None,
        taken=tuple(f"{file.name}={file.version}" for file in package.taken) if package else sources,
    )
