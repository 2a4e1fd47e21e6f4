# SPDX-License-Identifier: BSD-3-Clause
"""pixi.toml, in which every package is pinned, and pixi.lock, which rattler writes and reads (format 7).

The manifest pins all packages, not only the requested ones: its tables can be pasted into another manifest and still
describe the same environment.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import rattler
from rattler import LockChannel, LockFile, LockPlatform
from rattler.exceptions import EnvironmentCreationError, ParseCondaLockError
from rattler.lock import CondaLockedBinaryPackage, CondaLockedSourcePackage

from channel_tools.conda.addresses import file_address, scheme_of, split_last
from channel_tools.conda.package import split_file_name
from channel_tools.pins.choice import (
    EVERYTHING,
    LockChoice,
    LockEntry,
    check_credentials,
    check_package_name,
    checked_packages,
    choose_platforms,
    named_packages,
    pip_error,
    refuse_options,
)
from channel_tools.pins.lock import (
    WRITE_AGAIN,
    Lock,
    LockedPackage,
    PlatformLock,
    in_installation_order,
    locked_package,
    repodata_record,
)
from channel_tools.pins.virtual import split_virtual_package
from channel_tools.system.errors import ConfigError, UsageError
from channel_tools.system.work_folder import temporary_folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rattler.lock import Environment
    from rattler.lock import LockedPackage as RattlerPackage

_ENVIRONMENT = "default"
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def render_pixi_manifest(lock: Lock) -> str:
    """pixi.toml: a complete workspace, whose tables can also be copied into another manifest."""
    platforms = [platform.platform for platform in lock.platforms]
    lines = [
        f"# Written by channel_tools pins for the stack {lock.stack}; pixi.lock belongs to it.",
        *(
            f"# virtual packages: {platform.platform}: {' '.join(platform.virtual_packages)}"
            for platform in lock.platforms
        ),
        "[workspace]",
        f"name = {json.dumps(lock.stack)}",
        f"channels = {json.dumps(list(lock.channels))}",
        f"platforms = {json.dumps(platforms)}",
    ]
    if requirements := _system_requirements(lock.platforms):
        lines += ["", "[system-requirements]", *requirements]
    for platform in lock.platforms:
        lines += ["", f"[target.{platform.platform}.dependencies]"]
        lines += [
            f"{_key(package.name)} = {{ version = {json.dumps('==' + package.version)}, "
            f"build = {json.dumps(package.build)} }}"
            for package in platform.packages
        ]
    return "\n".join(lines) + "\n"


def render_pixi_lock(lock: Lock) -> str:
    """pixi.lock, all platforms."""
    platforms = {
        platform.platform: LockPlatform(
            platform.platform, rattler.Subdir(platform.platform), [_short(text) for text in platform.virtual_packages]
        )
        for platform in lock.platforms
    }
    file = LockFile(list(platforms.values()))
    file.set_channels(_ENVIRONMENT, [LockChannel(channel) for channel in lock.channels])
    for platform in lock.platforms:
        for package in platform.packages:
            file.add_conda_package(_ENVIRONMENT, platforms[platform.platform], repodata_record(package))
    with temporary_folder() as folder:
        path = folder / "pixi.lock"
        file.to_path(path)
        return path.read_text(encoding="utf-8")


def read_pixi_lock(path: Path, choice: LockChoice = EVERYTHING) -> Lock:
    """One environment of a pixi.lock (formats 3 to 7); stack and specs are in its manifest and are empty here.

    Raises ConfigError if it is not one, has a newer format, or the environment has packages that are built from source,
    pip packages, or packages without sha256; UsageError for an environment or platform that it does not have.
    """
    refuse_options(replace(choice, environment=None), path, file_kind="a pixi.lock")
    environment = _environment(open_pixi_lock(path), choice, path)
    by_name = {platform.name: platform for platform in environment.platforms()}
    chosen = choose_platforms({name: str(platform.subdir) for name, platform in by_name.items()}, choice, path)
    lines = _Lines(path)
    platforms = [_platform_lock(environment, by_name[name], lines) for name in chosen]
    channels = tuple(str(channel).rstrip("/") for channel in environment.channels())
    for channel in channels:
        check_credentials(channel, path, line=lines.of(channel))
    return Lock(stack="", specs=(), channels=channels, platforms=tuple(platforms))


def open_pixi_lock(path: Path) -> LockFile:
    """The whole file. Raises ConfigError if it is not a pixi.lock, or has a newer format."""
    try:
        return LockFile.from_path(path)
    except (EnvironmentCreationError, ParseCondaLockError, ValueError, OSError) as err:
        reason = " ".join(str(err).split())
        raise ConfigError(f"cannot be read as a pixi.lock: {reason}", path=path, hint=WRITE_AGAIN) from None


def _environment(file: LockFile, choice: LockChoice, path: Path) -> Environment:
    name = choice.environment or _ENVIRONMENT
    environments = dict(file.environments())
    if name not in environments:
        message = f"it has no environment {name!r}; it has {', '.join(sorted(environments)) or 'none'}"
        if choice.environment is not None:
            raise UsageError(f"{path}: {message}", hint="choose one of them with --environment")
        raise ConfigError(message, path=path, hint="choose one of them with --environment")
    return environments[name]


class _Lines:
    """Finds the lines of entries, of which rattler keeps none."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lines = path.read_text(encoding="utf-8-sig").splitlines()

    def of(self, text: str) -> int | None:
        """The first line with the text."""
        return next((number for number, line in enumerate(self._lines, start=1) if text in line), None)


