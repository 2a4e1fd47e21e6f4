# SPDX-License-Identifier: BSD-3-Clause
"""A version of the package conda-forge-pinning in the tree: the files that variants are read from, and their record.

``locks/conda-forge-pinning/VERSION/`` (docs/reference/foundation-lock.md) has these files at their places in the
package, and ``record.json`` with the package's name and sha256 and the sha256 of each file. Plans read nothing else of
it, so they are the same on every machine, without a network, until the named version is changed.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import msgspec

from channel_tools.conda.package import PackageKey, split_file_name
from channel_tools.matrix.variants import CONDA_BUILD_CONFIG
from channel_tools.system.document import decode_json
from channel_tools.system.errors import ConfigError
from channel_tools.system.files import atomic_path, open_regular, remove_tree, walk_entries

if TYPE_CHECKING:
    from collections.abc import Mapping

    from channel_tools.conda.package import PackageRef

PINNING_PACKAGE = "conda-forge-pinning"
PACKAGE_MIGRATIONS = "share/conda-forge/migrations"
"""Where the package has its migrations, beside ``conda_build_config.yaml`` at its root."""
RECORD_FILE = "record.json"
RECORD_SCHEMA = 1
_SUFFIX = ".yaml"
_VERSION = re.compile(r"\d+(\.\d+)+")


class PinningFilesError(ConfigError):
    """The files of a pinning in the tree are not those of a record beside them; fetching it again mends that."""

    def __init__(self, message: str, *, path: Path) -> None:
        hint = "restore it from version control, or fetch the package again: channel_tools foundation lock"
        super().__init__(message, path=path, hint=hint)


@dataclass(frozen=True, kw_only=True, slots=True)
class PinnedPackage:
    """A package conda-forge-pinning, and the content of those of its files that are kept, by their paths in it."""

    ref: PackageRef
    files: Mapping[str, bytes]

    @property
    def version(self) -> str:
        """The version of the package."""
        return _identity(self.ref.file_name)[1]

    @property
    def build(self) -> str:
        """The build string of the package."""
        return _identity(self.ref.file_name)[2]


class _PinningRecord(msgspec.Struct, forbid_unknown_fields=True):
    schema: int
    package: str
    sha256: str
    size: int
    files: dict[str, str]


def is_pinning_version(text: str) -> bool:
    """Whether ``pinning`` names a version, which is numbers with dots between them; anything else is a path."""
    return _VERSION.fullmatch(text) is not None


def is_kept(name: str) -> bool:
    """Whether a file of the package, by its path in it, is one that variants are read from."""
    path = PurePosixPath(name)
    return name == CONDA_BUILD_CONFIG or (str(path.parent) == PACKAGE_MIGRATIONS and path.suffix == _SUFFIX)


def pinned_folder(root: Path, version: str) -> Path:
    """Where a tree has this version of the pinning."""
    return root / "locks" / PINNING_PACKAGE / version


def read_pinned(root: Path, version: str) -> PinnedPackage:
    """The pinning of this version in the tree.

    Raises PinningFilesError unless its files are exactly the recorded ones, ConfigError for a record that only a later
    version can read.
    """
    folder = pinned_folder(root, version)
    record = _read_record(folder, version)
    paths = {
        path.relative_to(folder).as_posix(): path
        for path in sorted(Path(entry.path) for entry in walk_entries(folder))
        if path.suffix == _SUFFIX
    }
    if missing := sorted((record.files.keys() | {CONDA_BUILD_CONFIG}) - paths.keys()):
        message = f"does not exist; {folder / RECORD_FILE} is the record of a pinning that has it"
        raise PinningFilesError(message, path=folder / missing[0])
    files: dict[str, bytes] = {}
    for name, path in paths.items():
        with open_regular(path) as stream:
            files[name] = stream.read()
        sha256 = hashlib.sha256(files[name]).hexdigest()
        if (recorded := record.files.get(name)) != sha256:
            expected = "no such file" if recorded is None else f"sha256 {recorded}"
            raise PinningFilesError(f"has sha256 {sha256}; {folder / RECORD_FILE} has {expected}", path=path)
    return PinnedPackage(ref=_ref_of(record), files=files)


def recorded_package(root: Path, version: str) -> PackageRef | None:
    """The package that the tree's record of this version names; None for a record that is missing or damaged.

    Raises ConfigError for one that only a later version can read.
    """
    try:
        return _ref_of(_read_record(pinned_folder(root, version), version))
    except PinningFilesError:
        return None


def _read_record(folder: Path, version: str) -> _PinningRecord:
    path = folder / RECORD_FILE
    try:
        record = decode_json(path.read_bytes(), _PinningRecord)
        key = PackageKey.parse(record.package)
    except FileNotFoundError:
        raise PinningFilesError("does not exist; expected the record of a pinning", path=path) from None
    except ValueError as err:
        raise PinningFilesError(f"cannot be read as the record of a pinning: {err}", path=path) from None
    if record.schema != RECORD_SCHEMA:
        message = f"has schema {record.schema}; this version reads {RECORD_SCHEMA}"
        raise ConfigError(message, path=path, hint="update channel_tools")
    if _identity(key.file_name)[:2] != (PINNING_PACKAGE, version):
        message = f"is the record of {record.package}; expected {PINNING_PACKAGE} {version}"
        raise PinningFilesError(message, path=path)
    return record


def _ref_of(record: _PinningRecord) -> PackageRef:
    return PackageKey.parse(record.package).ref(record.sha256, record.size, foundation=True)


def _identity(file_name: str) -> tuple[str, str, str]:
    return split_file_name(file_name, old_format=True) or ("", "", "")


def write_pinned(root: Path, pinned: PinnedPackage) -> Path:
    """Write the pinning into the tree, in place of what is there of its version; returns its folder."""
    folder = pinned_folder(root, pinned.version)
    record = _PinningRecord(
        schema=RECORD_SCHEMA,
        package=str(pinned.ref.key),
        sha256=pinned.ref.sha256,
        size=pinned.ref.size_bytes,
        files={name: hashlib.sha256(content).hexdigest() for name, content in sorted(pinned.files.items())},
    )
    with atomic_path(folder) as temporary:
        for name, content in pinned.files.items():
            (temporary / name).parent.mkdir(parents=True, exist_ok=True)
            (temporary / name).write_bytes(content)
        (temporary / RECORD_FILE).write_bytes(msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n")
        remove_tree(folder)
    return folder


def remove_other_versions(root: Path, version: str) -> None:
    """Remove the other versions of the pinning from the tree; folders without a record are not touched."""
    for path in sorted(pinned_folder(root, version).parent.iterdir()):
        if path.name != version and is_pinning_version(path.name) and (path / RECORD_FILE).is_file():
            remove_tree(path)
