# SPDX-License-Identifier: BSD-3-Clause
"""The packages that may be in an environment with a package, and the installed paths of its files.

The dependency closure is computed within a set of packages. If several of them satisfy a requirement, all are included:
the solver may choose any. Paths are the installed ones: links followed, noarch packages in their installed layout.
"""

from __future__ import annotations

import posixpath
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from rattler import Version

from channel_tools.conda.specs import (
    InvalidRecordError,
    InvalidSpecError,
    is_virtual,
    matches,
    read_spec,
    record_of,
    spec_name,
    texts_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rattler import PackageRecord

_NOARCH_PLACES = {"site-packages": "lib/python{}/site-packages", "python-scripts": "bin"}


class Described(Protocol):
    """What resolving needs of a package; ``index`` is its index.json or its record in repodata."""

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
            self._by_name[package.name.lower()].append(package)
            self._records[_key(package)] = self._record(package)

    def of(self, package: _Package) -> Sequence[_Package]:
        """The package itself and everything that it depends on, directly or indirectly."""
        packages = {_key(package): package}
        todo = [package]
        while todo:
            for other in self.direct(todo.pop()):
                if _key(other) not in packages:
                    packages[_key(other)] = other
                    todo.append(other)
        return list(packages.values())

    def direct(self, package: _Package) -> Sequence[_Package]:
        """What the package's own requirements name."""
        key = _key(package)
        if key not in self._direct:
            self._direct[key] = self._resolve(package)
        return self._direct[key]

    def satisfying(self, text: str, *, or_unknown: bool = False) -> list[_Package]:
        """The packages that satisfy a MatchSpec; none for a virtual package. Raises InvalidSpecError.

        Packages whose metadata cannot be compared satisfy nothing; with ``or_unknown``, all MatchSpecs on their name.
        """
        spec = read_spec(text)
        return [
            other
            for other in self._by_name.get(spec_name(text), ())
            if (or_unknown if (record := self._records[_key(other)]) is None else matches(spec, record))
        ]

    def _resolve(self, package: _Package) -> list[_Package]:
        met: list[_Package] = []
        try:
            depends = texts_of(package.index, "depends")
        except InvalidRecordError as err:
            self.problems.append((package, str(err)))
            return met
        for text in depends:
            try:
                matching = self.satisfying(text)
            except InvalidSpecError as err:
                self.problems.append((package, str(err)))
                continue
            if not matching and not is_virtual(name := spec_name(text)) and read_spec(text).condition is None:
                have = ", ".join(sorted(other.file_name for other in self._by_name.get(name, ())))
                candidates = have or "no package of that name"
                self.problems.append((package, f"nothing in the channel satisfies {text!r}; it has {candidates}"))
            met += matching
        return met

    def _record(self, package: _Package) -> PackageRecord | None:
        try:
            return record_of(package.index, name=package.name, subdir=package.subdir)
        except InvalidRecordError as err:
            self.problems.append((package, str(err)))
            return None


def _key(package: Described) -> str:
    return f"{package.subdir}/{package.file_name}"


def python_minor(versions: Iterable[str]) -> str:
    """The minor version (``3.11``) of the first of the versions of python, ``3`` if there is none."""
    minors = (Version(version).as_major_minor() for version in versions)
    return next((f"{minor[0]}.{minor[1]}" for minor in minors if minor is not None), "3")


def place_installed(path: str, python: str) -> str:
    """The installed path of a file of a noarch python package with this minor version of python (CEP 17)."""
    top, slash, below = path.partition("/")
    return _NOARCH_PLACES.get(top, top).format(python) + slash + below


def join_path(folder: str, name: str) -> str:
    """A path below a folder of the prefix; ``.`` is the prefix itself.

    >>> join_path("lib/cmake", "../libtoy.so")
    'lib/cmake/../libtoy.so'
    """
    return name if folder == "." else f"{folder}/{name}"


def resolve(path: str, links: Mapping[str, str]) -> str | None:
    """Follow every link in a path; None if it leaves the prefix or loops.

    >>> resolve("lib/libtoy.so", {"lib/libtoy.so": "libtoy.so.1"}), resolve("a", {"a": "a"})
    ('lib/libtoy.so.1', None)
    """
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
