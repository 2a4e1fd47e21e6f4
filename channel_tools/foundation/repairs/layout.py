# SPDX-License-Identifier: BSD-3-Clause
"""From Debian's file system to a conda prefix: ``usr/`` and the multiarch folders go, links become relative.

Files and links are moved in one pass by one mapping from old to new paths. A link's target is mapped by the same
function, so links stay right across the move, also those into other packages.
"""

from __future__ import annotations

import filecmp
import os
import posixpath
import re
import shutil
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from channel_tools.system.errors import FoundationError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from channel_tools.foundation.model import Repair, RepairContext

VERSION = 1
"""Raised with each change of what a step here makes of a tree."""


Placement = Callable[[PurePosixPath], PurePosixPath | None]
"""Where a path of the .deb (relative to its root) belongs in the prefix; None: it is left out."""

_STAGE = ".relayout"
_SHALLOW = {"sbin": "bin", "lib64": "lib"}
_KEPT_TOP = frozenset({"bin", "etc", "include", "lib", "libexec", "share"})
_MULTIARCH_TOP = frozenset({"include", "lib", "libexec"})
_UNUSED = re.compile(
    r"share/(?:bash-completion|bug|debconf|debhelper|doc|doc-base|gdb|info|lintian|locale|man|man-db|pixmaps|zsh)/"
    r"|share/(?:applications|apport|menu|metainfo|perl5|python3)/"
    r"|lib/(?:debug|modules-load\.d|sysctl\.d|systemd|sysusers\.d|tmpfiles\.d|udev)/"
    r"|etc/(?:default|init\.d|logrotate\.d|modprobe\.d|bash_completion\.d)/"
    r"|.*\.la$"
)
_NAMED_ARCHIVE = re.compile(r"[\w.+-]+\.a\b")


def step_error(context: RepairContext, message: str) -> FoundationError:
    """The error of a repair step that finds a tree other than the one it was written for."""
    hint = "upstream has changed: adapt the repair step or the row, or take the recorded versions with --locked"
    return FoundationError(f"package {context.entry.name} {context.version}: {message}", hint=hint)


def files_in(tree: Path) -> Iterator[Path]:
    """Every regular file and link below ``tree`` (links to folders too), in sorted order."""
    for folder, folders, names in os.walk(tree):
        folders.sort()
        links = [name for name in folders if Path(folder, name).is_symlink()]
        for name in sorted([*names, *links]):
            yield Path(folder, name)


def relative_to_tree(path: Path, tree: Path) -> PurePosixPath:
    """The path of a file inside the prefix."""
    return PurePosixPath(path.relative_to(tree))


def way_up(path: PurePosixPath) -> str:
    """The relative way from the folder that holds ``path`` up to the prefix: ``../..`` for lib/pkgconfig/x.pc."""
    return "/".join([".."] * (len(path.parts) - 1)) or "."


def relayout(tree: Path, context: RepairContext, placement: Placement) -> None:
    """Move everything in ``tree`` to where ``placement`` says and make links relative.

    Links to what it leaves out are left out too. Raises FoundationError when two different files would come to
    lie at one path.
    """
    stage = tree / _STAGE
    for path in list(files_in(tree)):
        old = relative_to_tree(path, tree)
        new = placement(old)
        if new is None:
            continue
        target = stage / new
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.is_symlink():
            _place_link(path, old, new, target, context, placement)
        elif not os.path.lexists(target):
            path.rename(target)
        elif target.is_symlink() or not filecmp.cmp(path, target, shallow=False):
            raise step_error(context, f"two different files would both become {target.name} ({path})")
    for leftover in tree.iterdir():
        if leftover.name != _STAGE:
            shutil.rmtree(leftover) if leftover.is_dir() and not leftover.is_symlink() else leftover.unlink()
    if stage.is_dir():
        for item in stage.iterdir():
            item.rename(tree / item.name)
        stage.rmdir()


def _place_link(
    path: Path, old: PurePosixPath, new: PurePosixPath, target: Path, context: RepairContext, placement: Placement
) -> None:
    text = path.readlink().as_posix()
    absolute = text if text.startswith("/") else posixpath.join("/", str(old.parent), text)
    points_to = placement(PurePosixPath(posixpath.normpath(absolute).lstrip("/")))
    if points_to is None or points_to == new:
        return
    relative = Path(posixpath.relpath(points_to, new.parent))
    if not os.path.lexists(target):
        target.symlink_to(relative)
    elif target.is_symlink() and target.readlink() != relative:
        raise step_error(context, f"two different links would both become {new}")


def native_place(path: PurePosixPath, context: RepairContext) -> PurePosixPath:
    """A Debian path inside the prefix: ``usr/lib/x86_64-linux-gnu/libz.so`` to ``lib/libz.so``.

    Raises FoundationError for a top-level folder that a prefix does not have.
    """
    parts = list(path.parts[1:] if path.parts[:1] == ("usr",) else path.parts)
    top = _SHALLOW.get(parts[0], parts[0])
    if top not in _KEPT_TOP:
        raise step_error(context, f"does not know where {path} belongs in a prefix")
    below = parts[1:]
    if top in _MULTIARCH_TOP and below[:1] == [context.multiarch]:
        below = below[1:]
    return PurePosixPath(top, *below)


def flatten(tree: Path, context: RepairContext) -> None:
    """Bring an unpacked .deb into a prefix's shape."""
    relayout(tree, context, lambda path: native_place(path, context))


def drop_unused(tree: Path, context: RepairContext) -> None:
    """Drop what conda environments have no use for: documentation, translations, service files, libtool archives."""
    del context
    for path in list(files_in(tree)):
        if _UNUSED.match(str(relative_to_tree(path, tree))):
            path.unlink()


def drop_static(tree: Path, context: RepairContext) -> None:
    """Drop static libraries, except those that a CMake file of the package names and checks for."""
    del context
    named: set[str] = set()
    for path in files_in(tree):
        if path.suffix == ".cmake" and path.is_file():
            named.update(_NAMED_ARCHIVE.findall(path.read_text()))
    for path in list(files_in(tree)):
        if path.suffix == ".a" and path.name not in named:
            path.unlink()


STEPS: dict[str, Repair] = {
    "flatten": flatten,
    "drop_unused": drop_unused,
    "drop_static": drop_static,
}
