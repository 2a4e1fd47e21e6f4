# SPDX-License-Identifier: BSD-3-Clause
"""How people say when a token ends."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from channel_tools.errors import UsageError

_SPAN = re.compile(r"(\d{1,5})([dh])")
_UNIT_S = {"d": 24 * 3600.0, "h": 3600.0}


def parse_expiry(text: str, *, now_s: float) -> float | None:
    """``90d``, ``12h``, ``2030-01-31`` (its end, in UTC) or ``never`` (None) as seconds since the epoch.

    Raises UsageError for anything else and for what is past.
    """
    if text == "never":
        return None
    span = _SPAN.fullmatch(text)
    expires_s = now_s + int(span[1]) * _UNIT_S[span[2]] if span else _end_of_day(text)
    if expires_s <= now_s:
        raise UsageError(f"--expires {text}: is past", hint="give a time to come: 90d, 12h, a date, or never")
    return expires_s


def _end_of_day(text: str) -> float:
    try:
        return datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC).timestamp() + _UNIT_S["d"]
    except ValueError:
        raise UsageError(f"--expires {text}: no time", hint="write 90d, 12h, 2030-01-31 or never") from None
