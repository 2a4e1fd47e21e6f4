# SPDX-License-Identifier: BSD-3-Clause
"""Orders the replacement of indexes, so that a visible package never lacks a part of its set.

The index files of two subdirs cannot be replaced at the same instant. So if packages of two subdirs need each other, a
subdir is listed in several steps: first packages whose dependencies are visible, then those that need them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from channel_tools.channel.content import SubdirContent, content_before

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from channel_tools.channel.listing import Patch
    from channel_tools.channel.records import CachedPackage
    from channel_tools.channel.state import SubdirState

Step = tuple[str, frozenset[str]]
"""A subdir, and the file names that become visible in it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SubdirChange:
    """A subdir whose index is replaced: the new content, its packages, and the state of its current index."""

    final: SubdirContent
    packages: Mapping[str, CachedPackage]
    before: SubdirState
    patch: Patch | None

    @property
    def subdir(self) -> str:
        """The name of the subdir."""
        return self.final.subdir

    def visible_before(self) -> set[str]:
        """The packages that the current index lists and that still exist."""
        return self.packages.keys() & (self.before.records.packages.keys() - set(self.before.removed))


def contents_in_order(
    changes: Sequence[SubdirChange], *, present_shards: Mapping[str, set[str]]
) -> list[SubdirContent]:
    """The contents to write, in order: each subdir's last one is its final one.

    New packages become visible after their dependencies, and packages are hidden after the new ones are visible. If
    only one subdir changes, or the current indexes are not known, there is one content per subdir.
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
    """The data that listing_steps needs about packages that are new in the index."""
    return {
        name: (row.name, frozenset(row.dependency_names))
        for name, row in change.final.listed.items()
        if name not in visible
    }


def listing_steps(requirements: Mapping[str, Mapping[str, tuple[str, frozenset[str]]]]) -> list[Step]:
    """The steps for new packages: by subdir and file name, each with its package name and the names it depends on.

    After every step each visible package sees all packages of the set that carry a name it depends on. Packages of
    different subdirs that need each other in a cycle cannot be ordered; they come last, one subdir after the other.
    """
    steps: list[Step] = []
    waiting = {subdir: dict(files) for subdir, files in sorted(requirements.items()) if files}
    while waiting:
        ready_subdir = next(((subdir, ready) for subdir in waiting if (ready := _ready(subdir, waiting))), None)
        if ready_subdir is None:
            return _merged([*steps, *((subdir, frozenset(files)) for subdir, files in waiting.items())])
        subdir, names = ready_subdir
        steps.append((subdir, names))
        for name in names:
            del waiting[subdir][name]
        waiting = {key: files for key, files in waiting.items() if files}
    return _merged(steps)


def _ready(subdir: str, waiting: Mapping[str, Mapping[str, tuple[str, frozenset[str]]]]) -> frozenset[str]:
    """The largest set of files of ``subdir`` whose dependencies are ready."""
    ready = dict(waiting[subdir])
    missing = {name for other, files in waiting.items() if other != subdir for name, _depends in files.values()}
    while blocked := [file_name for file_name, (_name, depends) in ready.items() if depends & missing]:
        for file_name in blocked:
            missing.add(ready.pop(file_name)[0])
    return frozenset(ready)


def _merged(steps: Sequence[Step]) -> list[Step]:
    """Merge consecutive steps of one subdir."""
    merged: list[Step] = []
    for subdir, names in steps:
        if merged and merged[-1][0] == subdir:
            merged[-1] = (subdir, merged[-1][1] | names)
        else:
            merged.append((subdir, names))
    return merged
