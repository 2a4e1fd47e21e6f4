# SPDX-License-Identifier: BSD-3-Clause
"""The values of the plan stage and their JSON form (docs/reference/plan-json.md).

A package that a foundation cannot serve has no digest (its environments do not exist), so it has its own type.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from channel_tools.conda.package import PackageKey

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from channel_tools.matrix.model import Pin, RenderedPackage
    from channel_tools.plan.lock import FoundationLock

SCHEMA_VERSION = 1
Status = Literal["build", "skip"]
EnvironmentName = Literal["build", "host"]
JsonValue = None | bool | int | str | list["JsonValue"] | dict[str, "JsonValue"]


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishedPackage:
    """An own package in the channel, as described by its index and ``info/about.json``."""

    name: str
    file_name: str
    digest: str
    inputs: Mapping[str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildFile:
    """A file or link that belongs to a build: ``name`` as in the recipe, ``target`` in the rendered folder."""

    path: Path
    name: str
    target: str
    sha256: str
    """Of its bytes; empty for a link."""
    executable: bool
    link: str | None = None
    """The text of what stays a link; of any other link, the file is what it leads to."""
    is_ignored: bool = False
    """Whether git ignores it, and it is there for a source with ``use_gitignore: false`` alone."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnPin:
    """A requirement on an own package, pinned to the build that the digest was computed with."""

    environment: EnvironmentName
    name: str
    spec: str


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedPackage:
    """A package that can be built: its final name, everything that determines its content, and whether it is built."""

    rendered: RenderedPackage
    build_string: str
    digest: str
    date_s: int
    """The date of the newest of its inputs, in seconds since 1970: its SOURCE_DATE_EPOCH."""
    inputs: Mapping[str, str]
    """Hashes or short texts by ``kind:name``; the digest covers these, and ``reasons`` compare them."""
    files: tuple[BuildFile, ...]
    own_pins: tuple[OwnPin, ...]
    foundation: tuple[str, ...]
    """The packages of the foundation and of further channels in any environment of the build or of its tests, by their
    keys in a lock (FoundationLock)."""
    sibling_specs: Mapping[Pin, str]
    """MatchSpecs for ``pin_subpackage`` of other outputs of the recipe."""
    waits_for: tuple[str, ...]
    """File names of packages of the same plan that must be in the channel before this one is built."""
    status: Status
    reasons: tuple[str, ...]
    """Why it is built; empty for a package that is skipped."""

    @property
    def name(self) -> str:
        """The name of the package."""
        return self.rendered.name

    @property
    def version(self) -> str:
        """The package's version."""
        return self.rendered.version

    @property
    def subdir(self) -> str:
        """``noarch`` or the platform."""
        return self.rendered.subdir

    @property
    def folder_name(self) -> str:
        """``name-version-build string``, which names the rendered folder too."""
        return f"{self.name}-{self.version}-{self.build_string}"

    @property
    def file_name(self) -> str:
        """The package file inside its subdir."""
        return f"{self.folder_name}.conda"

    @property
    def key(self) -> PackageKey:
        """Its place in a channel."""
        return PackageKey(self.subdir, self.file_name)


@dataclass(frozen=True, kw_only=True, slots=True)
class UnsatisfiablePackage:
    """A variant that the foundation cannot serve, with the reason in plain words."""

    rendered: RenderedPackage
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """Packages in an order in which they can be built, and those that cannot."""

    packages: tuple[PlannedPackage, ...]
    unsatisfiable: tuple[UnsatisfiablePackage, ...]
    choices: Mapping[str, Mapping[str, Collection[str]]] = field(default_factory=dict)
    """The values of variant keys that the tree has, by recipe folder: they tell a new variant from a changed one."""
    lock: FoundationLock | None = None
    """The foundation lock with what the plan added to it; None for a foundation without one."""
    locks: tuple[str, ...] = ()
    """The requirements that the tree's lock had nothing for yet."""
    lock_file: str | None = None
    """The lock's path in the tree."""

    @property
    def to_build(self) -> tuple[PlannedPackage, ...]:
        """The packages that are not in the channel yet, or whose build is forced."""
        return tuple(package for package in self.packages if package.status == "build")


def plan_to_json(plan: Plan) -> dict[str, JsonValue]:
    """The plan as plain values, in the plan's order."""
    missing: list[JsonValue] = [*sorted(plan.locks)]
    return {
        "schema": SCHEMA_VERSION,
        "foundation_lock": None if plan.lock_file is None else {"file": plan.lock_file, "missing": missing},
        "packages": [_planned(package) for package in plan.packages],
        "unserved": [
            {**_common(package.rendered), "status": "unserved", "reason": package.reason}
            for package in plan.unsatisfiable
        ],
    }


def _planned(package: PlannedPackage) -> dict[str, JsonValue]:
    return {
        **_common(package.rendered),
        "build_string": package.build_string,
        "file_name": package.file_name,
        "status": package.status,
        "reasons": list(package.reasons),
        "digest": package.digest,
        "waits_for": list(package.waits_for),
        "inputs": dict(package.inputs),
    }


def _common(rendered: RenderedPackage) -> dict[str, JsonValue]:
    return {
        "stack": rendered.stack,
        "name": rendered.name,
        "version": rendered.version,
        "build_number": rendered.build_number,
        "subdir": rendered.subdir,
        "recipe": rendered.recipe_file.name,
        "variant": dict(rendered.variant),
    }
