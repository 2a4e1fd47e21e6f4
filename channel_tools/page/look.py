# SPDX-License-Identifier: BSD-3-Clause
"""A channel's own look: its accent as colours that can be read in both schemes, and its logo.

An accent is made darker for the light scheme and lighter for the dark one until text in it has the contrast that WCAG
2.1 asks of AA (4.5 to 1), so no choice of an owner makes a page hard to read. The reasons for the rest of the design:
system/templates/README.md.
"""

from __future__ import annotations

import re
from typing import Literal

from channel_tools.page.content import web_link
from channel_tools.system.errors import UsageError

CONTRAST = 4.5
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
_COLOUR = re.compile(r"#[0-9a-f]{6}", re.IGNORECASE)
_EMAIL = re.compile(r"[^\s@<>\"]+@[^\s@<>\"]+")
_STEPS = 20
_TINT = 0.12
"""How much of the accent is in the surface behind text in it."""
_LIGHT, _DARK = "#f5f7f9", "#1d2229"
"""The surfaces of both schemes with the least contrast to text (--raised of tokens.css)."""
_BLACK, _WHITE = "#000000", "#ffffff"


def accent_style(accent: str) -> str:
    """The rules of a style sheet that set the accent, #rrggbb; "" keeps that of tokens.css."""
    if not accent:
        return ""
    light, dark = _rules(accent, _LIGHT, _BLACK), _rules(accent, _DARK, _WHITE)
    return f":root {{ {light} }}\n@media (prefers-color-scheme: dark) {{\n:root {{ {dark} }}\n}}\n"


def _rules(accent: str, surface: str, towards: str) -> str:
    for step in range(_STEPS + 1):
        text = _mixed(accent, towards, step / _STEPS)
        back = _mixed(surface, text, _TINT)
        if min(contrast(text, surface), contrast(text, back)) >= CONTRAST:
            break
    on_it = max((_WHITE, _BLACK), key=lambda colour: contrast(text, colour))
    colours = {"accent": text, "accent-back": back, "on-accent": on_it}
    return " ".join(f"--{name}: {colour};" for name, colour in colours.items())


def contrast(colour: str, other: str) -> float:
    """The contrast of two colours (#rrggbb) by WCAG 2.1, 1 to 21."""
    lighter, darker = sorted((_luminance(colour), _luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: str) -> float:
    parts = [part / 255 for part in _parts(colour)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)  # noqa: PLR2004 - WCAG 2.1
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _mixed(colour: str, other: str, share: float) -> str:
    pairs = zip(_parts(colour), _parts(other), strict=True)
    return "#" + "".join(f"{round(first + (second - first) * share):02x}" for first, second in pairs)


def _parts(colour: str) -> tuple[int, ...]:
    return tuple(bytes.fromhex(colour[1:]))


def checked_accent(text: str) -> str:
    """An accent as the command line gives it. Raises UsageError if it is not #rrggbb."""
    if text and not _COLOUR.fullmatch(text):
        raise UsageError(f"--accent {text}: not a colour", hint="write it as #rrggbb, for example #0a6079")
    return text.lower()


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
