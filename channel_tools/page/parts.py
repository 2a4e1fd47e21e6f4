# SPDX-License-Identifier: BSD-3-Clause
"""The smallest parts of pages, made by filters: a page has dozens of them, and a template's macro takes several times
as long. The larger ones are macros in ``parts.html.jinja``.

All texts are escaped as a template would; ``root`` is the relative path from the page to the channel (``../../``).
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING
from urllib.parse import quote

from markupsafe import Markup

from channel_tools.system.pages import escaped

if TYPE_CHECKING:
    from collections.abc import Iterable

_KEPT = 4096
_HYPHENED = re.compile(r"(?<!\S)(?=--|[\w.]+-)[\w.,:-]{1,28}(?!\S)")
"""An option or a name of at most 28 characters, as many as a phone shows in a line."""
_COMMENT_AFTER = re.compile(r"(?<=\S)[ \t]+(# .*)")
_COMMENT = re.compile(r"^# .*", re.MULTILINE)


def link(words: str, root: str, path: str) -> Markup:
    """A link to the file ``path`` of the channel."""
    return Markup(f'<a href="{root}{quote(path)}">{escaped(words)}</a>')  # noqa: S704 - all of it is quoted or escaped


@lru_cache(maxsize=_KEPT)
def chip(words: str, kind: str = "") -> Markup:
    """A word or two in a border; ``kind`` (good, bad, warn, accent) decides its colour."""
    return Markup(f'<span class="chip{" " if kind else ""}{kind}">{escaped(words)}</span>')  # noqa: S704 - kinds are ours


def chips(labels: Iterable[tuple[str, str]]) -> Markup:
    """Chips, each with a space before it."""
    return Markup("").join(Markup(" ") + chip(words, kind) for words, kind in labels)


def command(text: str) -> Markup:
    """A shell's command, of which a browser breaks no word in two at its hyphens; comments stand back.

    A comment after a command goes to a line of its own, further in, where the line is too short for it.
    """
    shown = _HYPHENED.sub(r"<span>\g<0></span>", str(escaped(text)))
    shown = _COMMENT_AFTER.sub(r' <i class="after">\1</i>', shown)
    return Markup(_COMMENT.sub(r"<i>\g<0></i>", shown))  # noqa: S704 - escaped, and tags


@lru_cache(maxsize=_KEPT)
def need(spec: str, root: str, page: str | None, summary: str) -> Markup:
    """An item of a list of dependencies: the spec, linked to the package's page if there is one, and its summary.

    Kept, since many packages have the same ones.
    """
    named = f"<code>{escaped(spec)}</code>" if page is None else link(spec, root, page)
    description = f' <span class="soft small">{escaped(summary)}</span>' if summary else ""
    return Markup(f"<li>{named}{description}</li>")  # noqa: S704 - all of it is escaped
