# SPDX-License-Identifier: BSD-3-Clause
"""What all HTML pages share: how templates are read, and their style, light and dark (``templates/page.css``).

Values come from packages, logs and machines. Every one is escaped, and characters that control the text around them,
or turn its direction, are replaced.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

if TYPE_CHECKING:
    from collections.abc import Mapping

SHARED_TEMPLATES = Path(__file__).parent / "templates"
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def page_templates(folder: Path) -> Environment:
    """The templates of ``folder`` and those that all pages share; a name that a template lacks is an error."""
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


def render(templates: Environment, name: str, values: Mapping[str, object]) -> str:
    """The page that a template makes of ``values``."""
    return templates.get_template(name).render(values)


def _without_controls(value: object) -> object:
    if isinstance(value, str) and not isinstance(value, Markup):
        return _CONTROLS.sub("\ufffd", value)
    return value
