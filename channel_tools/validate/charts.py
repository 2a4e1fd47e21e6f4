# SPDX-License-Identifier: BSD-3-Clause
"""Charts as SVG, for pages and as files of their own: bars with their spread, and figures over time.

A chart carries its own style, light and dark, loads nothing, and has a title and a description for screen readers; what
it shows is in its labels as well, never in colour alone. All text is escaped by the templates.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from markupsafe import Markup

from channel_tools.system.pages import page_templates

if TYPE_CHECKING:
    from collections.abc import Sequence

    from channel_tools.validate.model import Spread

WIDTH = 460
_LABELS = 96
_FIGURES = 90
_BAR_HEIGHT = 15
_GROUP_HEIGHT = 22
_TOP = 40
_LINE_HEIGHT = 150
_LINE_TOP, _LINE_BOTTOM = 34, 118
TEMPLATES = page_templates(Path(__file__).parent / "templates")
"""All templates of reports: every value is escaped, a name that is not there is an error."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Bar:
    """One value with its quartiles, where it has some, and what stands behind it as its figure."""

    label: str
    value: float
    figure: str
    look: Literal["own", "other", "less"]
    spread: Spread | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class BarGroup:
    """Bars below one heading."""

    label: str
    bars: tuple[Bar, ...]


def bar_chart(
    name: str, title: str, groups: Sequence[BarGroup], *, description: str, reference: float | None = None
) -> Markup:
    """Horizontal bars from 0 on; ``name`` is unique on the page, ``reference`` a value that a dashed line marks."""
    values = [bar.spread.upper if bar.spread else bar.value for group in groups for bar in group.bars]
    largest = max([*values, reference or 0.0]) or 1.0
    scale = (WIDTH - _LABELS - _FIGURES) / largest
    headings, bars, y = [], [], _TOP
    for group in groups:
        headings.append((y + 14, group.label))
        y += _GROUP_HEIGHT
        for bar in group.bars:
            bars.append((y, bar, round(bar.value * scale, 1), _whisker(bar, scale)))
            y += _BAR_HEIGHT + 3
    return _render(
        "bars.svg.jinja",
        name=name,
        title=title,
        description=description,
        width=WIDTH,
        height=y + 10,
        left=_LABELS,
        bar_height=_BAR_HEIGHT,
        headings=headings,
        bars=bars,
        reference=None if reference is None else round(_LABELS + reference * scale, 1),
    )


def _whisker(bar: Bar, scale: float) -> tuple[float, float]:
    """Where the line of the quartiles begins and ends; at the bar's end where it has none."""
    if bar.spread is None:
        return (_LABELS + bar.value * scale,) * 2
    return round(_LABELS + bar.spread.lower * scale, 1), round(_LABELS + bar.spread.upper * scale, 1)


def line_chart(
    name: str, title: str, figures: Sequence[float], *, unit: str, limit: float | None, description: str
) -> Markup:
    """Figures from the oldest to the one of now, which is marked, and a dashed line at ``limit``."""
    largest = max([*figures, limit or 0.0]) or 1.0
    step = (WIDTH - _LABELS - 30) / max(len(figures) - 1, 1)

    def height(value: float) -> float:
        return round(_LINE_BOTTOM - (_LINE_BOTTOM - _LINE_TOP) * value / largest, 1)

    return _render(
        "line.svg.jinja",
        name=name,
        title=title,
        description=description,
        width=WIDTH,
        height=_LINE_HEIGHT,
        left=_LABELS,
        top=_LINE_TOP,
        bottom=_LINE_BOTTOM,
        largest=f"{largest:.0f} {unit}",
        points=[(round(_LABELS + number * step, 1), height(figure)) for number, figure in enumerate(figures)],
        limit=None if limit is None else height(limit),
    )


def _render(template: str, **values: object) -> Markup:
    # the template has escaped every value
    return Markup(TEMPLATES.get_template(template).render(values))  # noqa: S704
