# SPDX-License-Identifier: BSD-3-Clause
"""Explicit lists (CEP 23) and environment.yml: text that conda's clients read, one file per platform.

An explicit list has one address with its hash per line and needs no solver. Ours have sha256, written bare, as
``conda list --explicit --sha256`` does. Other data is in comments, among it the number of packages: a list that was
truncated at the end of a line would otherwise look complete. environment.yml pins every package to version and build;
it is only written, not read, since it has no hashes. It does not have ``nodefaults``, which should exclude other
channels, since conda 26.7 looks for a channel of that name.
"""

from __future__ import annotations

import math
import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import yaml

from channel_tools.conda.addresses import without_credentials
from channel_tools.conda.package import NOARCH
from channel_tools.pins.choice import (
    EVERYTHING,
    SHA256,
    LockChoice,
    LockEntry,
    checked_packages,
    choose_platforms,
    package_of_address,
    pip_error,
    refuse_options,
)
from channel_tools.pins.lock import Lock, PlatformLock
from channel_tools.pins.md5 import MD5
from channel_tools.system.counting import counted
from channel_tools.system.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

MARK = "@EXPLICIT"
_COMMENT = re.compile(r"#\s*(platform|virtual packages|packages):\s*(.*)")
_PIP = re.compile(r"#\s*pip\s+(\S+)\s.*")
"""A pip package as conda-lock writes it into explicit lists: a comment for conda, installed by conda-lock."""
_SHOWN = 100
_HINT = (
    "expected ADDRESS/SUBDIR/NAME-VERSION-BUILD.conda#SHA256, or an absolute path; "
    "write the list again with the option of conda list for sha256, or with channel_tools pins"
)


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


def render_requested(lock: Lock) -> str:
    """environment.yml of what was asked for, which is solved again where it is read."""
    content = {"name": lock.stack, "channels": list(lock.channels), "dependencies": list(lock.specs)}
    return yaml.safe_dump(content, sort_keys=False, width=math.inf)


def _header(lock: Lock, platform: PlatformLock) -> list[str]:
    return [
        f"# Written by channel_tools pins for the stack {lock.stack}.",
        f"# platform: {platform.platform}",
        f"# virtual packages: {' '.join(platform.virtual_packages)}",
    ]


def parse_explicit(text: str, path: Path, choice: LockChoice = EVERYTHING) -> Lock:
    """The lock from a list; it has no stack, specs or sizes.

    The sha256 of an entry with only an md5 is empty (see pins/md5.py).

    Raises ConfigError (file, line) for a line that is not an entry or has no hash, pip packages, and for missing
    packages; UsageError for a choice that the list does not have.
    """
    refuse_options(choice, path, file_kind="an explicit list")
    comments: dict[str, str] = {}
    entries: list[LockEntry] = []
    pip: list[tuple[str, int]] = []
    for number, line in enumerate((raw.strip() for raw in text.splitlines()), start=1):
        if (comment := _COMMENT.fullmatch(line)) is not None:
            comments[comment[1]] = comment[2].strip()
        elif (match := _PIP.fullmatch(line)) is not None:
            pip.append((match[1], number))
        elif line and not line.startswith("#") and line != MARK:
            entries.append(_parse_entry(line, path, number))
    if pip:
        raise pip_error([name for name, _ in pip], path, line=pip[0][1], tool="conda-lock")
    check_count(text, len(entries), path)
    platform = comments.get("platform") or _platform_of(entries, path)
    choose_platforms({platform: platform}, choice, path)
    only = PlatformLock(
        platform=platform,
        virtual_packages=tuple(comments.get("virtual packages", "").split()),
        packages=checked_packages(entries, platform, path),
    )
    channels = tuple(dict.fromkeys(package.channel for package in only.packages))
    return Lock(stack="", specs=(), channels=channels, platforms=(only,))


def _parse_entry(line: str, path: Path, number: int) -> LockEntry:
    url, _, text = line.partition("#")
    plain = without_credentials(url)[:_SHOWN]
    digest = text.removeprefix("sha256:").lower()
    sha256, md5 = (digest if kind.fullmatch(digest) else None for kind in (SHA256, MD5))
    if not (sha256 or md5):
        message = f"no sha256 after the address ({f'found {text[:_SHOWN]!r}' if text else 'no hash'}): {plain}"
        raise ConfigError(message, path=path, line=number, hint=_HINT)
    try:
        # a path, as conda takes it in place of an address
        address = PurePosixPath(url).as_uri() if url.startswith("/") else url
        package = package_of_address(address, sha256=sha256 or "", md5=md5)
    except ValueError as err:
        raise ConfigError(str(err), path=path, line=number, hint=_HINT) from None
    return LockEntry(package=package, line=number)


def check_count(text: str, count: int, path: Path) -> None:
    """Raise ConfigError if a list of ours does not have as many packages as were written into it."""
    written = next(
        (match[2].strip() for match in map(_COMMENT.fullmatch, text.splitlines()) if match and match[1] == "packages"),
        None,
    )
    if written is not None and written != str(count):
        message = f"{counted(count, 'package')}, but the list was written with {written}: it was truncated or edited"
        raise ConfigError(message, path=path, hint="write it again: channel_tools pins")


def _platform_of(entries: list[LockEntry], path: Path) -> str:
    subdirs = sorted({entry.package.subdir for entry in entries} - {NOARCH, ""})
    if len(subdirs) != 1:
        subdirs_text = ", ".join(subdirs) or "only noarch packages"
        message = f"there is no line '# platform: ...', and the addresses do not determine it: {subdirs_text}"
        raise ConfigError(message, path=path, hint="add the line  # platform: linux-64  with the right platform")
    return subdirs[0]
