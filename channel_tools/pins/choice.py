# SPDX-License-Identifier: BSD-3-Clause
"""Which part of a lock is read, and what is checked of its entries, in every format.

Only entries that are chosen are read whole: those of other platforms, categories and environments concern nobody, so
nothing in them refuses a file. What is chosen and cannot be installed is an error with the file and the line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import rattler
from rattler.exceptions import InvalidPackageNameError, InvalidVersionError

from channel_tools.conda.addresses import has_credentials, scheme_of, split_last, without_credentials
from channel_tools.conda.package import NOARCH, PackageKey, split_file_name, split_package_address
from channel_tools.conda.platforms import is_subdir
from channel_tools.pins.lock import LockedPackage
from channel_tools.system.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

_BUILD = re.compile(r"[A-Za-z0-9_.+]+")
"""The characters of build strings (CEP 26)."""
SHA256 = re.compile(r"[0-9a-f]{64}")
_SHOWN = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class LockChoice:
    """The part of a lock that is read.

    ``platforms`` are platforms, or names that a pixi.lock gives to them; empty means all. ``categories`` are those of
    conda-lock that are read besides ``main``. ``environment`` is pixi's, None for its ``default``.
    """

    platforms: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    environment: str | None = None


EVERYTHING = LockChoice()
"""All platforms, and of each what is installed by default."""


def lock_choice(
    platforms: Sequence[str], categories: Sequence[str], environment: str | None, *, has_lock: bool
) -> LockChoice:
    """The part of a lock that options choose. Raises UsageError for such options without a lock (``has_lock``)."""
    if not has_lock and (categories or environment is not None):
        message = "--category or --environment without a lock: nothing to choose from"
        raise UsageError(message, hint="give a lock, or leave the option out")
    return LockChoice(platforms=tuple(platforms), categories=tuple(categories), environment=environment)


@dataclass(frozen=True, kw_only=True, slots=True)
class LockEntry:
    """A package to install, and the line of the file that names it."""

    package: LockedPackage
    line: int


def choose_platforms(locked: Mapping[str, str], choice: LockChoice, path: Path) -> dict[str, str]:
    """The chosen platforms, as names to subdirs, from all of a file, likewise.

    Raises UsageError for one that the file does not have, or has under several names.
    """
    chosen = {}
    for requested in choice.platforms or locked:
        names = [requested] if requested in locked else [name for name, subdir in locked.items() if subdir == requested]
        if not names:
            message = f"{path}: locked for {', '.join(sorted(locked)) or 'no platform'}, not for {requested}"
            hint = f"choose one of them with --platform, or lock for {requested} as well"
            raise UsageError(message, hint=hint)
        if len(names) > 1:
            raise _several(requested, names, path)
        chosen[names[0]] = locked[names[0]]
    for subdir in set(chosen.values()):
        if len(names := [name for name, other in chosen.items() if other == subdir]) > 1:
            raise _several(subdir, names, path)
    return dict(sorted(chosen.items(), key=lambda item: item[1]))


def _several(subdir: str, names: Sequence[str], path: Path) -> UsageError:
    message = f"{path}: locked for {subdir} more than once: {', '.join(sorted(names))}"
    return UsageError(message, hint="choose one of them with --platform")


def refuse_options(choice: LockChoice, path: Path, *, file_kind: str, categories: bool = False) -> None:
    """Raise UsageError for options that choose what the format of the file ``path`` does not have."""
    if choice.environment is not None:
        message = f"{path}: --environment {choice.environment}: {file_kind} has no environments to choose from"
        raise UsageError(message, hint="leave the option out; it is for pixi.lock")
    if choice.categories and not categories:
        message = f"{path}: --category {choice.categories[0]}: {file_kind} has no categories to choose from"
        raise UsageError(message, hint="leave the option out; it is for conda-lock.yml")


def package_of_address(url: str, *, sha256: str, md5: str | None) -> LockedPackage:
    """A package from its address and hashes; its subdir is empty if that is not in the address.

    Raises ValueError if the address is not that of a package, or a part of its file name is not valid.
    """
    try:
        channel, key = split_package_address(url)
    except (UsageError, ValueError):
        channel, key = "", PackageKey("", "")
    file_name, parts = key.file_name, split_file_name(key.file_name, old_format=True)
    if parts is None or not scheme_of(channel):
        raise ValueError(f"not the address of a package: {without_credentials(url)}")
    name, version, build = parts
    check_package_name(name, version, build, file_name=file_name)
    return LockedPackage(
        name=name.lower(),
        version=version,
        build=build,
        build_number=0,
        subdir=key.subdir if is_subdir(key.subdir) else "",
        file_name=file_name,
        channel=channel if is_subdir(key.subdir) else split_last(url)[0],
        url=url,
        sha256=sha256,
        md5=md5,
        size_bytes=0,
        depends=(),
        constrains=(),
    )


def check_package_name(name: str, version: str, build: str, *, file_name: str) -> None:
    """Raise ValueError if a package's name, version or build is not valid, or the file name is a path."""
    try:
        rattler.PackageName(name)
        rattler.Version(version)
    except (InvalidPackageNameError, InvalidVersionError) as err:
        reason = " ".join(str(err).split())
        raise ValueError(f"{file_name!r} is not the file name of a package: {reason}") from None
    if not _BUILD.fullmatch(build):
        raise ValueError(f"{file_name!r} is not the file name of a package: {build!r} is not a build string")
    if "/" in file_name or "\\" in file_name:
        raise ValueError(f"{file_name!r} is not the file name of a package: it is a path")


