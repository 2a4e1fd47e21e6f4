# SPDX-License-Identifier: BSD-3-Clause
"""Why a package is built: its inputs beside those of the published package it takes the place of."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from channel_tools.plan.model import PublishedPackage

_HASHED_KINDS = frozenset({"recipe", "file", "source", "package"})
_SHOWN_SHA256 = 12


def find_predecessor(
    name: str, inputs: Mapping[str, str], published: Iterable[PublishedPackage], *, current: Collection[str]
) -> PublishedPackage | None:
    """The published package that this one replaces: same name, most alike, and itself no part of the plan.

    ``current`` are the digests of the plan: a package that is still wanted is nobody's predecessor.
    """
    candidates = [item for item in published if item.name == name and item.digest not in current]
    return max(candidates, key=lambda item: (*_likeness(inputs, item.inputs), item.file_name), default=None)


def _likeness(new: Mapping[str, str], old: Mapping[str, str]) -> tuple[int, int]:
    equal = [key for key, value in new.items() if old.get(key) == value]
    return sum(key.startswith("variant:") for key in equal), len(equal)


def reasons_for(inputs: Mapping[str, str], predecessor: PublishedPackage | None) -> tuple[str, ...]:
    """``new``, or one line per input that differs, in the inputs' order."""
    if predecessor is None:
        return ("new",)
    old = predecessor.inputs
    keys = [*inputs, *(key for key in sorted(old) if key not in inputs)]
    changed = [_describe(key, old.get(key), inputs.get(key)) for key in keys if old.get(key) != inputs.get(key)]
    return tuple(changed) or ("changed: the way digests are made",)


def _describe(key: str, old: str | None, new: str | None) -> str:
    kind, _, name = key.partition(":")
    if kind == "package" and old is not None and new is not None:
        return f"rebuilt dependency {name}"
    what = name if kind == "file" else f"{_words(kind)} {name}"
    if old is None or new is None:
        return f"{'added' if old is None else 'removed'}: {what}"
    return f"changed: {what}" if kind in _HASHED_KINDS else f"changed: {what}{_from_to(kind, old, new)}"


def _words(kind: str) -> str:
    return {"recipe": "recipe section", "package": "dependency"}.get(kind, kind)


def _from_to(kind: str, old: str, new: str) -> str:
    if kind != "foundation":
        return f" {old} -> {new}"
    before, after = old.split(" "), new.split(" ")
    if before[:2] == after[:2]:
        return f" {'-'.join(before[:2])} (same name, other bytes: {_short(before)} -> {_short(after)})"
    return f" {'-'.join(before[:2])} -> {'-'.join(after[:2])}"


def _short(words: list[str]) -> str:
    return words[-1][:_SHOWN_SHA256]
