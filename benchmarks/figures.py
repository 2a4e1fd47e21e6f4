# SPDX-License-Identifier: BSD-3-Clause
"""Measured figures beside their limits, as one table."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_DIGITS = {"s": 2, "times": 1}


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    """A measured value and its limit: at least, or with ``at_most`` at most.

    Of an ``aim``, which depends on the machine's speed, the table says whether it is met, but nothing fails.
    """

    name: str
    value: float
    unit: str
    limit: float
    at_most: bool = False
    aim: bool = False

    @property
    def missed(self) -> bool:
        """Whether the limit was not met."""
        return self.value > self.limit if self.at_most else self.value < self.limit


def print_figures(figures: Sequence[Figure]) -> int:
    """Print the table, aligned for people and easy to cut for programs; the exit status: 1 when a limit was missed.

    A missed aim is shown, and does not count.
    """
    print(f"{'figure':56} {'value':>9} {'limit':>7} unit")
    for figure in figures:
        digits = _DIGITS.get(figure.unit, 0)
        missed = f"  MISSED{', an aim' if figure.aim else ''}" if figure.missed else ""
        print(f"{figure.name:56} {figure.value:9.{digits}f} {figure.limit:7.{digits}f} {figure.unit}{missed}")
    return int(any(figure.missed and not figure.aim for figure in figures))


def in_turn(*measurements: Callable[[], float], rounds: int = 5) -> list[float]:
    """The median of each measurement, taken in turns after one of each that does not count.

    Other work on the machine meets all of them alike.
    """
    turns = [[measure() for measure in measurements] for _round in range(rounds + 1)][1:]
    return [statistics.median(column) for column in zip(*turns, strict=True)]
