# SPDX-License-Identifier: BSD-3-Clause
"""The values of the publish stage: labels, sets of package files, plans, reports, and the content of a label.

A label is a separate channel: ``main`` is at the target's address itself, any other at ``label/NAME`` below it, as on
anaconda.org. So every client can read every label from static files, and promoting is linking. Publishing and serving
accept the same names: what conda clients accept as a part of an address, including capitals.

Names of packages (in reports, listings and the server's protocol) are strings, ``subdir/file name``.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from channel_tools.channel.listing import Patch, changes_between
from channel_tools.conda.archive import read_info_files
from channel_tools.conda.contents import info_object
from channel_tools.conda.metadata import checked_index, subdir_of
from channel_tools.conda.package import PACKAGE_SUFFIXES, PackageRef, stem_of
from channel_tools.conda.repodata import INDEX_LIMIT_BYTES, REPODATA, decode_repodata
from channel_tools.system.counting import counted
from channel_tools.system.document import decode_json
from channel_tools.system.errors import IntegrityError, UsageError
from channel_tools.system.files import absolute_path, read_regular, sha256_of_file

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from channel_tools.channel import Foundation
    from channel_tools.conda.contents import JsonObject

MAIN_LABEL = "main"
LABEL_FOLDER = "label"
NEVER_CHANGE_HINT = "published files never change: raise the recipe's build number and build again"
LABEL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


def is_label(name: str) -> bool:
    """Whether ``name`` is a valid label name."""
    return LABEL_NAME.fullmatch(name) is not None


def check_label(label: str) -> str:
    """Return ``label`` unchanged. Raises UsageError unless it can be part of an address."""
    if not is_label(label):
        message = (
            f"{label!r} is not a valid label: expected at most 64 letters, digits, '.', '_' and '-', "
            "starting with a letter or digit"
        )
        raise UsageError(message, hint=f"for example {MAIN_LABEL} or testing")
    return label


def label_path(label: str) -> str:
    """The path of the label's channel below the target's address: empty for main, else ``label/NAME``."""
    return "" if check_label(label) == MAIN_LABEL else f"{LABEL_FOLDER}/{label}"


def label_address(address: str, label: str) -> str:
    """The channel address for the label that clients use."""
    path = label_path(label)
    return f"{address.rstrip('/')}/{path}" if path else address


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class PackageFile(PackageRef):
    """A package file that can be published."""

    path: Path

    def ref(self) -> PackageRef:
        """The file without its path, as sent to servers."""
        return self.key.ref(self.sha256, self.size_bytes, foundation=self.foundation)

    @classmethod
    def of(cls, ref: PackageRef, path: Path) -> PackageFile:
        """The package whose file is at ``path``."""
        return cls(
            subdir=ref.subdir,
            file_name=ref.file_name,
            sha256=ref.sha256,
            size_bytes=ref.size_bytes,
            foundation=ref.foundation,
            path=path,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class PackageSet:
    """Packages published together: readers see all of ``files`` or none. ``name`` is for people (``stack udp``).

    ``foundation`` is what the packages were built on: a target has packages for one foundation only, and with the
    registry foundation its packages are among ``files``. ``patches`` of subdirs are what the packages' channel lists
    otherwise than they say themselves; they are for packages that the target lacks.
    """

    name: str
    files: tuple[PackageFile, ...]
    foundation: Foundation
    patches: Mapping[str, Patch] = field(default_factory=dict)

    def by_name(self) -> dict[str, PackageFile]:
        """The files by ``subdir/file name``."""
        return {str(file.key): file for file in self.files}


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class LabelPackage(PackageRef):
    """A package under a label; ``hidden`` says why new solves do not see it (None: they do), ``yanked`` why it was
    yanked (None: it was not).
    """

    name: str
    version: str
    build: str
    build_number: int
    depends: tuple[str, ...]
    hidden: str | None
    yanked: str | None
    md5: str | None = None
    license: str | None = None
    license_family: str | None = None
    features: str | None = None
    track_features: tuple[str, ...] = ()

    @property
    def index(self) -> Mapping[str, object]:
        """The fields of its record that MatchSpecs are compared with, and its dependencies."""
        return {
            "version": self.version,
            "build": self.build,
            "build_number": self.build_number,
            "depends": self.depends,
            "sha256": self.sha256,
            "md5": self.md5,
            "license": self.license,
            "license_family": self.license_family,
            "features": self.features,
            "track_features": self.track_features,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """A set compared with a label: its packages (``subdir/file name``) by what has to be done to publish them there.

    ``upload`` are those that the target lacks, ``link`` those that it has under another label, ``present`` those that
    are in place.
    """

    upload: tuple[str, ...]
    link: tuple[str, ...]
    present: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishPlan:
    """What publishing a set under ``label`` would do, by its comparison with that; planning changes nothing.

    A name that the target has with other bytes makes planning fail with a ChannelError.
    """

    packages: PackageSet
    label: str
    comparison: Comparison

    @property
    def upload(self) -> tuple[PackageFile, ...]:
        """The files that the target lacks."""
        return self._files(self.comparison.upload)

    @property
    def link(self) -> tuple[PackageFile, ...]:
        """The files that it has under another label."""
        return self._files(self.comparison.link)

    @property
    def present(self) -> tuple[PackageFile, ...]:
        """The files that are in place."""
        return self._files(self.comparison.present)

    def _files(self, names: tuple[str, ...]) -> tuple[PackageFile, ...]:
        files = self.packages.by_name()
        return tuple(files[name] for name in names)

    @property
    def upload_bytes(self) -> int:
        """How many bytes have to be sent."""
        return sum(file.size_bytes for file in self.upload)


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishReport:
    """What publishing did: the label's address for clients, and the names of the new files there."""

    address: str
    label: str
    uploaded: tuple[str, ...]
    linked: tuple[str, ...]
    seconds: float


