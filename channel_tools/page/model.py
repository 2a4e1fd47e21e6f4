# SPDX-License-Identifier: BSD-3-Clause
"""The values that the pages of a channel are made of, and where each page lies.

``index.html`` is at the channel's root, all other files are below ``page/``: a name that is no subdir's, so that
neither clients nor indexers look there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from channel_tools.conda.package import PACKAGE_SUFFIX

if TYPE_CHECKING:
    from channel_tools.channel.model import Foundation
    from channel_tools.channel.records import CachedPackage
    from channel_tools.conda.info import JsonObject

INDEX_PAGE = "index.html"
PAGE_FOLDER = "page"
NAMES_FOLDER = f"{PAGE_FOLDER}/name"
BUILDS_FOLDER = f"{PAGE_FOLDER}/build"
PAGE_SCHEMA = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class ShownStack:
    """A stack as the page shows it; ``install`` are its MatchSpecs."""

    name: str
    description: str
    install: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class PageSettings:
    """page.json below ``.channel_tools``: that the channel has a page, and what only its owner knows.

    ``address`` is where clients find the channel, None when nobody said.
    """

    schema: int = PAGE_SCHEMA
    title: str
    address: str | None = None
    stacks: tuple[ShownStack, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Build:
    """One package file: its row of the record cache, its record as patched, and why new solves do not see it.

    ``needs`` are the names of the packages that it depends on, virtual ones too, in the order of its record.
    """

    subdir: str
    file_name: str
    row: CachedPackage
    record: JsonObject
    patched: bool
    needs: tuple[str, ...]
    foundation: bool
    hidden: str | None
    yanked: str | None

    @property
    def version(self) -> str:
        """Its version."""
        return str(self.record["version"])

    @property
    def build(self) -> str:
        """Its build string."""
        return str(self.record["build"])

    @property
    def state(self) -> str:
        """In words, whether new solves see it."""
        return self.hidden or "available"

    @property
    def page(self) -> str:
        """Where its page lies below the channel."""
        return f"{BUILDS_FOLDER}/{self.subdir}/{self.file_name.removesuffix(PACKAGE_SUFFIX)}.html"


@dataclass(frozen=True, kw_only=True, slots=True)
class Package:
    """All builds of one name, newest first, and the names of those that need it."""

    name: str
    builds: tuple[Build, ...]
    needed_by: tuple[str, ...]

    @property
    def shown(self) -> Build:
        """The build that says what the package is: the newest that new solves see, else the newest."""
        return next((build for build in self.builds if build.hidden is None), self.builds[0])

    @property
    def page(self) -> str:
        """Where its page lies below the channel."""
        return name_page(self.name)


@dataclass(frozen=True, kw_only=True, slots=True)
class Site:
    """A channel as its pages show it; ``packages`` by name, in order."""

    settings: PageSettings
    foundation: Foundation
    packages: dict[str, Package]


def name_page(name: str) -> str:
    """Where the page of a package name lies below the channel."""
    return f"{NAMES_FOLDER}/{name}.html"
