# SPDX-License-Identifier: BSD-3-Clause
"""Symbol versions of glibc, libstdc++ and libgcc, and which release of each brings them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Version = tuple[int, ...]

_SYMBOL = re.compile(r"(GLIBC|GLIBCXX|CXXABI|GCC)_(\d+(?:\.\d+)*)")
_BOUND = re.compile(r"(>=|==|=|~=|>)?\s*(\d+(?:\.\d+)*)")

# The first release of GCC whose libstdc++ has a version; GCC's own "ABI Policy and Guidelines" lists them.
_GLIBCXX: Mapping[Version, Version] = {
    (3, 4, 19): (4, 8, 3), (3, 4, 20): (4, 9), (3, 4, 21): (5, 1), (3, 4, 22): (6, 1), (3, 4, 23): (7, 1),
    (3, 4, 24): (7, 2), (3, 4, 25): (8, 1), (3, 4, 26): (9, 1), (3, 4, 27): (9, 2), (3, 4, 28): (9, 3),
    (3, 4, 29): (11, 1), (3, 4, 30): (12, 1), (3, 4, 31): (13, 1), (3, 4, 32): (13, 2), (3, 4, 33): (14, 1),
    (3, 4, 34): (15, 1),
}  # fmt: skip
_CXXABI: Mapping[Version, Version] = {
    (1, 3, 7): (4, 8), (1, 3, 8): (4, 9), (1, 3, 9): (5, 1), (1, 3, 10): (6, 1), (1, 3, 11): (7, 1),
    (1, 3, 12): (9, 1), (1, 3, 13): (11, 1), (1, 3, 14): (13, 1), (1, 3, 15): (14, 1), (1, 3, 16): (15, 1),
}  # fmt: skip
_OLDEST: Version = (4, 8)
_UNKNOWN: Version = (9999,)


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """A library's release that symbol versions ask for, and the newest of these versions."""

    symbol: str
    release: Version


def wanted_releases(symbols: Iterable[str]) -> dict[str, Wanted]:
    """``glibc``, ``libstdcxx`` and ``libgcc`` to the oldest release that has all these symbol versions."""
    newest: dict[str, Wanted] = {}
    for symbol in symbols:
        match = _SYMBOL.fullmatch(symbol)
        if match is None:
            continue
        library, release = _release(match[1], parse_version(match[2]))
        if library not in newest or newest[library].release < release:
            newest[library] = Wanted(symbol=symbol, release=release)
    return newest


def _release(family: str, version: Version) -> tuple[str, Version]:
    if family == "GLIBC":
        return "glibc", version
    if family == "GCC":
        return "libgcc", version
    table = _GLIBCXX if family == "GLIBCXX" else _CXXABI
    if version < min(table):
        return "libstdcxx", _OLDEST
    return "libstdcxx", table.get(version, _UNKNOWN)


def least_version(spec: str) -> Version:
    """The oldest version that a MatchSpec lets in, as far as it says so by ``>=``, ``=`` or a bare version."""
    _name, _space, rest = spec.replace("=", " =", 1).replace("> =", " >=", 1).partition(" ")
    bounds = []
    for part in rest.strip().partition(" ")[0].split(","):
        match = _BOUND.match(part.strip())
        if match:
            bounds.append(parse_version(match[2]))
    return max(bounds, default=())


def parse_version(text: str) -> Version:
    """``2.17`` as numbers; what follows the numbers is left out."""
    match = re.match(r"\d+(?:\.\d+)*", text)
    return tuple(int(part) for part in match[0].split(".")) if match else ()


def is_enough(have: Version, wanted: Version) -> bool:
    """Whether a release is the wanted one or newer; ``12`` stands for ``12.1``, the first of its series."""
    return (have[:1] > wanted[:1]) or have >= wanted or (len(have) == 1 and have == wanted[:1])
