# SPDX-License-Identifier: BSD-3-Clause
"""The values that the pages of a channel are made of, and the path of each page.

``index.html`` is at the channel's root, all other files are below ``page/``, which is not the name of a subdir, so
neither clients nor indexers look there.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from urllib.parse import quote

from channel_tools.channel.model import RECORD_FOLDER
from channel_tools.channel.results import BuildRecord  # noqa: TC001 - msgspec reads the annotations
from channel_tools.conda.metadata import timestamp_ms
from channel_tools.conda.package import RECORD_FIELD, stem_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from channel_tools.channel.model import Foundation
    from channel_tools.channel.records import CachedPackage
    from channel_tools.conda.contents import JsonObject
    from channel_tools.system.beneath import Beneath

_FILE_BYTES = 64 << 20
INDEX_PAGE = "index.html"
PAGE_FOLDER = "page"
NAMES_FOLDER = f"{PAGE_FOLDER}/name"
BUILDS_FOLDER = f"{PAGE_FOLDER}/build"
STACKS_FOLDER = f"{PAGE_FOLDER}/stack"
PAGE_SCHEMA = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class ShownCheck:
    """The result of one check of a validation."""

    name: str
    passed: bool
    found: str
    expected: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ShownBandwidth:
    """The median bandwidths for one tensor size: MB (10^6 bytes) of tensor per second and rank."""

    dtype: str
    size_bytes: int
    transport_mb_s: float
    baseline_mb_s: float

    @property
    def ratio(self) -> float:
        """The stack's bandwidth as a multiple of the baseline's."""
        return self.transport_mb_s / self.baseline_mb_s if self.baseline_mb_s else 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class ShownRun:
    """One validation of a stack, without anything that names its machine; ``hosts`` is how many there were.

    ``started`` is UTC in ISO 8601. ``packages`` are those installed, each as NAME-VERSION-BUILD, and ``sha256`` the
    digests of their files in the same order, "" where not known: a file of the same name may have other content.
    """

    started: str
    seconds: float
    passed: bool
    ranks: int
    hosts: int
    processor: str
    cores: int
    python: str
    pytorch: str
    baseline: str
    packages: tuple[str, ...]
    checks: tuple[ShownCheck, ...]
    bandwidth: tuple[ShownBandwidth, ...]
    sha256: tuple[str, ...] = ()
    carrier_here: str = ""
    """What carried the ranks of one host that had nothing set; "" where that is not measured by itself."""
    bandwidth_here: tuple[ShownBandwidth, ...] = ()

    @property
    def files(self) -> dict[str, str]:
        """The packages by the sha256 of their files; those without one are left out."""
        return {sha256: stem for stem, sha256 in zip(self.packages, self.sha256, strict=False) if sha256}


@dataclass(frozen=True, kw_only=True, slots=True)
class ShownStack:
    """A stack as the page shows it; ``install`` are its MatchSpecs, ``needs`` what its validation needs on a machine.

    ``packages`` are the names of those that are built for it. ``runs`` are its validations, oldest first; ``validated``
    says whether there is anything to validate. ``how_to_run`` are the shell lines that run a script without
    channel_tools, empty where only it starts what the stack needs.
    """

    name: str
    description: str
    install: tuple[str, ...]
    packages: tuple[str, ...] = ()
    validated: bool = False
    needs: str = ""
    how_to_run: tuple[str, ...] = ()
    runs: tuple[ShownRun, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class PageSettings:
    """page.json below ``.channel_tools``: says that the channel has a page, and keeps what only its owner knows.

    ``address`` is the channel's URL for clients, None if it was not given. ``sentence`` says what the channel is for,
    ``contact`` is an e-mail or web address ("" if not given). ``builds`` are by file name.
    """

    schema: int = PAGE_SCHEMA
    title: str
    address: str | None = None
    sentence: str = ""
    contact: str = ""
    stacks: tuple[ShownStack, ...] = ()
    builds: dict[str, BuildRecord] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class PageChoices:
    """What an owner may say about a page, as PageSettings has it; None keeps what was said last."""

    title: str | None = None
    address: str | None = None
    sentence: str | None = None
    contact: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class TreeRecords:
    """What is recorded in a tree and its output: stacks with their runs; builds by package file name."""

    stacks: tuple[ShownStack, ...]
    builds: Mapping[str, BuildRecord]


@dataclass(frozen=True, kw_only=True, slots=True)
class Build:
    """One package file: its row of the record cache, its patched record, and why new solves do not see it.

    ``needs`` are the names of the packages that it depends on, including virtual ones, in the order of its record.
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
    def timestamp(self) -> str:
        """The timestamp of its record as ISO 8601 in UTC, "" if it has none that can be right."""
        value = timestamp_ms(self.record.get("timestamp"))
        if value == 0:
            return ""
        return datetime.fromtimestamp(value / 1000, UTC).isoformat(timespec="seconds")

    @property
    def state(self) -> str:
        """Whether new solves see it, in words for the page."""
        return self.hidden or "available"

    @property
    def earlier(self) -> bool:
        """Whether another build replaced it, so that it is kept only for lock files."""
        return self.hidden is not None and self.yanked is None

    @property
    def stem(self) -> str:
        """NAME-VERSION-BUILD."""
        return stem_of(self.file_name)

    @property
    def page(self) -> str:
        """The path of its page below the channel."""
        return f"{BUILDS_FOLDER}/{self.subdir}/{self.stem}.html"

    @property
    def attested(self) -> bool:
        """Whether its record names attestations."""
        return isinstance(self.record.get(RECORD_FIELD), str)


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
        """The path of its page below the channel."""
        return name_page(self.name)