def checked_packages(entries: Iterable[LockEntry], platform: str, path: Path) -> tuple[LockedPackage, ...]:
    """The packages of the entries for a platform; the same package named twice is one.

    Raises ConfigError (file, line) for two packages of one name, a package of another platform, and an address with
    credentials.
    """
    by_name: dict[str, LockEntry] = {}
    for entry in entries:
        package = entry.package
        first = by_name.setdefault(package.name, entry)
        if _identity(first.package) != _identity(package):
            message = f"{package.name}: more than one package of this name for {platform}, the first in line "
            hint = "keep one of the two"
            raise ConfigError(f"{message}{first.line}", path=path, line=entry.line, hint=hint)
        if package.subdir not in {platform, NOARCH, ""}:
            message = f"{package.file_name}: a package for {package.subdir} among those for {platform}"
            raise ConfigError(message, path=path, line=entry.line, hint="remove it, or write the lock again")
        check_credentials(package.url, path, line=entry.line)
    return tuple(entry.package for entry in by_name.values())


def _identity(package: LockedPackage) -> tuple[str, str]:
    return package.url, package.sha256 or str(package.md5)


def check_credentials(address: str, path: Path, *, line: int | None = None) -> None:
    """Raise ConfigError if an address in the file ``path`` has credentials."""
    if has_credentials(address):
        message = f"credentials in the address {without_credentials(address)}: a lock must not contain any"
        hint = "remove them, and give the channel's address with its token to --channel instead"
        raise ConfigError(message, path=path, line=line, hint=hint)


def named_packages(names: Sequence[str]) -> str:
    """The names for a message, at most five of them."""
    listed = ", ".join(names[:_SHOWN])
    return listed if len(names) <= _SHOWN else f"{listed} and {len(names) - _SHOWN} more"


def pip_error(names: Sequence[str], path: Path, *, line: int | None, tool: str) -> ConfigError:
    """The error for pip packages among what is to be installed."""
    kind = "a pip package" if len(names) == 1 else "pip packages"
    message = f"{named_packages(names)}: {kind}, which this program does not install"
    return ConfigError(message, path=path, line=line, hint=f"lock conda packages only, or install the file with {tool}")
