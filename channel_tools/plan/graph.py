# SPDX-License-Identifier: BSD-3-Clause
"""Ordering by needs. Pure and stable: of the names that could come next, the one given first does."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping


class CycleFoundError(Exception):
    """Names that need each other in a ring; the first stands again at the end of ``cycle``."""

    def __init__(self, cycle: tuple[str, ...]) -> None:
        super().__init__(" -> ".join(cycle))
        self.cycle = cycle


def topological_order(needs: Mapping[str, Collection[str]]) -> list[str]:
    """The keys of ``needs``, each after all it needs; other names and a need of itself are ignored.

    >>> topological_order({"app": ["lib"], "lib": ["gcc"], "tool": []})
    ['lib', 'app', 'tool']

    Raises CycleFoundError.
    """
    order: dict[str, None] = {}
    for name in needs:
        _visit(name, needs, order, ())
    return list(order)


def _visit(name: str, needs: Mapping[str, Collection[str]], order: dict[str, None], path: tuple[str, ...]) -> None:
    if name in order:
        return
    if name in path:
        raise CycleFoundError((*path[path.index(name) :], name))
    for need in (item for item in needs if item != name and item in needs[name]):
        _visit(need, needs, order, (*path, name))
    order[name] = None
