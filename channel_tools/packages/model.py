# SPDX-License-Identifier: BSD-3-Clause
"""The metadata of a conda package as values: what index.json, about.json, run_exports.json and link.json will say."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

# Written into files in place of the installation prefix; clients replace it when they install (CEP 34, paths.json).
# Long, as in conda-build, so that binary files can hold it too.
PREFIX_PLACEHOLDER = "/opt/anaconda1anaconda2anaconda3" + "_placehold" * 20
PLATFORMS: Mapping[str, tuple[str, str]] = {"linux-64": ("linux", "x86_64"), "linux-aarch64": ("linux", "aarch64")}
_FILE_NAME = re.compile(r"(?P<name>.+)-(?P<version>[^-]+)-(?P<build>[^-]+)\.conda")


@dataclass(frozen=True, kw_only=True, slots=True)
class PackageMetadata:
    """Everything about a package that is not its files (CEP 34)."""

    name: str
    version: str
    build: str
    subdir: str
    build_number: int = 0
    depends: tuple[str, ...] = ()
    constrains: tuple[str, ...] = ()
    license: str | None = None
    timestamp_ms: int = 0
    """When the newest source was made, in milliseconds since 1970 UTC: never the time of packing."""
    noarch: Literal["python", "generic"] | None = None
    python_site_packages_path: str | None = None
    run_exports: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """``weak``, ``strong`` ... to MatchSpecs (CEP 12)."""
    entry_points: tuple[str, ...] = ()
    """``command = module:function`` lines of a noarch python package."""
    about: Mapping[str, Any] = field(default_factory=dict)

    @property
    def file_name(self) -> str:
        """The package's name in a channel."""
        return f"{self.name}-{self.version}-{self.build}.conda"

    def index_json(self) -> dict[str, Any]:
        """The content of info/index.json."""
        platform, arch = PLATFORMS.get(self.subdir, (None, None))
        index: dict[str, Any] = {
            "arch": arch,
            "build": self.build,
            "build_number": self.build_number,
            "constrains": list(self.constrains),
            "depends": list(self.depends),
            "license": self.license,
            "name": self.name,
            "noarch": self.noarch,
            "platform": platform,
            "python_site_packages_path": self.python_site_packages_path,
            "subdir": self.subdir,
            "timestamp": self.timestamp_ms,
            "version": self.version,
        }
        optional = ("noarch", "license", "python_site_packages_path")
        return {key: value for key, value in index.items() if not (key in optional and value is None)}


def split_file_name(file_name: str) -> tuple[str, str, str] | None:
    """Name, version and build of a ``.conda`` file name, or None when it is not one."""
    match = _FILE_NAME.fullmatch(file_name)
    return (match["name"], match["version"], match["build"]) if match else None
