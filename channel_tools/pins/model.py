# SPDX-License-Identifier: BSD-3-Clause
"""The values of the pins stage: what one solve chose, for each platform, independent of any file format.

Addresses in a lock carry no credentials, ever: whoever writes a lock file may publish it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

NoArch = Literal["generic", "python"]


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class LockedPackage:
    """One package of a solution, as its channel's repodata describes it.

    ``channel`` is the channel's address without a trailing slash and ``url`` the file's address. ``sha256`` and ``md5``
    are in hexadecimal (md5 None where repodata has none); ``depends`` and ``constrains`` are MatchSpecs. ``size_bytes``
    is 0 where a lock's format does not hold it; then what stands after ``url`` may be missing as well, apart from
    ``sha256``. ``timestamp_ms`` is when it was built, since the epoch.
    """

    name: str
    version: str
    build: str
    build_number: int
    subdir: str
    file_name: str
    channel: str
    url: str
    sha256: str
    md5: str | None
    size_bytes: int
    depends: tuple[str, ...]
    constrains: tuple[str, ...]
    noarch: NoArch | None = None
    python_site_packages_path: str | None = None
    license: str | None = None
    timestamp_ms: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class PlatformLock:
    """The solution for one platform; ``packages`` stand in order of installation, dependencies first.

    ``virtual_packages`` are those that were assumed, as ``name=version=build`` (CEP 30), in order of name.
    """

    platform: str
    virtual_packages: tuple[str, ...]
    packages: tuple[LockedPackage, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Lock:
    """All that is pinned for a stack: what was asked for, where, and what came out per platform.

    ``channels`` stand in order of priority, ``platforms`` in order of name.
    """

    stack: str
    specs: tuple[str, ...]
    channels: tuple[str, ...]
    platforms: tuple[PlatformLock, ...]
