# SPDX-License-Identifier: BSD-3-Clause
"""What a bill of materials says about a package: its licence and what it was made from, from its own metadata."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

from channel_tools.conda.archive import read_info_files
from channel_tools.conda.compiled_in import compiled_into
from channel_tools.conda.contents import info_object
from channel_tools.conda.package import OLD_SUFFIX
from channel_tools.conda.specs import required_names
from channel_tools.provenance.statements import Material, origins_in, recorded_in
from channel_tools.system.files import sha256_of_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from channel_tools.conda.compiled_in import HostPackage
    from channel_tools.conda.contents import JsonObject

_FILES = frozenset({"index.json", "about.json"})
_PATCHES = (".patch", ".diff")
_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_OID, "channel_tools bill of materials")


@dataclass(frozen=True, kw_only=True, slots=True)
class PatchFile:
    """A patch that was applied to upstream's sources, by its path in the recipe."""

    name: str
    sha256: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Component:
    """A conda package in a bill of materials. ``depends`` are the names of the packages that it needs."""

    name: str
    version: str
    build: str
    subdir: str
    file_name: str
    sha256: str
    license: str | None = None
    summary: str | None = None
    home: str | None = None
    depends: tuple[str, ...] = ()
    origins: tuple[Material, ...] = ()
    patches: tuple[PatchFile, ...] = ()
    contains: tuple[HostPackage, ...] = ()
    """The packages that were linked statically into it, or whose headers were compiled in."""

    @property
    def purl(self) -> str:
        """The package URL (type conda)."""
        return conda_purl(self)


def conda_purl(package: Component | HostPackage) -> str:
    """The package URL (type conda) of a package."""
    kind = "tar.bz2" if package.file_name.endswith(OLD_SUFFIX) else "conda"
    qualifiers = f"build={quote(package.build, safe='')}&subdir={package.subdir}&type={kind}"
    return f"pkg:conda/{quote(package.name, safe='')}@{quote(package.version, safe='')}?{qualifiers}"


def read_component(path: Path, *, sha256: str | None = None) -> Component:
    """The component for a package file; a known ``sha256`` saves hashing it. Raises IntegrityError if it is damaged."""
    files = read_info_files(path, _FILES)
    index = info_object(files, "index.json", path)
    about = info_object(files, "about.json", path) if "about.json" in files else {}  # early packages have none
    component = component_of(path.name, sha256 or sha256_of_file(path), index, about)
    return dataclasses.replace(component, contains=compiled_into(path))


def component_of(file_name: str, sha256: str, index: JsonObject, about: JsonObject) -> Component:
    """The component for a package with this metadata (CEP 34).

    Raises IntegrityError for a dependency that is not a MatchSpec.
    """
    recorded = recorded_in(about)
    return Component(
        name=str(index.get("name", "")),
        version=str(index.get("version", "")),
        build=str(index.get("build", "")),
        subdir=str(index.get("subdir", "")),
        file_name=file_name,
        sha256=sha256,
        license=_text(about.get("license")) or _text(index.get("license")),
        summary=_text(about.get("summary")),
        home=_text(about.get("home")),
        depends=tuple(sorted(required_names(index, file_name))),
        origins=tuple(origins_in(recorded)),
        patches=tuple(_patches(recorded.get("inputs"))),
    )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _patches(inputs: object) -> Iterator[PatchFile]:
    for key, value in inputs.items() if isinstance(inputs, Mapping) else ():
        if key.startswith("file:") and key.endswith(_PATCHES):
            yield PatchFile(name=key.removeprefix("file:"), sha256=str(value).split()[0])


def dependencies_among(components: Sequence[Component]) -> dict[str, tuple[str, ...]]:
    """The dependency graph of one environment: which of the components each one needs, by purl."""
    by_name = {component.name: component.purl for component in components}
    return {
        component.purl: tuple(sorted(by_name[name] for name in component.depends if name in by_name))
        for component in components
    }


@dataclass(frozen=True, kw_only=True, slots=True)
class Inventory:
    """What a bill of materials lists: one package, or the packages of one environment on one ``platform``.

    ``components`` are sorted by name; ``platform`` is None for a single package.
    """

    name: str
    platform: str | None
    components: tuple[Component, ...]

    @property
    def title(self) -> str:
        """The name, followed by the platform if there is one."""
        return self.name if self.platform is None else f"{self.name} ({self.platform})"

    @property
    def uuid(self) -> uuid.UUID:
        """Derived from the packages, so that documents with the same content are equal."""
        text = "\n".join(
            [
                self.title,
                *(f"{component.subdir}/{component.file_name} {component.sha256}" for component in self.components),
            ]
        )
        return uuid.uuid5(_NAMESPACE, text)
