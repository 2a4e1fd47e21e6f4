# SPDX-License-Identifier: BSD-3-Clause
"""Makes text that others wrote harmless: a server's message, a name, a summary, a line of a file.

A terminal takes some characters as commands: it moves the cursor, changes what was printed, sets the window's title, or
answers as if the user had typed. Others end a line or change the direction of text, so that it reads as something else.
"""

from __future__ import annotations

import re

CONTROLS = "\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069"
"""For a character class: Unicode's C0 and C1 controls but tab and line feed, its line and paragraph separators, and the
controls of its bidirectional algorithm (UAX 9)."""
_CONTROL = re.compile(f"[{CONTROLS}]")
_INDENT = "\n    "


def harmless(text: str) -> str:
    r"""The text with control characters as ``\u001b``, which JSON reads back; lines and tabs stay."""
    return _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def harmless_message(text: str) -> str:
    """As harmless, with lines after the first indented, so that none passes for a message of ours."""
    return harmless(text).replace("\n", _INDENT)


def harmless_line(text: str) -> str:
    r"""As harmless, on one line: line feeds are ``\u000a``."""
    return harmless(text).replace("\n", "\\u000a")
