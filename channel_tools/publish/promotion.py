# SPDX-License-Identifier: BSD-3-Clause
"""Which packages of a label are promoted when people name some of them, or none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from channel_tools.errors import UsageError
from channel_tools.packages.closure import Closures
from channel_tools.publish.selection import insist

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from channel_tools.publish.model import CuratedTarget, LabelPackage


@dataclass(frozen=True, kw_only=True, slots=True)
class _Described:
    """A package as Closures asks for it."""

    package: LabelPackage

    @property
    def file_name(self) -> str:
        return self.package.file_name

    @property
    def subdir(self) -> str:
        return self.package.subdir

    @property
    def name(self) -> str:
        return self.package.name

    @property
    def index(self) -> Mapping[str, object]:
        package = self.package
        return {
            "version": package.version,
            "build": package.build,
            "build_number": package.build_number,
            "depends": package.depends,
        }


def promoted_keys(target: CuratedTarget, source: str, names: Sequence[str]) -> tuple[str, ...]:
    """All that label ``source`` lists, or with ``names`` the packages of these names and what they need of ours.

    Foundation packages in force are always among them: a label without them is of no use. Raises UsageError for a name
    or a label that does not exist.
    """
    listed = [package for package in target.packages(source) if package.hidden is None]
    if not listed:
        raise UsageError(f"{target.address}: label {source} lists no packages", hint="publish to it first")
    if not names:
        return tuple(package.key for package in listed)
    chosen = {package.key for package in listed if package.foundation}
    closures = Closures([_Described(package=package) for package in listed])
    for name in names:
        found = [package for package in listed if package.name == name]
        insist(found, name, listed, where=f"{target.address}, label {source}")
        needed = (closures.of(_Described(package=package)) for package in found)
        chosen |= {described.package.key for packages in needed for described in packages}
    return tuple(sorted(chosen))
