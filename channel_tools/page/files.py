# SPDX-License-Identifier: BSD-3-Clause
"""The files of a channel's page: what each is made of, and how it is rendered when that changed.

A file's digest is over all that it shows and over the code that shows it, so that a page is rendered, and the package
behind it opened, only when it would come out otherwise.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from channel_tools import __version__
from channel_tools.page.content import texts, web_link
from channel_tools.page.model import INDEX_PAGE, PAGE_FOLDER, name_page, stack_page
from channel_tools.system.charts import chart_style, size_in_words
from channel_tools.system.pages import page_templates, render, shared_style
from channel_tools.system.progress import format_amount

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from channel_tools.page.model import Site

HERE = Path(__file__).parent
_MINUTE, _HOUR = 60, 3600
OWN_MARK = '<meta name="generator" content="channel_tools channel page">'
"""Stands in every page of ours, and in nobody else's."""


def duration(seconds: float) -> str:
    """``34 s``, ``2 min 5 s``, ``1 h 4 min``."""
    if seconds < _MINUTE:
        return f"{seconds:.0f} s" if seconds >= 1 else "less than 1 s"
    minutes, rest = divmod(round(seconds), _MINUTE)
    return f"{minutes} min {rest} s" if seconds < _HOUR else f"{minutes // _MINUTE} h {minutes % _MINUTE} min"


_TEMPLATES = page_templates(HERE / "templates")
_TEMPLATES.filters |= {
    "web_link": web_link,
    "texts": texts,
    "size": partial(format_amount, unit="bytes"),
    "path": quote,
    "duration": duration,
    "tensor_size": size_in_words,
}
_TEMPLATES.globals |= {"name_page": name_page, "stack_page": stack_page}


@dataclass(frozen=True, kw_only=True, slots=True)
class PageFile:
    """One file of the site: its path below the channel, the digest of what it is made of, and how to make it."""

    path: str
    digest: str
    render: Callable[[], str]


def page_file(path: str, parts: Sequence[object], render: Callable[[], str]) -> PageFile:
    """A file that is made of ``parts``, whose repr says all that matters of them, and of the code."""
    digest = hashlib.sha256(_code_digest())
    for part in parts:
        content = part if isinstance(part, bytes) else repr(part).encode(errors="surrogatepass")
        digest.update(b"%d:%b" % (len(content), content))
    return PageFile(path=path, digest=digest.hexdigest(), render=render)


@cache
def _code_digest() -> bytes:
    """Changes with everything that decides how a page looks."""
    digest = hashlib.sha256((__version__ + shared_style() + chart_style()).encode())
    for path in sorted(HERE.rglob("*")):
        if path.suffix in {".py", ".jinja", ".css", ".js"}:
            digest.update(path.read_bytes())
    return digest.digest()


def render_page(template: str, site: Site, path: str, **values: object) -> str:
    """The page of ``site`` that lies at ``path``."""
    shared = {
        "site": site,
        "settings": site.settings,
        "root": "../" * path.count("/"),
        "index_page": INDEX_PAGE,
        "list_page": list_page(1),
    }
    return render(_TEMPLATES, template, {**shared, **values})


def list_page(number: int) -> str:
    """Where a page of the list of all packages lies."""
    return f"{PAGE_FOLDER}/packages-{number}.html"