def file_set(paths: Sequence[Path], foundation: Foundation) -> PackageSet:
    """The set of package files, wherever they are: our own packages, built on ``foundation``.

    A package's own metadata says to which subdir it belongs. Where a repodata.json beside it lists these bytes with
    other requirements, that is a correction, which is published with it. Raises UsageError for a path that is not a
    package file or is not named as the package, and for two files with the same name, IntegrityError for a damaged one.
    """
    files: dict[str, PackageFile] = {}
    patches: dict[str, Patch] = {}
    listed = functools.cache(_listed_in)
    for path in paths:
        file, changes = _package_file(path, listed)
        if changes:
            patch = Patch(records={file.file_name: changes})
            patches[file.subdir] = patches.get(file.subdir, Patch()).merged(patch)
        known = files.setdefault(str(file.key), file)
        if known.sha256 != file.sha256:
            message = f"{path}: {known.path} has the same name and other bytes"
            raise UsageError(message, hint="publish only one of them")
    name = paths[0].name if len(paths) == 1 else counted(len(files), "file")
    return PackageSet(name=name, files=tuple(sorted(files.values())), foundation=foundation, patches=patches)


def _listed_in(folder: Path) -> Mapping[str, msgspec.Raw]:
    """The records in a folder's repodata.json, by file name; none if there is no such file.

    Raises IntegrityError if it cannot be read.
    """
    path = folder / REPODATA
    try:
        return decode_repodata(read_regular(path, limit_bytes=INDEX_LIMIT_BYTES)).records
    except FileNotFoundError:
        return {}
    except msgspec.MsgspecError as err:
        hint = "index that channel again, or publish copies of its packages from another folder"
        raise IntegrityError(f"{path}: what is listed of the packages cannot be read: {err}", hint=hint) from None


def _package_file(path: Path, listed: Callable[[Path], Mapping[str, msgspec.Raw]]) -> tuple[PackageFile, JsonObject]:
    """The package, and the fields of its record that ``listed`` of its folder has otherwise than itself."""
    if not path.name.endswith(PACKAGE_SUFFIXES) or not path.is_file():
        message = f"{path}: no such package file; expected the path of a {' or '.join(PACKAGE_SUFFIXES)} file"
        raise UsageError(message, hint="for example toy-1.0-0.conda, in any folder")
    sha256 = sha256_of_file(path)
    row = listed(path.parent).get(path.name)
    record = {} if row is None else decode_json(row, dict[str, object])
    of_these_bytes = record.get("sha256") == sha256
    own = info_object(read_info_files(path, frozenset({"index.json"})), "index.json", path)
    changes = changes_between(own, record) if of_these_bytes else {}
    index = checked_index(own, path, lambda: changes)
    stem = f"{index['name']}-{index['version']}-{index['build']}"
    if stem != stem_of(path.name):
        expected = stem + path.name.removeprefix(stem_of(path.name))
        message = f"{path}: its metadata says that it is {stem}; expected the file to be named {expected}"
        raise UsageError(message, hint=f"rename it to {expected}")
    subdir = subdir_of(index)
    if subdir is None:
        message = f"{path}: its index.json has no subdir, nor the platform and arch of older packages"
        raise UsageError(message, hint="build it again with a tool that writes the subdir")
    file = PackageFile(
        subdir=subdir,
        file_name=path.name,
        path=absolute_path(path),
        sha256=sha256,
        size_bytes=path.stat().st_size,
    )
    return file, changes
