# SPDX-License-Identifier: BSD-3-Clause
"""How packages are identified, from the plan to the mirror.

A file name is unique within a subdir, so a channel identifies a package by both: ``linux-64/zlib-1.3-h1_0.conda``. A
name says nothing about bytes; code that copies a package uses a PackageRef, which does.

A package's attestations are beside it, as defined by CEP 50 and read by rattler's indexer: ``NAME.conda.sigs`` is a
JSON array of Sigstore bundles. Clients read the same bytes as ``NAME.conda.sigs.SHA256``, a name that they make from
``attestations_sha256`` of the package's record, so different attestations have different names.

The scripts of a package that clients may run while they install or remove it, by where clients look for them.

They are described in conda-build's documentation ("Adding pre-link, post-link, and pre-unlink scripts"); the paths are
those of conda/core/link.py (run_script). conda runs all four kinds. rattler knows post-link and pre-unlink
(crates/rattler/src/install/link_script.rs) and runs them only on request; pixi does not request it by default.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from channel_tools.conda.addresses import split_last, without_credentials
from channel_tools.system.beneath import Beneath, folder_beneath, opened_in
from channel_tools.system.errors import IntegrityError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

NOARCH = "noarch"
PACKAGE_SUFFIX = ".conda"
_SUBDIR_NAME = re.compile(r"noarch|[a-z]+-[a-z0-9_]+")
OLD_SUFFIX = ".tar.bz2"
"""The suffix of packages in the older format, which are read, listed, installed and mirrored, but not built here."""
PACKAGE_SUFFIXES = (PACKAGE_SUFFIX, OLD_SUFFIX)
_FILE_NAME = re.compile(r"(?P<name>[^/]+)-(?P<version>[^-/]+)-(?P<build>[^-/]+)(?P<suffix>\.conda|\.tar\.bz2)")


_Row = TypeVar("_Row")


INSTALLATION = ("pre-link", "post-link")
REMOVAL = ("pre-unlink", "post-unlink")
ACTIONS = INSTALLATION + REMOVAL


def by_format(rows: Mapping[str, _Row]) -> tuple[dict[str, _Row], dict[str, _Row]]:
    """The rows of ``.conda`` files and those of the older format, by file name: indexes list them separately."""
    conda = {name: row for name, row in rows.items() if not name.endswith(OLD_SUFFIX)}
    return conda, {name: row for name, row in rows.items() if name not in conda}


def stem_of(file_name: str) -> str:
    """The name of a package file without the suffix of its format.

    >>> stem_of("toy-1.0-0.conda"), stem_of("toy-1.0-0.tar.bz2")
    ('toy-1.0-0', 'toy-1.0-0')
    """
    return file_name.removesuffix(PACKAGE_SUFFIX).removesuffix(OLD_SUFFIX)


@dataclass(frozen=True, slots=True, order=True)
class PackageKey:
    """A package's place in a channel; its text is ``subdir/file name``."""

    subdir: str
    file_name: str

    def __str__(self) -> str:
        return f"{self.subdir}/{self.file_name}"

    @classmethod
    def of(cls, path: Path) -> PackageKey:
        """The key of a package file at ``.../subdir/file name``."""
        return cls(path.parent.name, path.name)

    def path_in(self, channel: Path) -> Path:
        """The path of the file in a channel's folder."""
        return channel / self.subdir / self.file_name

    def ref(self, sha256: str, size_bytes: int, *, foundation: bool = False) -> PackageRef:
        """The package in this place with these bytes."""
        return PackageRef(
            subdir=self.subdir,
            file_name=self.file_name,
            sha256=sha256,
            size_bytes=size_bytes,
            foundation=foundation,
        )

    @classmethod
    def parse(cls, text: str) -> PackageKey:
        """The key that ``subdir/file name`` names. Raises ValueError for any other text."""
        subdir, slash, file_name = text.partition("/")
        if not (subdir and slash and file_name) or "/" in file_name:
            raise ValueError(f"{text!r} does not name a package; expected subdir/file name")
        return cls(subdir, file_name)


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class PackageRef:
    """One package's exact bytes: its key, its sha256 in hexadecimal and its size.

    ``foundation`` says that it was not built from a recipe of ours. Without it, a package counts as ours, which is
    stricter: the audit then excuses only what the recipe declares, and its digest must be new. The fields are flat
    because this is also the JSON between our server and its clients, which may leave ``foundation`` out.
    """

    subdir: str
    file_name: str
    sha256: str
    size_bytes: int
    foundation: bool = False

    @property
    def key(self) -> PackageKey:
        """Its place in a channel."""
        return PackageKey(self.subdir, self.file_name)


def split_file_name(file_name: str, *, old_format: bool = False) -> tuple[str, str, str] | None:
    """Name, version and build of a ``.conda`` file name (``old_format``: or ``.tar.bz2``); None if it is not one.

    Version and build have no hyphen (CEP 26). This is the only place that divides a file name: py-rattler 0.28 does it
    only inside (rattler's ArchiveIdentifier), which the tests compare with this.

    >>> split_file_name("pytorch-cpu-2.13.0-py311_0.conda"), split_file_name("notes.txt")
    (('pytorch-cpu', '2.13.0', 'py311_0'), None)
    """
    match = _FILE_NAME.fullmatch(file_name)
    if match is None or not (old_format or match["suffix"] == PACKAGE_SUFFIX):
        return None
    return match["name"], match["version"], match["build"]


