# SPDX-License-Identifier: BSD-3-Clause
"""Charts as SVG in pages: shares, and figures by size.

A chart contains its own light and dark style (without ``styled``, the page's style sheet has ``chart_style``), loads
nothing, and has a title and a description for screen readers; its labels and marks say what it shows, never colour
alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from markupsafe import Markup

from channel_tools.system.pages import SHARED_TEMPLATES, page_templates, size_in_words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

WIDTH = 460
_SIZE_LEFT, _SIZE_RIGHT = 46, 330
_SIZE_TOP, _SIZE_BOTTOM = 44, 216
_LABEL_HEIGHT = 14
_LOOKS = 4
_MOST_TICKS = 6
_SHARE_LEFT = 8
_TEMPLATES = page_templates(SHARED_TEMPLATES)


def share_bar(name: str, title: str, parts: Sequence[tuple[str, int]], *, description: str) -> Markup:
    """One bar of (label, amount), each as wide as its share; labels and amounts stand below it, in the same order.

    The first part is what the chart is about, the others are drawn as less. ``name`` is unique on the page.
    """
    total = sum(amount for _label, amount in parts) or 1
    drawn, left = [], float(_SHARE_LEFT)
    for label, amount in parts:
        width = (WIDTH - 2 * _SHARE_LEFT) * amount / total
        drawn.append(
            (round(left, 1), round(max(width - 1, 0.0), 1), f"{label} {amount} ({100 * amount / total:.0f} %)")
        )
        left += width
    return _render(
        "share.svg.jinja",
        styled=True,
        name=name,
        title=title,
        description=description,
        width=WIDTH,
        height=62 + 16 * len(parts),
        left=_SHARE_LEFT,
        parts=drawn,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class SizePoint:
    """A value for a tensor size, with its quartiles if they are known."""

    size_bytes: int
    value: float
    spread: tuple[float, float] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class SizeLine:
    """The values of one thing by size, smallest first; ``beside`` if it is what others are compared with (dashed).

    Lines of the same ``kind`` have the same colour and marks.
    """

    kind: str
    label: str
    points: tuple[SizePoint, ...]
    beside: bool = False


def size_chart(
    name: str,
    title: str,
    lines: Sequence[SizeLine],
    *,
    description: str,
    unit: str = "",
    reference: float | None = None,
    styled: bool = False,
) -> Markup:
    """A chart of values by size, which grows by factors; bands are quartiles, ``reference`` is marked with its value.

    With a reference, values grow by factors, too, so that half of it is as far from it as twice. ``name`` is unique on
    the page. Each line ends with its label and last value. There has to be a line with a point.
    """
    sizes = sorted({point.size_bytes for line in lines for point in line.points})
    values = [value for line in lines for point in line.points for value in (point.value, *(point.spread or ()))]
    ticks, height = _by_factors(values, reference) if reference else _from_zero(values)
    span = max(math.log2(sizes[-1] / sizes[0]), 1.0)

    def across(size_bytes: int) -> float:
        return round(_SIZE_LEFT + (_SIZE_RIGHT - _SIZE_LEFT) * math.log2(size_bytes / sizes[0]) / span, 1)

    return _render(
        "sizes.svg.jinja",
        styled=styled,
        name=name,
        title=title,
        description=description,
        width=WIDTH,
        height=_SIZE_BOTTOM + 34,
        left=_SIZE_LEFT,
        right=_SIZE_RIGHT,
        bottom=_SIZE_BOTTOM,
        ticks=[(height(value), f"{value:g}", value == reference) for value in ticks],
        sizes=[(across(size), size_in_words(size)) for size in sizes],
        unit=unit,
        lines=_drawn_lines(lines, across, height),
    )


def _drawn_lines(
    lines: Sequence[SizeLine], across: Callable[[int], float], height: Callable[[float], float]
) -> list[dict[str, object]]:
    """The lines for the template; ``across`` and ``height`` give the position of a size and of a value."""
    looks = {kind: number % _LOOKS for number, kind in enumerate(dict.fromkeys(line.kind for line in lines))}
    ends = _apart([height(line.points[-1].value) for line in lines])
    return [
        {
            "look": looks[line.kind],
            "beside": line.beside,
            "points": [(across(point.size_bytes), height(point.value)) for point in line.points],
            "band": _band(
                [
                    (across(point.size_bytes), height(point.spread[0]), height(point.spread[1]))
                    for point in line.points
                    if point.spread
                ]
            ),
            "end": end,
            "text": f"{line.label} {_figure(line.points[-1].value)}",
        }
        for line, end in zip(lines, ends, strict=True)
    ]


@dataclass(frozen=True, kw_only=True, slots=True)
class SizeFigure:
    """The bandwidths of a tensor: the stack's with its quartiles, if known, and the baseline's, MB/s."""

    dtype: str
    size_bytes: int
    own: float
    beside: float
    spread: tuple[float, float] | None = None

    @property
    def ratio(self) -> float:
        """The stack's as a multiple of the baseline's."""
        return self.own / self.beside if self.beside else 0.0


def bandwidth_charts(
    stack: str, baseline: str, figures: Sequence[SizeFigure], *, styled: bool = False
) -> Iterator[Markup]:
    """Two charts by tensor size with a line per type: the ratio to the baseline, and both bandwidths."""
    if not figures:
        return
    rows: dict[str, list[SizeFigure]] = {}
    for figure in sorted(figures, key=lambda entry: entry.size_bytes):
        rows.setdefault(figure.dtype, []).append(figure)
    listed = "; ".join(
        f"{entry.dtype} of {size_in_words(entry.size_bytes)}: {entry.own:.0f} beside {entry.beside:.0f}, "
        f"a ratio of {entry.ratio:.2f}"
        for entry in figures
    )
    yield size_chart(
        "by-size-ratio",
        f"{stack} as a multiple of {baseline}",
        [
            _size_line(dtype, [(entry.size_bytes, entry.ratio, None) for entry in of_dtype])
            for dtype, of_dtype in rows.items()
        ],
        description=f"By tensor size; above the dashed line at 1, {stack} is faster. {listed}.",
        unit=f"times {baseline}",
        reference=1.0,
        styled=styled,
    )
    own = [
        _size_line(dtype, [(entry.size_bytes, entry.own, entry.spread) for entry in of_dtype])
        for dtype, of_dtype in rows.items()
    ]
    beside = [
        _size_line(dtype, [(entry.size_bytes, entry.beside, None) for entry in of_dtype], beside=baseline)
        for dtype, of_dtype in rows.items()
    ]
    yield size_chart(
        "by-size-bandwidth",
        f"Bandwidth of {stack}, and of {baseline} (dashed)",
        [*own, *beside],
        description=f"By tensor size, MB/s; bands are quartiles. {listed}.",
        unit="MB/s",
        styled=styled,
    )


def _size_line(
    kind: str, points: Sequence[tuple[int, float, tuple[float, float] | None]], *, beside: str = ""
) -> SizeLine:
    return SizeLine(
        kind=kind,
        label=f"{kind}, {beside}" if beside else kind,
        points=tuple(SizePoint(size_bytes=size, value=value, spread=spread) for size, value, spread in points),
        beside=bool(beside),
    )


def _from_zero(values: Sequence[float]) -> tuple[tuple[float, ...], Callable[[float], float]]:
    """The marked values of an axis from 0, and where a value is on it."""
    top = _round_up(max(values) or 1.0)
    return (0, top / 2, top), lambda value: round(_SIZE_BOTTOM - (_SIZE_BOTTOM - _SIZE_TOP) * value / top, 1)


def _by_factors(values: Sequence[float], middle: float) -> tuple[tuple[float, ...], Callable[[float], float]]:
    """The marked values of an axis of factors of 2 around ``middle``, at least half and twice; where a value is on it.

    Values of 0 or less are at its bottom.
    """
    powers = [math.log2(value / middle) for value in values if value > 0]
    least, most = math.floor(min([-1.0, *powers])), math.ceil(max([1.0, *powers]))
    step = math.ceil((most - least) / _MOST_TICKS)
    low = -step * math.ceil(-least / step)
    ticks = tuple(middle * 2.0**power for power in range(low, most + 1, step))
    high = max(most, math.log2(ticks[-1] / middle))

    def height(value: float) -> float:
        exponent = math.log2(value / middle) if value > 0 else low
        return round(_SIZE_BOTTOM - (_SIZE_BOTTOM - _SIZE_TOP) * (exponent - low) / (high - low), 1)

    return ticks, height


def _figure(value: float) -> str:
    """A value with three digits, or all of those before the point."""
    return f"{value:.0f}" if value >= 1000 else f"{value:.3g}"  # noqa: PLR2004 - four digits


def _round_up(value: float) -> float:
    """The next of 1, 2, 4, 6, 8, 10 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(value))
    return float(next(step for step in (1, 2, 4, 6, 8, 10) if step * power >= value) * power)


def _band(edges: Sequence[tuple[float, float, float]]) -> list[tuple[float, float]]:
    """The outline of the area between lower and upper values."""
    return [(x, lower) for x, lower, _upper in edges] + [(x, upper) for x, _lower, upper in reversed(edges)]


def _apart(heights: Sequence[float]) -> list[float]:
    """Where labels for these heights stand so that none covers another, in the order of ``heights``."""
    placed = dict.fromkeys(range(len(heights)), 0.0)
    last = -math.inf
    for number in sorted(placed, key=lambda number: heights[number]):
        last = placed[number] = max(heights[number], last + _LABEL_HEIGHT)
    beyond = max(0.0, last - _SIZE_BOTTOM)
    return [round(placed[number] - beyond, 1) for number in range(len(heights))]


def chart_style() -> str:
    """The style sheet for charts without their own style."""
    return (SHARED_TEMPLATES / "chart.css").read_text(encoding="utf-8")


def _render(template: str, **values: object) -> Markup:
    # the template has escaped every value
    return Markup(_TEMPLATES.get_template(template).render(values))  # noqa: S704
