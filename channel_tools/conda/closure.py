# SPDX-License-Identifier: BSD-3-Clause
"""The packages that may be in an environment with a package, and the installed paths of its files.

The dependency closure is computed within a set of packages. If several of them satisfy a requirement, all are included:
the solver may choose any. Paths are the installed ones: links followed, noarch packages in their installed layout.
"""

from __future__ import annotations

import posixpath
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from rattler import BuildString, MatchSpec, PackageRecord
from rattler.exceptions import InvalidMatchSpecError, InvalidVersionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_VIRTUAL_PREFIX = "__"
_NOARCH_PLACES = {"site-packages": "lib/python{}/site-packages", "python-scripts": "bin"}


class Described(Protocol):
    """What resolving needs of a package; ``index`` is its index.json."""

    @property
    def file_name(self) -> str: ...  # noqa: D102

    @property
    def subdir(self) -> str: ...  # noqa: D102

    @property
    def name(self) -> str: ...  # noqa: D102

    @property
    def index(self) -> Mapping[str, Any]: ...  # noqa: D102


_Package = TypeVar("_Package", bound=Described)


class Closures(Generic[_Package]):
    """The requirements of a set of packages, each resolved once, when first needed.

    ``problems`` are packages and what is wrong with those of their requirements that were resolved.
    """

    def __init__(self, packages: Iterable[_Package]) -> None:
        self.problems: list[tuple[_Package, str]] = []
        self._by_name: dict[str, list[_Package]] = defaultdict(list)
        self._records: dict[str, PackageRecord | None] = {}
        self._direct: dict[str, list[_Package]] = {}
        for package in packages:
            self._by_name[package.name].append(package)
            self._records[_key(package)] = self._record(package)

    def of(self, package: _Package) -> Sequence[_Package]:
        """The package itself and everything that it depends on, directly or indirectly."""
        found = {_key(package): package}
        todo = [package]
        while todo:
            for other in self.direct(todo.pop()):
                if _key(other) not in found:
                    found[_key(other)] = other
                    todo.append(other)
        return list(found.values())

    def direct(self, package: _Package) -> Sequence[_Package]:
        """What the package's own requirements name."""
        key = _key(package)
        if key not in self._direct:
            self._direct[key] = self._resolve(package)
        return self._direct[key]

    def _resolve(self, package: _Package) -> list[_Package]:
        met: list[_Package] = []
        for text in package.index.get("depends", ()):
            if text.startswith(_VIRTUAL_PREFIX):
                continue
            candidates = self._by_name.get(text.split()[0], [])
            try:
                matching = self._matching(MatchSpec(text), candidates)
            except InvalidMatchSpecError as err:
                self.problems.append((package, f"{text!r} is not a valid MatchSpec ({err})"))
                continue
            if not matching:
                have = ", ".join(sorted(other.file_name for other in candidates)) or "no package of that name"
                self.problems.append((package, f"nothing in the channel satisfies {text!r}; it has {have}"))
            met += matching
        return met

    def _matching(self, spec: MatchSpec, candidates: Iterable[_Package]) -> list[_Package]:
        return [other for other in candidates if (record := self._records[_key(other)]) and spec.matches(record)]

    def _record(self, package: _Package) -> PackageRecord | None:
        try:
            return solver_record(package)
        except InvalidVersionError as err:
            version = package.index.get("version")
            self.problems.append((package, f"version {version!r} cannot be ordered by conda ({err})"))
            return None


def solver_record(package: Described) -> PackageRecord:
    """The package as a record for matching MatchSpecs. Raises rattler's InvalidVersionError."""
    index = package.index
    return PackageRecord(
        name=package.name,
        version=str(index.get("version")),
        build=BuildString(str(index.get("build"))),
        build_number=int(index.get("build_number", 0)),
        subdir=package.subdir,
    )


def _key(package: Described) -> str:
    return f"{package.subdir}/{package.file_name}"


def python_minor(versions: Iterable[str]) -> str:
    """The minor version (``3.11``) of the first of the versions of python, ``3`` if there is none."""
    return next((".".join(version.split(".")[:2]) for version in versions), "3")


def place_installed(path: str, python: str) -> str:
    """The installed path of a file of a noarch python package with this minor version of python (CEP 17)."""
    top, slash, rest = path.partition("/")
    return _NOARCH_PLACES.get(top, top).format(python) + slash + rest


def join_path(folder: str, name: str) -> str:
    """A path below a folder of the prefix; ``.`` is the prefix itself."""
    return name if folder == "." else f"{folder}/{name}"


def resolve(path: str, links: Mapping[str, str]) -> str | None:
    """Follow every link in a path; None if it leaves the prefix or loops."""
    todo, done = path.split("/"), list[str]()
    for _ in range(4 * len(todo) + 64):
        if not todo:
            return "/".join(done)
        part = todo.pop(0)
        if part == "..":
            if not done:
                return None
            done.pop()
            continue
        if part in {"", "."}:
            continue
        done.append(part)
        target = links.get("/".join(done))
        if target is not None:
            if posixpath.isabs(target):
                return None
            done.pop()
            todo = [*target.split("/"), *todo]
    return None
