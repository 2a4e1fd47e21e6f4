# SPDX-License-Identifier: BSD-3-Clause
"""Mirrors of sources: what stands in for the beginning of an address, as git's ``url.<base>.insteadOf`` has it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceMirrors:
    """A site's mirrors, tried before the addresses that recipes name.

    What comes from one is the same source: files are known by their sha256 and commits by their names, so mirrors are
    in no digest and no package names them.
    """

    places: tuple[tuple[str, str], ...] = ()
    """Beginnings of addresses and of their mirrors, in the order in which they are tried; all end with a slash."""

    def addresses(self, urls: Iterable[str]) -> tuple[str, ...]:
        """The addresses of one source: on the mirrors, then as given."""
        original = tuple(urls)
        mirrored = (
            mirror + url.removeprefix(of) for of, mirror in self.places for url in original if url.startswith(of)
        )
        return tuple(dict.fromkeys([*mirrored, *original]))
