# SPDX-License-Identifier: BSD-3-Clause
"""The colours of states on a terminal: the same word has the same colour in every command.

They are the terminal's own, which its user has chosen for a light or dark background, and mean what they mean on the
pages (system/templates/README.md). A state is always a word, too, so nothing is lost without colours.
"""

from __future__ import annotations

_GOOD, _BAD, _WAITING, _QUIET = "green", "bold red", "yellow", "dim"
_STYLES = {
    _GOOD: ("ok", "built", "passed", "yes", "added", "attested"),
    _BAD: ("failed", "drop", "error", "changed", "damaged", "no", "differs", "fault"),
    _WAITING: ("build", "waiting", "warning", "not started", "unsatisfiable", "needs"),
    _QUIET: ("skip", "skipped", "before", "unchanged", "as usual", "present"),
}
_BY_WORD = {word: style for style, words in _STYLES.items() for word in words}


def style_of(text: str) -> str:
    """Rich's style for a text that is a state, in any case, "" for other texts."""
    return _BY_WORD.get(text.strip().lower(), "")
