# SPDX-License-Identifier: BSD-3-Clause
"""Counts in messages: one function for the singular and the plural, used by every stage and command."""

from __future__ import annotations


def counted(count: int, one: str, many: str | None = None) -> str:
    """The count with its noun, or with what follows it: ``1 package``, ``2 packages``, ``1,000 entries``.

    ``one`` follows a count of 1, ``many`` any other; without ``many`` it is ``one`` with ``s``.
    """
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"
