# SPDX-License-Identifier: BSD-3-Clause
"""In which order the subdirs of a set become visible, so that what is seen never lacks a part of the set it needs.

An index file per subdir cannot be replaced together with another's in one instant. So a subdir is listed in several
steps where packages of two subdirs need each other: first those that need nothing unseen, then what needs them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Step = tuple[str, frozenset[str]]
"""A subdir, and the file names that become visible in it."""


def listing_steps(requirements: Mapping[str, Mapping[str, tuple[str, frozenset[str]]]]) -> list[Step]:
    """The steps for new packages: by subdir and file name, each with its package name and the names it depends on.

    After every step each visible package sees all packages of the set that carry a name it depends on. Packages of
    different subdirs that need each other in a circle cannot be ordered; they come last, one subdir after the other.
    """
    steps: list[Step] = []
    waiting = {subdir: dict(files) for subdir, files in sorted(requirements.items()) if files}
    while waiting:
        found = next(((subdir, ready) for subdir in waiting if (ready := _ready(subdir, waiting))), None)
        if found is None:
            return _merged([*steps, *((subdir, frozenset(files)) for subdir, files in waiting.items())])
        subdir, names = found
        steps.append((subdir, names))
        for name in names:
            del waiting[subdir][name]
        waiting = {key: files for key, files in waiting.items() if files}
    return _merged(steps)


def _ready(subdir: str, waiting: Mapping[str, Mapping[str, tuple[str, frozenset[str]]]]) -> frozenset[str]:
    """The files of ``subdir`` that need nothing outside of what is ready: the largest such set."""
    ready = dict(waiting[subdir])
    missing = {name for other, files in waiting.items() if other != subdir for name, _depends in files.values()}
    while blocked := [file_name for file_name, (_name, depends) in ready.items() if depends & missing]:
        for file_name in blocked:
            missing.add(ready.pop(file_name)[0])
    return frozenset(ready)


def _merged(steps: Sequence[Step]) -> list[Step]:
    """Neighbouring steps of one subdir as one."""
    merged: list[Step] = []
    for subdir, names in steps:
        if merged and merged[-1][0] == subdir:
            merged[-1] = (subdir, merged[-1][1] | names)
        else:
            merged.append((subdir, names))
    return merged