def split_stem(stem: str) -> tuple[str, str, str]:
    """Name, version and build of a file name without its suffix. Raises IntegrityError if it is not one."""
    parts = split_file_name(stem + PACKAGE_SUFFIX)
    if parts is None:
        raise IntegrityError(f"{stem!r} does not name a package; expected NAME-VERSION-BUILD")
    return parts


def names_of_files(file_names: Iterable[str]) -> list[str]:
    """The names of the packages in these files, in either format, each once and sorted; other files have none."""
    split_names = (split_file_name(name, old_format=True) for name in file_names)
    return sorted({parts[0] for parts in split_names if parts is not None})


def split_package_address(address: str) -> tuple[str, PackageKey]:
    """The address of the channel and the key in a package's address. Raises UsageError for any other address.

    >>> address, key = split_package_address("https://example.org/ours/linux-64/toy-1.0-0.conda")
    >>> address, str(key)
    ('https://example.org/ours', 'linux-64/toy-1.0-0.conda')
    """
    folder, file_name = split_last(address)
    channel, subdir = split_last(folder)
    key = PackageKey(subdir, file_name)
    if not key.subdir or split_file_name(key.file_name, old_format=True) is None:
        plain = without_credentials(address)
        raise UsageError(f"{plain}: not the address of a package; expected CHANNEL/SUBDIR/NAME-VERSION-BUILD.conda")
    return channel, key


def subdir_beneath(package: Path) -> Beneath:
    """The folder of a package file in a channel's folder, ``CHANNEL/SUBDIR/FILE``: links stay in the channel."""
    return folder_beneath(package.parent, within=package.parent.parent)


SUFFIX = ".sigs"
RECORD_FIELD = "attestations_sha256"
LIMIT_BYTES = 4 << 20
"""What rattler reads of one."""
HASHED_NAME = re.compile(r"(?P<package>.+\.conda)\.sigs\.(?P<sha256>[0-9a-f]{64})")


def sidecar_of(package: Path) -> Path:
    """The path of the file with a package's attestations, which need not exist."""
    return package.with_name(package.name + SUFFIX)


def sidecar_name(file_name: str) -> str:
    """The name of the file with the attestations of the package ``file_name``."""
    return file_name + SUFFIX


def hashed_name(file_name: str, sha256: str) -> str:
    """The name under which clients read the attestations of the package ``file_name``."""
    return f"{file_name}{SUFFIX}.{sha256}"


def sidecar_sha256(folder: Beneath, file_name: str) -> str | None:
    """The hash of the attestations beside a package of the folder, for its record; None if it has none."""
    try:
        return hashlib.sha256(folder.read(file_name + SUFFIX, limit_bytes=LIMIT_BYTES)).hexdigest()
    except FileNotFoundError:
        return None


def read_sidecar(path: Path, *, folder: Beneath | None = None) -> bytes:
    """The attestations in a file, opened as opened_in does. Raises IntegrityError if clients accept only less."""
    with opened_in(path, folder) as stream:
        content = stream.read(LIMIT_BYTES + 1)
    if len(content) > LIMIT_BYTES:
        raise IntegrityError(f"{path}: larger than the {LIMIT_BYTES >> 20} MiB of attestations that clients read")
    return content


def write_sidecar(package: Path, content: bytes, *, folder: Beneath | None = None) -> None:
    """Replace a package's attestations; the file with the name that clients read is written first.

    ``folder`` is the package's, if others can write there.
    """
    names = hashed_name(package.name, hashlib.sha256(content).hexdigest()), package.name + SUFFIX
    files = Beneath(root=package.parent) if folder is None else folder
    files.write_all([(name, content) for name in names], durable=False)


def link_sidecar(source: Beneath, source_name: str, folder: Beneath, file_name: str) -> None:
    """Give a new package of the folder the attestations of the package ``source``, or none if it has none."""
    remove_sidecars(folder, file_name)
    sha256 = sidecar_sha256(source, source_name)
    if sha256 is not None:
        with source.opened(source_name + SUFFIX) as stream:
            folder.link(stream, hashed_name(file_name, sha256))
            folder.link(stream, file_name + SUFFIX)


def remove_sidecars(folder: Beneath, file_name: str) -> None:
    """Remove the attestations of a package of the folder that is being removed."""
    sha256 = sidecar_sha256(folder, file_name)
    if sha256 is not None:
        folder.remove(hashed_name(file_name, sha256))
        folder.remove(file_name + SUFFIX)


@dataclass(frozen=True, kw_only=True, slots=True)
class RunExports:
    """The requirements that a package adds to packages that are built with it (CEP 12)."""

    weak: tuple[str, ...] = ()
    strong: tuple[str, ...] = ()
    noarch: tuple[str, ...] = ()


def subdirs_of(files: Beneath) -> list[str]:
    """The subdirs that a channel folder has, in order; noarch is always one.

    Raises ChannelError for a name of a subdir that is something else than a folder.
    """
    subdirs = [name for name in files.names() if _SUBDIR_NAME.fullmatch(name)]
    for name in subdirs:
        with files.folder(name):
            pass
    return sorted({*subdirs, NOARCH})


def link_script_paths(name: str, actions: Iterable[str] = ACTIONS, *, windows: bool) -> list[str]:
    """Where clients look for the scripts of the package ``name``, relative to the prefix."""
    folder, suffix = ("Scripts", "bat") if windows else ("bin", "sh")
    return [f"{folder}/.{name}-{action}.{suffix}" for action in actions]


def link_scripts_among(paths: Iterable[str], name: str) -> list[str]:
    """Those of a package's installed ``paths`` that are its scripts, for any platform; sorted."""
    known = {*link_script_paths(name, windows=False), *link_script_paths(name, windows=True)}
    return sorted(known.intersection(paths))
