# SPDX-License-Identifier: BSD-3-Clause
"""From what each subdir shall list to the contents that are put in place one after the other."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from channel_tools.channel.content import SubdirContent, content_before
from channel_tools.channel.order import listing_steps

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from channel_tools.channel.patches import Patch
    from channel_tools.channel.records import CachedPackage
    from channel_tools.channel.state import SubdirState

_NAME_END = re.compile(r"[\s=<>!~\[]")


@dataclass(frozen=True, kw_only=True, slots=True)
class SubdirChange:
    """A subdir whose index is replaced: what it shall say, its packages, and the state of the index that it has."""

    final: SubdirContent
    packages: Mapping[str, CachedPackage]
    before: SubdirState
    patch: Patch | None

    @property
    def subdir(self) -> str:
        """Its name."""
        return self.final.subdir

    def visible_before(self) -> set[str]:
        """The packages that the present index lists and that are still there."""
        return self.packages.keys() & (self.before.records.packages.keys() - set(self.before.removed))


def contents_in_order(
    changes: Sequence[SubdirChange], *, present_shards: Mapping[str, set[str]]
) -> list[SubdirContent]:
    """The contents to put in place, in order: each subdir's last one is its final one.

    New packages become visible after those that they depend on, and what is hidden disappears after the new ones are
    there. Where only one subdir changes, or the present indexes are not known, there is one content per subdir.
    """
    finals = [change.final for change in changes]
    if len(changes) == 1 or not all(change.before.content for change in changes):
        return finals
    by_subdir = {change.subdir: change for change in changes}
    visible = {change.subdir: change.visible_before() for change in changes}
    steps = listing_steps({change.subdir: _requirements(change, visible[change.subdir]) for change in changes})
    last = {subdir: number for number, (subdir, _names) in enumerate(steps)}
    contents = []
    for number, (subdir, names) in enumerate(steps):
        change = by_subdir[subdir]
        visible[subdir] |= names
        if last[subdir] == number and (number == len(steps) - 1 or visible[subdir] == change.final.listed.keys()):
            contents.append(change.final)
        else:
            contents.append(
                content_before(
                    change.final,
                    change.packages,
                    visible[subdir],
                    change.patch,
                    present_shards=present_shards[subdir],
                )
            )
    done = {content.subdir for content in contents if content is by_subdir[content.subdir].final}
    return contents + [final for final in finals if final.subdir not in done]


def _requirements(change: SubdirChange, visible: set[str]) -> dict[str, tuple[str, frozenset[str]]]:
    """What listing_steps asks of the packages that are new in the index."""
    return {
        name: (row.name, frozenset(_name_of(spec) for spec in row.depends))
        for name, row in change.final.listed.items()
        if name not in visible
    }


def _name_of(spec: str) -> str:
    """The package name of a MatchSpec of repodata."""
    return _NAME_END.split(spec.strip(), maxsplit=1)[0].lower()
