# SPDX-License-Identifier: BSD-3-Clause
"""Counts in messages: one function for the singular and the plural, used by every stage and command."""

from __future__ import annotations


def counted(count: int, singular: str, plural: str | None = None) -> str:
    """The count with its noun, or with what follows it: ``1 package``, ``2 packages``, ``1,000 entries``.

    ``singular`` follows a count of 1, ``plural`` any other; without ``plural`` it is ``singular`` with ``s``.
    """
    return f"{count:,} {singular if count == 1 else plural or f'{singular}s'}"
