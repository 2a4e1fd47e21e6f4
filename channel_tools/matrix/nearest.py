# SPDX-License-Identifier: BSD-3-Clause
"""The hint of every "no such name" error: names that look alike, else all there are."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_LIST_AT_MOST = 20


def nearest_names_hint(name: str, known: Iterable[str], *, what: str) -> str:
    """``did you mean ...?`` for a mistyped ``name``; without a likely one, the known names."""
    names = sorted(known)
    if near := difflib.get_close_matches(name, names, n=3, cutoff=0.6):
        return f"did you mean {' or '.join(near)}?"
    if not names:
        return f"there is no {what} at all"
    shown = ", ".join(names[:_LIST_AT_MOST]) + (", ..." if len(names) > _LIST_AT_MOST else "")
    return f"known: {shown}"