@dataclass(frozen=True, kw_only=True, slots=True)
class Site:
    """A channel as its pages show it; ``packages`` by name, sorted.

    ``validations`` are the newest runs that passed with a build, each with its stack's name, by the sha256 of
    the build's file; ``summaries`` are by package.
    """

    settings: PageSettings
    foundation: Foundation
    packages: dict[str, Package]
    validations: dict[str, tuple[tuple[str, ShownRun], ...]]
    summaries: dict[str, str]

    def built_s(self, build: Build) -> float:
        """``built`` in seconds since 1970, 0 if it is not known."""
        known = self.settings.builds.get(build.file_name)
        if known is None:
            return timestamp_ms(build.record.get("timestamp")) / 1000
        try:
            moment = datetime.fromisoformat(known.finished)
        except ValueError:
            return 0.0
        return (moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment).timestamp()

    def built(self, build: Build) -> str:
        """When a build was built: as recorded, else by its own timestamp; ISO 8601, UTC, "" if neither is known.

        The timestamp of what this program built is the date of its newest input, so that it can be built again.
        """
        known = self.settings.builds.get(build.file_name)
        if known is not None:
            return known.finished
        return build.timestamp if build.row.origin.digest is None else ""


def name_page(name: str) -> str:
    """The path of a package's page below the channel."""
    return f"{NAMES_FOLDER}/{name}.html"


def stack_page(name: str) -> str:
    """The path of a stack's page below the channel."""
    return f"{STACKS_FOLDER}/{quote(name, safe='')}.html"


def validated_list(name: str) -> str:
    """The path of the explicit list of what a stack's validation had installed, below the channel."""
    return f"{STACKS_FOLDER}/{quote(name, safe='')}.txt"


@dataclass(frozen=True, kw_only=True, slots=True)
class PageStore:
    """The folder of a channel that a page is written to; all names are relative to it."""

    files: Beneath

    def url(self, name: str) -> str:
        """A file's path, for messages."""
        return str(self.files.path / name)

    def read(self, name: str) -> bytes | None:
        """A file's content, None if there is no such file."""
        try:
            return self.files.read(name, limit_bytes=_FILE_BYTES)
        except FileNotFoundError:
            return None

    def present(self, names: Collection[str]) -> set[str]:
        """Those of the files, or of folders with files in them, that exist."""
        folders = {name.rpartition("/")[0] for name in names}
        present = {f"{folder}/{name}".lstrip("/") for folder in folders for name in self.files.names(folder)}
        return present & set(names)

    def write(self, files: Sequence[tuple[str, Callable[[], bytes]]]) -> None:
        """Replace files one by one in this order, each atomically. Raises DiskFullError."""
        for folder, group in itertools.groupby(files, key=lambda file: file[0].rpartition("/")[0]):
            if folder.partition("/")[0] == RECORD_FOLDER:  # which others write to at the same time
                for name, content in group:
                    self.files.write(name, content())
                continue
            self.files.remove_leftovers(folder)
            self.files.write_all((name, content()) for name, content in group)

    def remove(self, names: Iterable[str]) -> None:
        """Remove files; missing ones are ignored."""
        for name in names:
            self.files.remove(name)
