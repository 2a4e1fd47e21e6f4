# SPDX-License-Identifier: BSD-3-Clause
"""A channel's own look: its logo and contact. The reasons for the design: system/templates/README.md."""

from __future__ import annotations

import re
from typing import Literal

from channel_tools.page.content import web_link
from channel_tools.system.errors import UsageError

LOGO_BYTES = 100_000
_PNG = b"\x89PNG\r\n\x1a\n"
_SVG = re.compile(
    rb"\A(?:\xef\xbb\xbf)?\s*(?:<\?xml[^>]*>\s*)?(?:<!--.*?-->\s*|<!DOCTYPE[^>]*>\s*)*<svg[\s>]", re.DOTALL
)
_ACTIVE = re.compile(
    rb"<!ENTITY|<\?xml-stylesheet"
    rb"|<(?:[\w.-]+:)?(?:script|foreignObject|iframe|embed|object|audio|video|handler|listener|set|animate\w*)\b"
    rb"|[\s\"'/]on[a-z]+\s*=|javascript:|@import"
    rb"|\b(?:href|src)\s*=\s*(?:[\"'](?!\s*(?:\#|data:image/(?!svg)))|[^\"'\s])"
    rb"|url\(\s*[\"']?\s*(?!\#|[\"'\s])",
    re.IGNORECASE,
)
"""What makes an SVG do something where it is opened by itself: code, and what it would load from elsewhere."""
_EMAIL = re.compile(r"[^\s@<>\"]+@[^\s@<>\"]+")


def checked_logo(content: bytes, *, source: str) -> bytes:
    """A logo that pages may show. Raises UsageError if it is neither a PNG nor an SVG, or too large."""
    if logo_kind(content) is None:
        raise UsageError(f"{source}: neither a PNG nor an SVG file", hint="give the logo as one of them")
    if logo_kind(content) == "svg" and (active := _ACTIVE.search(content)) is not None:
        found = active[0].decode(errors="replace").strip()
        message = f"{source}: has {found!r} in it: an SVG that runs or loads something"
        raise UsageError(message, hint="save the logo as a plain SVG: shapes, and pictures that are in the file")
    if len(content) > LOGO_BYTES:
        message = f"{source}: has {len(content)} bytes; a logo has at most {LOGO_BYTES}"
        raise UsageError(message, hint="every page loads it: make it smaller, 128 pixels are enough")
    return content


def logo_kind(content: bytes) -> Literal["png", "svg"] | None:
    """The kind of an image by its first bytes, None for other kinds."""
    if content.startswith(_PNG):
        return "png"
    return "svg" if _SVG.match(content[:4096]) else None


def is_contact(text: str) -> bool:
    """Whether a text is an address that a page links to: an e-mail address, or a web address."""
    return text.isprintable() and (bool(_EMAIL.fullmatch(text)) or web_link(text) is not None)
