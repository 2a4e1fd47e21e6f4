# SPDX-License-Identifier: BSD-3-Clause
"""Everything that a file of pins names, for whoever must keep it: all platforms, categories and environments.

What cannot be installed from a lock here (packages of pip, packages that are built from source) names no published
package and has no effect. Anything else that is not understood refuses the file: of a lock that is understood in part,
packages would be deleted that it still needs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rattler.lock import CondaLockedBinaryPackage

from channel_tools.conda.addresses import file_name_of, without_credentials
from channel_tools.conda.package import PACKAGE_SUFFIXES, split_file_name
from channel_tools.conda.specs import InvalidSpecError, read_spec
from channel_tools.pins.conda_lock import named_files
from channel_tools.pins.environment_file import parse_environment_file
from channel_tools.pins.explicit import MARK, check_count
from channel_tools.pins.files import format_of, read_text
from channel_tools.pins.pixi import open_pixi_lock
from channel_tools.system.errors import ConfigError
from channel_tools.system.progress import ignore

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_HASH = re.compile(r"(?:sha256:)?([0-9a-fA-F]{64}|[0-9a-fA-F]{32})")
_SHOWN = 100
_HINT = "give a conda-lock.yml, a pixi.lock, an explicit list, an environment.yml, or a list of MatchSpecs"


@dataclass(frozen=True, kw_only=True, slots=True)
class LockedNames:
    """What files of pins name: package file names (without subdir), hashes (sha256 and md5), and MatchSpecs."""

    files: frozenset[str] = frozenset()
    hashes: frozenset[str] = frozenset()
    specs: frozenset[str] = frozenset()


@dataclass(slots=True)
class _Found:
    path: Path
    files: set[str] = field(default_factory=set)
    hashes: set[str] = field(default_factory=set)
    specs: set[str] = field(default_factory=set)

    def add_file(self, location: str, hashes: Iterable[str], *, line: int | None) -> None:
        """Add the package at an address or path. Raises ConfigError if it is not that of a package."""
        file_name = file_name_of(location)
        if split_file_name(file_name, old_format=True) is None:
            message = f"not the address of a package: {without_credentials(location)[:_SHOWN]}"
            raise ConfigError(message, path=self.path, line=line, hint="expected .../SUBDIR/NAME-VERSION-BUILD.conda")
        self.files.add(file_name)
        self.hashes.update(text.lower() for text in hashes if text)

    def add_spec(self, text: str, *, line: int | None) -> None:
        """Add a MatchSpec. Raises ConfigError if it is not one."""
        try:
            read_spec(text)
        except InvalidSpecError as err:
            raise ConfigError(f"not understood: {err}", path=self.path, line=line, hint=_HINT) from None
        self.specs.add(text)


def read_locked_names(paths: Iterable[Path]) -> LockedNames:
    """Everything that the files name. A package may be published in either format, whichever the file names.

    Raises ConfigError (file, line) for a file that cannot be read, is not understood whole or names no packages, and
    IntegrityError for one of ours that was truncated or edited.
    """
    files = [_read(path) for path in paths]
    stems = {_stem(name) for file in files for name in file.files}
    return LockedNames(
        files=frozenset(stem + suffix for stem in stems for suffix in PACKAGE_SUFFIXES),
        hashes=frozenset(text for file in files for text in file.hashes),
        specs=frozenset(text for file in files for text in file.specs),
    )


def _stem(file_name: str) -> str:
    return next(file_name.removesuffix(suffix) for suffix in PACKAGE_SUFFIXES if file_name.endswith(suffix))


def _read(path: Path) -> _Found:
    names, text = _Found(path=path), read_text(path)
    kind = format_of(text)
    if kind == "conda-lock":
        for url, hashes, line in named_files(text, path):
            names.add_file(url, hashes, line=line)
    elif kind == "pixi":
        _read_pixi(names)
    elif kind == "environment":
        for spec in parse_environment_file(text, path, note=ignore, pip_matters=False).specs:
            names.add_spec(spec, line=None)
    else:
        _read_lines(names, text)
    if not (names.files or names.specs):
        raise ConfigError("not a lock file: it names no packages", path=path, hint=_HINT)
    return names


def _read_pixi(names: _Found) -> None:
    for _, environment in open_pixi_lock(names.path).environments():
        for platform in environment.platforms():
            for package in environment.packages(platform) or []:
                if isinstance(package, CondaLockedBinaryPackage):
                    record = package.package_record
                    hashes = (
                        [digest.hex() for digest in (record.sha256, record.md5) if digest] if record is not None else []
                    )
                    names.add_file(package.location, hashes, line=None)


def _read_lines(names: _Found, text: str) -> None:
    """Read an explicit list, or a list of MatchSpecs and addresses such as that of ``conda list --export``."""
    for number, raw in enumerate(text.splitlines(), start=1):
        line = raw.strip()
        if not line or line.startswith("#") or line == MARK:
            continue
        url, _, fragment = line.partition("#")
        if url.rstrip().endswith(PACKAGE_SUFFIXES):
            hashes = _HASH.fullmatch(fragment.strip())
            if fragment.strip() and hashes is None:
                message = f"not a hash after the address: {fragment.strip()[:_SHOWN]}"
                raise ConfigError(message, path=names.path, line=number, hint="expected an md5 or a sha256")
            names.add_file(url.rstrip(), [hashes[1]] if hashes else [], line=number)
        else:
            names.add_spec(url.rstrip(), line=number)
    check_count(text, len(names.files), names.path)
