# SPDX-License-Identifier: BSD-3-Clause
"""The foundation's record, ``foundation.json``: what was made from which files. Also the file that --locked reads.

It names versions, hashes and sizes, never where a file came from: another site has other mirrors, and the same bytes.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from channel_tools.errors import ConfigError, FoundationError
from channel_tools.files import write_text_atomically
from channel_tools.foundation.model import TakenFile

if TYPE_CHECKING:
    from pathlib import Path

RECORD_NAME = "foundation.json"
SCHEMA = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordedPackage:
    """One package of the foundation."""

    name: str
    version: str
    build: str
    subdir: str
    file_name: str
    size_bytes: int
    unpacked_bytes: int
    sha256: str
    digest: str
    taken: tuple[TakenFile, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundationRecord:
    """Everything that a finished foundation is."""

    digest: str
    """Over the table, the code that made the packages and the subdir: equal means that there is nothing to do."""
    suite: str
    python: str
    subdir: str
    requirements: tuple[str, ...]
    """What pip was asked for; its answer holds as long as this stays."""
    packages: tuple[RecordedPackage, ...]
    asked: tuple[str, ...] = ()
    """The optional rows that were asked for; they stay until the record is made anew without them."""

    def taken(self) -> dict[tuple[str, str], TakenFile]:
        """Every file that was taken, by kind and name."""
        return {(file.kind, file.name): file for package in self.packages for file in package.taken}


class _Model(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")


class _TakenModel(_Model):
    kind: Literal["deb", "wheel"]
    name: str
    version: str
    file_name: str = Field(pattern=r"^[^/]+$")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    size_bytes: int = Field(ge=0)
    requires: list[str] = Field(default_factory=list)


class _PackageModel(_Model):
    name: str
    version: str
    build: str
    subdir: str = Field(pattern=r"^[a-z0-9-]+$")
    file_name: str = Field(pattern=r"^[^/]+\.conda$")
    size_bytes: int
    unpacked_bytes: int
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    digest: str
    taken: list[_TakenModel]


class _RecordModel(_Model):
    schema_: Literal[1] = Field(alias="schema")
    digest: str
    suite: str
    python: str
    subdir: str
    requirements: list[str]
    packages: list[_PackageModel]
    asked: list[str] = Field(default_factory=list)


def read_record(destination: Path) -> FoundationRecord:
    """The record of the foundation in the folder ``destination``.

    Raises FoundationError when there is none, ConfigError when it is not readable as one.
    """
    path = destination / RECORD_NAME
    if not path.is_file():
        message = f"{path}: there is no foundation here"
        raise FoundationError(message, hint="make it with: channel_tools foundation build")
    return read_record_file(path)


def read_record_file(path: Path) -> FoundationRecord:
    """As read_record, for a record under any name (a lock). Raises ConfigError when it is missing or no record."""
    try:
        model = _RecordModel.model_validate_json(path.read_bytes())
    except OSError as err:
        raise ConfigError(f"cannot be read: {err.strerror}", path=path) from None
    except ValidationError as err:
        first = err.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        message = f"no record of a foundation (schema {SCHEMA}): {where}: {first['msg']}"
        raise ConfigError(message, path=path, hint="give a foundation.json that this program wrote") from None
    return FoundationRecord(
        digest=model.digest,
        suite=model.suite,
        python=model.python,
        subdir=model.subdir,
        requirements=tuple(model.requirements),
        packages=tuple(_package(package) for package in model.packages),
        asked=tuple(model.asked),
    )


def write_record(destination: Path, record: FoundationRecord) -> None:
    """Replace the record in the folder ``destination``."""
    value = {"schema": SCHEMA, **asdict(record)}
    write_text_atomically(destination / RECORD_NAME, json.dumps(value, indent=1, sort_keys=True) + "\n")


def _package(model: _PackageModel) -> RecordedPackage:
    fields = model.model_dump(exclude={"taken"})
    taken = (file.model_dump(exclude={"requires"}) | {"requires": tuple(file.requires)} for file in model.taken)
    return RecordedPackage(**fields, taken=tuple(TakenFile(**file) for file in taken))
