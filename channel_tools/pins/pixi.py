# SPDX-License-Identifier: BSD-3-Clause
"""pixi.toml, in which every package is pinned, and pixi.lock, which rattler writes and reads (format 7).

The manifest pins all packages, not only the requested ones: its tables can be pasted into another manifest and still
describe the same environment.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import rattler
from rattler import LockChannel, LockFile, LockPlatform
from rattler.exceptions import EnvironmentCreationError, ParseCondaLockError

from channel_tools.pins.lock import (
    WRITE_AGAIN,
    Lock,
    PlatformLock,
    in_installation_order,
    locked_package,
    repodata_record,
)
from channel_tools.pins.virtual import split_virtual_package
from channel_tools.system.errors import ConfigError
from channel_tools.system.work_folder import temporary_folder

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_ENVIRONMENT = "default"
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def render_pixi_manifest(lock: Lock) -> str:
    """pixi.toml: a complete workspace, whose tables can also be copied into another manifest."""
    platforms = [one.platform for one in lock.platforms]
    lines = [
        f"# Written by channel_tools pins for the stack {lock.stack}; pixi.lock belongs to it.",
        *(f"# virtual packages: {one.platform}: {' '.join(one.virtual_packages)}" for one in lock.platforms),
        "[workspace]",
        f"name = {json.dumps(lock.stack)}",
        f"channels = {json.dumps(list(lock.channels))}",
        f"platforms = {json.dumps(platforms)}",
    ]
    if requirements := _system_requirements(lock.platforms):
        lines += ["", "[system-requirements]", *requirements]
    for one in lock.platforms:
        lines += ["", f"[target.{one.platform}.dependencies]"]
        lines += [
            f"{_key(package.name)} = {{ version = {json.dumps('==' + package.version)}, "
            f"build = {json.dumps(package.build)} }}"
            for package in one.packages
        ]
    return "\n".join(lines) + "\n"


def render_pixi_lock(lock: Lock) -> str:
    """pixi.lock, all platforms."""
    platforms = {
        one.platform: LockPlatform(
            one.platform, rattler.Subdir(one.platform), [_short(text) for text in one.virtual_packages]
        )
        for one in lock.platforms
    }
    file = LockFile(list(platforms.values()))
    file.set_channels(_ENVIRONMENT, [LockChannel(channel) for channel in lock.channels])
    for one in lock.platforms:
        for package in one.packages:
            file.add_conda_package(_ENVIRONMENT, platforms[one.platform], repodata_record(package))
    with temporary_folder() as folder:
        path = folder / "pixi.lock"
        file.to_path(path)
        return path.read_text(encoding="utf-8")


def read_pixi_lock(path: Path) -> Lock:
    """The default environment of a pixi.lock; stack and specs are in its manifest and are empty here.

    Raises ConfigError if it is not one, has a newer format, no default environment, or pip packages.
    """
    try:
        file = LockFile.from_path(path)
        environment = file.environment(_ENVIRONMENT)
    except (EnvironmentCreationError, ParseCondaLockError, ValueError, OSError) as err:
        reason = " ".join(str(err).split())
        raise ConfigError(f"cannot be read as a pixi.lock: {reason}", path=path, hint=WRITE_AGAIN) from None
    if environment is None:
        raise ConfigError("it has no environment 'default'", path=path, hint=WRITE_AGAIN)
    platforms = []
    for platform in sorted(environment.platforms(), key=lambda one: one.name):
        if pip := environment.pypi_packages_for_platform(platform):
            message = f"{pip[0].name}: a pip package, which this program does not install"
            raise ConfigError(message, path=path, hint="lock conda packages only, or install the file with pixi")
        records = environment.conda_repodata_records_for_platform(platform) or []
        virtual = ("=".join(split_virtual_package(text)) for text in platform.virtual_packages)
        platforms.append(
            PlatformLock(
                platform=str(platform.subdir),
                virtual_packages=tuple(sorted(virtual)),
                packages=tuple(locked_package(record) for record in in_installation_order(records)),
            )
        )
    channels = tuple(str(channel).rstrip("/") for channel in environment.channels())
    return Lock(stack="", specs=(), channels=channels, platforms=tuple(platforms))


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
