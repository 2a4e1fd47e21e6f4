# SPDX-License-Identifier: BSD-3-Clause
"""The parts shared by all HTML pages: templates, the light and dark style (``templates/page.css``), and charts.

Values come from packages, logs and machines. They are all escaped, and control characters and those that change the
text's direction are replaced.

Charts are SVG, in pages and as separate files: bars with their spread, and figures over time. A chart contains its own
light and dark style (without ``styled``, the page's style sheet has ``chart_style``), loads nothing, and has a title
and a description for screen readers; its labels say what it shows, never colour alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from channel_tools.system.harmless import CONTROLS

if TYPE_CHECKING:
    from collections.abc import Sequence

SHARED_TEMPLATES = Path(__file__).parent / "templates"
_CONTROLS = re.compile(f"[{CONTROLS}\ud800-\udfff]")
WIDTH = 460
_KIB = 1024
_LABELS = 96
_FIGURES = 90
_BAR_HEIGHT = 15
_GROUP_HEIGHT = 22
_TOP = 40
_LINE_HEIGHT = 150
_LINE_TOP, _LINE_BOTTOM = 34, 118


def page_templates(folder: Path) -> Environment:
    """The templates of ``folder`` and those that all pages share; an undefined name in a template is an error."""
    return Environment(
        loader=FileSystemLoader([folder, SHARED_TEMPLATES]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_without_controls,
    )


def shared_style() -> str:
    """The style sheet of all pages."""
    return (SHARED_TEMPLATES / "page.css").read_text(encoding="utf-8")


def _without_controls(value: object) -> object:
    if isinstance(value, str) and not isinstance(value, Markup):
        return _CONTROLS.sub("\ufffd", value)
    return value


_TEMPLATES = page_templates(SHARED_TEMPLATES)


class Spread(Protocol):
    """The quartiles of a value."""

    @property
    def lower(self) -> float:
        """The lower quartile."""
        ...

    @property
    def upper(self) -> float:
        """The upper quartile."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Bar:
    """One value with its quartiles, if it has any, and the text shown after it."""

    label: str
    value: float
    figure: str
    look: Literal["own", "other", "less"]
    spread: Spread | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class BarGroup:
    """Bars under one heading."""

    label: str
    bars: tuple[Bar, ...]


def bar_chart(
    name: str, title: str, groups: Sequence[BarGroup], *, description: str, reference: float | None = None
) -> Markup:
    """A chart of horizontal bars from 0; ``name`` is unique on the page, a dashed line marks ``reference``."""
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
        styled=True,
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
    """The ends of the line of the quartiles; both are the bar's end if it has none."""
    if bar.spread is None:
        return (_LABELS + bar.value * scale,) * 2
    return round(_LABELS + bar.spread.lower * scale, 1), round(_LABELS + bar.spread.upper * scale, 1)


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """Figures from the oldest to the newest, which is marked; others to compare (dashed), and a dashed ``limit``.

    ``first`` and ``last`` are the labels below the ends.
    """

    figures: Sequence[float]
    others: Sequence[float] = ()
    unit: str
    limit: float | None = None
    first: str = "earlier runs, oldest first"
    last: str = "now"


def line_chart(name: str, title: str, line: Line, *, description: str, styled: bool = True) -> Markup:
    """A chart of figures over time; ``name`` is unique on the page."""
    largest = max([*line.figures, *line.others, line.limit or 0.0]) or 1.0
    step = (WIDTH - _LABELS - 30) / max(len(line.figures) - 1, 1)

    def height(value: float) -> float:
        return round(_LINE_BOTTOM - (_LINE_BOTTOM - _LINE_TOP) * value / largest, 1)

    def points(figures: Sequence[float]) -> list[tuple[float, float]]:
        return [(round(_LABELS + number * step, 1), height(figure)) for number, figure in enumerate(figures)]

    return _render(
        "line.svg.jinja",
        styled=styled,
        name=name,
        title=title,
        description=description,
        width=WIDTH,
        height=_LINE_HEIGHT,
        left=_LABELS,
        top=_LINE_TOP,
        bottom=_LINE_BOTTOM,
        largest=f"{largest:.0f} {line.unit}",
        points=points(line.figures),
        others=points(line.others),
        limit=None if line.limit is None else height(line.limit),
        first=line.first,
        last=line.last,
    )


def size_in_words(size_bytes: int) -> str:
    """A tensor's size as text: ``64 KiB``, ``4 MiB``."""
    if size_bytes < _KIB:
        return f"{size_bytes} bytes"
    return f"{size_bytes // _KIB} KiB" if size_bytes < _KIB * _KIB else f"{size_bytes // (_KIB * _KIB)} MiB"


def chart_style() -> str:
    """The style sheet for charts without their own style."""
    return (SHARED_TEMPLATES / "chart.css").read_text(encoding="utf-8")


def _render(template: str, **values: object) -> Markup:
    # the template has escaped every value
    return Markup(_TEMPLATES.get_template(template).render(values))  # noqa: S704