def _platform_lock(environment: Environment, platform: LockPlatform, lines: _Lines) -> PlatformLock:
    packages = environment.packages(platform) or []
    _check_kinds(packages, lines)
    subdir = str(platform.subdir)
    read = [_entry(package, lines) for package in packages if isinstance(package, CondaLockedBinaryPackage)]
    records = [repodata_record(package) for package in checked_packages(read, subdir, lines.path)]
    virtual = ("=".join(split_virtual_package(text)) for text in platform.virtual_packages)
    by_name = {entry.package.name: entry.package for entry in read}
    return PlatformLock(
        platform=subdir,
        virtual_packages=tuple(sorted(virtual)),
        packages=tuple(by_name[record.name.normalized] for record in in_installation_order(records)),
    )


def _check_kinds(packages: Sequence[RattlerPackage], lines: _Lines) -> None:
    """Raise ConfigError for packages other than conda packages that are built already."""
    others = [package for package in packages if not isinstance(package, CondaLockedBinaryPackage)]
    source = [package for package in others if isinstance(package, CondaLockedSourcePackage)]
    if source:
        names = named_packages([package.name for package in source])
        kind = "a package that pixi builds" if len(source) == 1 else "packages that pixi builds"
        message = f"{names}: {kind} from source, which this program does not install"
        hint = "lock built packages only, or install the file with pixi"
        raise ConfigError(message, path=lines.path, line=lines.of(source[0].location), hint=hint)
    if others:
        names_of_pip = [package.name for package in others]
        raise pip_error(names_of_pip, lines.path, line=lines.of(others[0].location), tool="pixi")


def _entry(package: CondaLockedBinaryPackage, lines: _Lines) -> LockEntry:
    record, line = package.package_record, lines.of(package.location)
    if record is None or not (record.sha256 or record.md5):
        message = f"{package.name}: no sha256 (no hash)"
        raise ConfigError(message, path=lines.path, line=line, hint="lock again with a tool that writes it")
    try:
        return LockEntry(package=_locked(package, record, lines.path), line=line or 1)
    except ValueError as err:
        hint = "expected ADDRESS/SUBDIR/NAME-VERSION-BUILD.conda, or the path of such a file"
        raise ConfigError(f"{package.name}: {err}", path=lines.path, line=line, hint=hint) from None


def _locked(package: CondaLockedBinaryPackage, record: rattler.PackageRecord, path: Path) -> LockedPackage:
    """The package with the fields of its record. Raises ValueError for a location that is not a package's."""
    location = package.location
    if scheme_of(location):
        complete = package.repo_data_record()
        file_name, url, channel = complete.file_name, complete.url, complete.channel
    else:
        # rattler has no record for a path, which is relative to the lock
        file = os.path.normpath(path.absolute().parent / location)
        file_name, url, channel = Path(file).name, file_address(file), None
    check_package_name(record.name.source, str(record.version), str(record.build), file_name=file_name)
    if split_file_name(file_name, old_format=True) is None:
        raise ValueError(f"{file_name!r} is not the file name of a package")
    folder = split_last(url)[0]
    above = channel if channel and scheme_of(channel) else folder.removesuffix(f"/{record.subdir}")
    # credentials in the address are refused by the caller, and locked_package would drop them
    read = locked_package(rattler.RepoDataRecord(record, file_name, url, above), complete=False)
    return replace(read, url=url)


def _key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else json.dumps(name)


def _short(virtual_package: str) -> str:
    """A virtual package as pixi writes it: without a meaningless build string."""
    name, version, build = split_virtual_package(virtual_package)
    return f"{name}={version}" if build == "0" else f"{name}={version}={build}"


def _system_requirements(platforms: Iterable[PlatformLock]) -> list[str]:
    """pixi's table of system requirements, which has one value for all platforms: the lowest of those assumed."""
    least: dict[str, str] = {}
    for platform in platforms:
        for name, version, build in map(split_virtual_package, platform.virtual_packages):
            value = build if name == "__archspec" else version
            earlier = least.get(name)
            if earlier is None or (name != "__archspec" and rattler.Version(value) < rattler.Version(earlier)):
                least[name] = value
    lines = {
        "__linux": "linux = {}",
        "__glibc": 'libc = {{ family = "glibc", version = {} }}',
        "__cuda": "cuda = {}",
        "__osx": "macos = {}",
        "__archspec": "archspec = {}",
    }
    return [line.format(json.dumps(least[name])) for name, line in lines.items() if name in least]
