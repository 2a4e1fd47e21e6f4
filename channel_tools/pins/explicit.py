# SPDX-License-Identifier: BSD-3-Clause
"""Explicit lists (CEP 23) and environment.yml: text that conda's clients read, one file per platform.

An explicit list has one address with its sha256 per line and needs no solver. The hash is written bare, as
``conda list --explicit --sha256`` does. Other data is in comments, among it the number of packages: a list that was
truncated at the end of a line would otherwise look complete. environment.yml pins every package to version and build;
it is only written, not read, since it has no hashes. It does not have ``nodefaults``, which should exclude other
channels, since conda 26.7 looks for a channel of that name.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

import yaml

from channel_tools.conda.addresses import file_name_of, without_credentials
from channel_tools.conda.package import split_file_name
from channel_tools.pins.lock import Lock, LockedPackage, PlatformLock
from channel_tools.system.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

MARK = "@EXPLICIT"
_COMMENT = re.compile(r"#\s*(platform|virtual packages|packages):\s*(.*)")
_ENTRY = re.compile(r"(?P<url>(?P<channel>[a-z0-9+.-]+://.*)/(?P<subdir>[a-z0-9-]+)/(?P<file>[^/#\s]+))#(?P<hash>\S+)")
_SHA256 = re.compile(r"(?:sha256:)?([0-9a-f]{64})")
_SHOWN = 100
_HINT = "expected ADDRESS/SUBDIR/NAME-VERSION-BUILD.conda#SHA256; write the list with: channel_tools pins"


def render_explicit(lock: Lock, platform: PlatformLock) -> str:
    """The list for one platform, dependencies first."""
    lines = [
        *_header(lock, platform),
        f"# packages: {len(platform.packages)}",
        MARK,
        *(f"{package.url}#{package.sha256}" for package in platform.packages),
    ]
    return "\n".join(lines) + "\n"


def render_environment(lock: Lock, platform: PlatformLock) -> str:
    """environment.yml for one platform."""
    content = {
        "name": lock.stack,
        "channels": list(lock.channels),
        "dependencies": [f"{package.name}={package.version}={package.build}" for package in platform.packages],
    }
    return "\n".join(_header(lock, platform)) + "\n" + yaml.safe_dump(content, sort_keys=False, width=math.inf)


def _header(lock: Lock, platform: PlatformLock) -> list[str]:
    return [
        f"# Written by channel_tools pins for the stack {lock.stack}.",
        f"# platform: {platform.platform}",
        f"# virtual packages: {' '.join(platform.virtual_packages)}",
    ]


def parse_explicit(text: str, path: Path) -> Lock:
    """The lock from a list; it has no stack, specs or sizes.

    Raises ConfigError (file, line) for a line that is not an entry or has no sha256, and for missing packages.
    """
    comments: dict[str, str] = {}
    packages: list[LockedPackage] = []
    for number, line in enumerate((raw.strip() for raw in text.splitlines()), start=1):
        if (comment := _COMMENT.fullmatch(line)) is not None:
            comments[comment.group(1)] = comment.group(2).strip()
        elif line and not line.startswith("#") and line != MARK:
            packages.append(_parse_entry(line, path, number))
    _check_count(comments.get("packages"), len(packages), path)
    only = PlatformLock(
        platform=comments.get("platform") or _platform_of(packages, path),
        virtual_packages=tuple(comments.get("virtual packages", "").split()),
        packages=tuple(packages),
    )
    channels = tuple(dict.fromkeys(package.channel for package in packages))
    return Lock(stack="", specs=(), channels=channels, platforms=(only,))


def package_of_address(url: str, *, sha256: str, md5: str | None) -> LockedPackage:
    """A package from its address and hashes. Raises ValueError if the address is not that of a package."""
    entry = _ENTRY.fullmatch(f"{url}#{sha256}")
    found = split_file_name(file_name_of(url), old_format=True)
    if entry is None or found is None:
        raise ValueError(f"not the address of a package: {without_credentials(url)}")
    name, version, build = found
    return LockedPackage(
        name=name.lower(),
        version=version,
        build=build,
        build_number=0,
        subdir=entry.group("subdir"),
        file_name=file_name_of(url),
        channel=entry.group("channel"),
        url=url,
        sha256=sha256,
        md5=md5,
        size_bytes=0,
        depends=(),
        constrains=(),
    )


def _parse_entry(line: str, path: Path, number: int) -> LockedPackage:
    url, separator, text = line.rpartition("#")
    found = _SHA256.fullmatch(text)
    if not separator or found is None:
        message = f"no sha256 after the address: {without_credentials(line)[:_SHOWN]}"
        raise ConfigError(message, path=path, line=number, hint=_HINT)
    try:
        return package_of_address(url, sha256=found.group(1), md5=None)
    except ValueError as err:
        raise ConfigError(str(err), path=path, line=number, hint=_HINT) from None


def _check_count(written: str | None, found: int, path: Path) -> None:
    if written is not None and written != str(found):
        message = f"{found} packages, but the list was written with {written}: it was truncated or edited"
        raise ConfigError(message, path=path, hint="write it again: channel_tools pins")


def _platform_of(packages: list[LockedPackage], path: Path) -> str:
    subdirs = sorted({package.subdir for package in packages} - {"noarch"})
    if len(subdirs) != 1:
        found = ", ".join(subdirs) or "only noarch packages"
        message = f"there is no line '# platform: ...', and the addresses do not determine it: {found}"
        raise ConfigError(message, path=path, hint="add the line  # platform: linux-64  with the right platform")
    return subdirs[0]
