# SPDX-License-Identifier: BSD-3-Clause
"""Where a package's paths lie in an environment: links followed, noarch packages in their installed shape."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_NOARCH_PLACES = {"site-packages": "lib/python{}/site-packages", "python-scripts": "bin"}


def python_minor(versions: Iterable[str]) -> str:
    """``3.11`` for the first of the versions of python that there are, ``3`` when there is none."""
    return next((".".join(version.split(".")[:2]) for version in versions), "3")


def place_installed(path: str, python: str) -> str:
    """Where a path of a noarch python package lies once installed beside this minor version of python (CEP 17)."""
    top, slash, rest = path.partition("/")
    return _NOARCH_PLACES.get(top, top).format(python) + slash + rest


def join_path(folder: str, name: str) -> str:
    """A path below a folder of the prefix; ``.`` is the prefix itself."""
    return name if folder == "." else f"{folder}/{name}"


def resolve(path: str, links: Mapping[str, str]) -> str | None:
    """Where a path leads when every link on the way is followed; None when it leaves the prefix or loops."""
    todo, done = path.split("/"), list[str]()
    for _ in range(4 * len(todo) + 64):
        if not todo:
            return "/".join(done)
        part = todo.pop(0)
        if part == "..":
            if not done:
                return None
            done.pop()
            continue
        if part in {"", "."}:
            continue
        done.append(part)
        target = links.get("/".join(done))
        if target is not None:
            if posixpath.isabs(target):
                return None
            done.pop()
            todo = [*target.split("/"), *todo]
    return None
