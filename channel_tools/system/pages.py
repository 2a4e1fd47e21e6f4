# SPDX-License-Identifier: BSD-3-Clause
"""The parts shared by all HTML pages: templates, style (``templates/``), dates and sizes in words.

Values come from packages, logs and machines. They are all escaped, and control characters and those that change the
text's direction are replaced.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from channel_tools.system.harmless import CONTROLS

SHARED_TEMPLATES = Path(__file__).parent / "templates"
_CONTROLS = re.compile(f"[{CONTROLS}\ud800-\udfff]")
_KIB = 1024
_DAYS_KEPT = 1000
_MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)


def page_templates(folder: Path) -> Environment:
    """The templates of ``folder`` and those that all pages share; an undefined name in a template is an error."""
    return Environment(
        loader=FileSystemLoader([folder, SHARED_TEMPLATES]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_without_controls,
        auto_reload=False,
    )


def shared_style() -> str:
    """The style sheet of all pages."""
    return "".join((SHARED_TEMPLATES / name).read_text(encoding="utf-8") for name in ("tokens.css", "page.css"))


def _without_controls(value: object) -> object:
    if not isinstance(value, str) or isinstance(value, Markup) or value.isprintable():  # the quickest for most values
        return value
    return _CONTROLS.sub("\ufffd", value)


def escaped(text: str) -> Markup:
    """A text from elsewhere as a template would insert it."""
    return escape(_without_controls(text))


def size_in_words(size_bytes: int) -> str:
    """A tensor's size as text: ``64 KiB``, ``4 MiB``."""
    if size_bytes < _KIB:
        return f"{size_bytes} bytes"
    return f"{size_bytes // _KIB} KiB" if size_bytes < _KIB * _KIB else f"{size_bytes // (_KIB * _KIB)} MiB"


@lru_cache(maxsize=_DAYS_KEPT)
def day(moment: str) -> Markup:
    """A time in ISO 8601 as the day that people say, with the exact time (UTC) for those who point at it.

    What is no such time stands there as it is.
    """
    try:
        at = datetime.fromisoformat(moment)
    except ValueError:
        return escaped(moment)
    at = at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    date, time = f"{at.year:04}-{at.month:02}-{at.day:02}", f"{at.hour:02}:{at.minute:02}"
    exact, text = f"{date}T{time}:{at.second:02}Z", f"{at.day} {_MONTHS[at.month - 1]} {at.year}"
    return Markup(f'<time datetime="{exact}" title="{date} {time} UTC">{text}</time>')  # noqa: S704 - numbers and names
