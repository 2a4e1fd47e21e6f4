# SPDX-License-Identifier: BSD-3-Clause
"""The default variant of a stack: of the Pythons and PyTorches that it is built for, the pair that most users need.

Other keys define what a package is (a transport, an MPI, a CUDA), and all their values are built. These two only say
what it is installed with, and each value multiplies the builds and the environments to validate.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.version import Version

from channel_tools.conda.specs import InvalidSpecError, read_spec
from channel_tools.system.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from channel_tools.matrix.model import RenderedPackage, VariantScalar

CHOSEN_KEYS = ("pytorch", "python")
"""The keys in the order in which values are chosen: not every PyTorch exists for every Python."""
_VERSION = re.compile(r"\d+(?:\.\d+)*")
_ORDINARY_BUILD = re.compile(r"(?:.*_)?(?:cpython|cp\d+)|")
"""Builds of CPython as most users have it: ``*_cpython``, ``*_cp313``; not ``*_cp313t``, PyPy or GraalPy."""
_FREE_THREADED_BUILD = re.compile(r"(?:.*_)?cp\d+t")

Choice = tuple[tuple[str, str], ...]
"""Keys of CHOSEN_KEYS with their values as in the variant files."""


def default_variants(
    packages: Sequence[RenderedPackage], offered: Mapping[str, Sequence[str]]
) -> list[RenderedPackage]:
    """Those of ``packages`` that belong to the default variant of their stack.

    ``offered`` are the versions of a key that a foundation has now; any, if a key is absent. The default is the newest
    value among them, or the newest of all if the stack supports none of them; a special build of Python (free-threaded,
    PyPy, GraalPy) only if there is no other.
    """
    by_stack: dict[str, list[RenderedPackage]] = {}
    for package in packages:
        by_stack.setdefault(package.stack, []).append(package)
    return [package for of_stack in by_stack.values() for package in _of_choice(of_stack, offered)]


def variants_for(
    packages: Sequence[RenderedPackage], asked: Mapping[str, str], offered: Mapping[str, Sequence[str]]
) -> list[RenderedPackage]:
    """Those of ``packages`` for the versions ``asked`` of the keys; for other keys, as in default_variants.

    A version is one like 3.13 (of several values for it, the ordinary Python), a label, or a value as it is written.
    Raises UsageError for a version that no package supports.
    """
    remaining = list(packages)
    for key, version in asked.items():
        known = {str(package.variant[key]) for package in remaining if key in package.variant}
        wanted = [value for value in known if version in {value, label(value)}]
        wanted = wanted or [value for value in known if fits(value, version)]
        if not wanted:
            message = f"no package is built for {key} {version}"
            labels = ", ".join(dict.fromkeys(map(label, sorted(known, key=_rank)))) or "none"
            raise UsageError(message, hint=f"{key} in the variants of these packages: {labels}")
        chosen = max(wanted, key=_rank)
        remaining = [package for package in remaining if str(package.variant.get(key, chosen)) == chosen]
    return default_variants(remaining, {key: versions for key, versions in offered.items() if key not in asked})


def _of_choice(packages: Sequence[RenderedPackage], offered: Mapping[str, Sequence[str]]) -> list[RenderedPackage]:
    remaining = list(packages)
    for key in CHOSEN_KEYS:
        values = {str(package.variant[key]) for package in remaining if key in package.variant}
        if values:
            chosen = _newest(values, offered.get(key))
            remaining = [package for package in remaining if str(package.variant.get(key, chosen)) == chosen]
    return remaining


def _newest(values: Iterable[str], offered: Sequence[str] | None) -> str:
    newest_first = sorted(values, key=_rank, reverse=True)
    served = [
        value
        for value in newest_first
        if offered is None or (is_ordinary(value) and any(fits(value, version) for version in offered))
    ]
    return (served or newest_first)[0]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Meaning:
    version: str
    build: str


@functools.lru_cache(maxsize=1024)
def _read(value: str) -> _Meaning:
    """The version and the build string of a variant's value, which is the rest of a MatchSpec; ``0`` for no version."""
    try:
        spec = read_spec(f"name {value}")
    except InvalidSpecError:
        return _Meaning(version="0", build="")
    match = _VERSION.search(str(spec.version or ""))
    return _Meaning(version=match[0] if match else "0", build=str(spec.build or "").removeprefix("*").lstrip("_"))


def _rank(value: str) -> tuple[bool, Version, str]:
    return is_ordinary(value), Version(version_of(value)), value


def version_of(value: VariantScalar) -> str:
    """The version that a variant's value asks for: ``3.13`` of ``3.13.* *_cp313``; ``0`` if there is none.

    >>> version_of("3.12.* *_cpython")
    '3.12'
    """
    return _read(str(value)).version


def is_ordinary(value: VariantScalar) -> bool:
    """Whether a value is no special build of Python: free-threaded, PyPy, GraalPy.

    >>> is_ordinary("3.13.* *_cp313"), is_ordinary("3.13.* *_cp313t")
    (True, False)
    """
    return _ORDINARY_BUILD.fullmatch(_read(str(value)).build) is not None


def label(value: VariantScalar) -> str:
    """A short name of a value: its version, and what makes it special: ``3.13``, ``3.13t``, ``3.11-graalpy242``.

    >>> label("3.13.* *_cp313t")
    '3.13t'
    """
    meaning = _read(str(value))
    if is_ordinary(value):
        return meaning.version
    free_threaded = _FREE_THREADED_BUILD.fullmatch(meaning.build)
    return f"{meaning.version}t" if free_threaded else f"{meaning.version}-{meaning.build.strip('*')}"


def fits(value: VariantScalar, version: str) -> bool:
    """Whether a version is of the series that a variant's value names: ``2.13.0`` of ``2.13``.

    >>> fits("3.12.* *_cpython", "3.12"), fits("3.12", "3.1")
    (True, False)
    """
    return f"{version}.".startswith(f"{version_of(value)}.")


def choices(packages: Iterable[RenderedPackage]) -> list[Choice]:
    """The Pythons and PyTorches of the packages, as choices_of."""
    return choices_of(package.variant for package in packages)


def choices_of(variants: Iterable[Mapping[str, VariantScalar]]) -> list[Choice]:
    """The Pythons and PyTorches of variants, each pair once, newest first; none if no variant names a Python."""
    combinations = {
        tuple((key, str(variant[key])) for key in CHOSEN_KEYS)
        for variant in variants
        if all(key in variant for key in CHOSEN_KEYS)
    }
    return sorted(combinations, key=lambda choice: [_rank(value) for _key, value in choice], reverse=True)
