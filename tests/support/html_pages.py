# SPDX-License-Identifier: BSD-3-Clause
"""Reads HTML pages that are well-formed, for tests of what stands in them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from html.parser import HTMLParser

_VOID = frozenset({"meta", "link", "input", "br", "img"})
_SELF_CLOSING = _VOID | {"rect", "path", "line", "circle", "polygon", "polyline"}
_CELLS = frozenset({"dt", "td", "th"})


@dataclass
class Page(HTMLParser):
    """What stands in a page, as a parser sees it; a tag that does not close what is open is an error."""

    open: list[str] = field(default_factory=list)
    tags: Counter[str] = field(default_factory=Counter)
    attributes: list[tuple[str, str, str]] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    @property
    def words(self) -> str:
        """All text of the page, with a space at the end of each cell."""
        return "".join(self.texts)

    def values(self, name: str) -> list[str]:
        """The values of all attributes with this name."""
        return [value for _tag, key, value in self.attributes if key == name]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in _SELF_CLOSING
        self.handle_starttag(tag, attrs)
        if tag not in _VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if tag in _CELLS:
            self.texts.append(" ")
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def read_page(text: str) -> Page:
    """The page, in which everything that is opened is closed."""
    page = Page()
    page.feed(text)
    page.close()
    assert page.open == []
    return page
