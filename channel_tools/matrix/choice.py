# SPDX-License-Identifier: BSD-3-Clause
"""The default variant of a stack: of the Pythons and PyTorches that it is built for, the pair that most users need.

Other keys define what a package is (a transport, an MPI, a CUDA), and all their values are built. These two only say
what it is installed with, and each value multiplies the builds and the environments to validate.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from packaging.version import Version

from channel_tools.system.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from channel_tools.matrix.model import RenderedPackage, VariantScalar

CHOSEN_KEYS = ("pytorch", "python")
"""The keys in the order in which values are chosen: not every PyTorch exists for every Python."""
_LEADING_VERSION = re.compile(r"\d+(?:\.\d+)*")

Choice = tuple[tuple[str, str], ...]
"""Keys of CHOSEN_KEYS with their values as in the variant files."""


def default_variants(
    packages: Sequence[RenderedPackage], offered: Mapping[str, Sequence[str]]
) -> list[RenderedPackage]:
    """Those of ``packages`` that belong to the default variant of their stack.

    ``offered`` are the versions of a key that a foundation has now; any, if a key is absent. The default is the newest
    value among them, or the newest of all if the stack supports none of them.
    """
    by_stack: dict[str, list[RenderedPackage]] = {}
    for package in packages:
        by_stack.setdefault(package.stack, []).append(package)
    return [package for found in by_stack.values() for package in _of_choice(found, offered)]


def variants_for(
    packages: Sequence[RenderedPackage], asked: Mapping[str, str], offered: Mapping[str, Sequence[str]]
) -> list[RenderedPackage]:
    """Those of ``packages`` for the versions ``asked`` of the keys; for other keys, as in default_variants.

    Raises UsageError for a version that no package supports.
    """
    remaining = list(packages)
    for key, version in asked.items():
        known = {version_of(package.variant[key]) for package in remaining if key in package.variant}
        if not any(fits(value, version) for value in known):
            message = f"no package is built for {key} {version}"
            found = ", ".join(sorted(known, key=Version)) or "none"
            raise UsageError(message, hint=f"{key} in the variants of these packages: {found}")
        remaining = [
            package for package in remaining if key not in package.variant or fits(package.variant[key], version)
        ]
    return default_variants(remaining, {key: versions for key, versions in offered.items() if key not in asked})


def _of_choice(packages: Sequence[RenderedPackage], offered: Mapping[str, Sequence[str]]) -> list[RenderedPackage]:
    remaining = list(packages)
    for key in CHOSEN_KEYS:
        values = {str(package.variant[key]) for package in remaining if key in package.variant}
        if values:
            chosen = _newest(values, offered.get(key))
            remaining = [package for package in remaining if package.variant.get(key, chosen) == chosen]
    return remaining


def _newest(values: Iterable[str], offered: Sequence[str] | None) -> str:
    found = sorted(values, key=lambda value: (Version(version_of(value)), value), reverse=True)
    served = [value for value in found if offered is None or any(fits(value, version) for version in offered)]
    return (served or found)[0]


def version_of(value: VariantScalar) -> str:
    """The version that a variant's value starts with: ``3.13`` of ``3.13.* *_cp313``; ``0`` if there is none."""
    match = _LEADING_VERSION.match(str(value))
    return match[0] if match else "0"


def fits(value: VariantScalar, version: str) -> bool:
    """Whether a version is of the series that a variant's value names: ``2.13.0`` of ``2.13``."""
    return f"{version}.".startswith(f"{version_of(value)}.")


def choices(packages: Iterable[RenderedPackage]) -> list[Choice]:
    """The Pythons and PyTorches of the packages, each pair once, newest first; none if no package names a Python."""
    found = {
        tuple((key, str(package.variant[key])) for key in CHOSEN_KEYS)
        for package in packages
        if all(key in package.variant for key in CHOSEN_KEYS)
    }
    return sorted(found, key=lambda choice: [Version(version_of(value)) for _key, value in choice], reverse=True)
