# SPDX-License-Identifier: BSD-3-Clause
"""What a far side needs to build again what it was brought: the tree of recipes, and their sources.

Each source is a tar file of its own, as ``sources export`` writes it, so that an update brings only new ones; the tree
is one more. Both come out the same, byte for byte, while their content is.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from channel_tools.files import atomic_path, sha256_of_file
from channel_tools.mirror.contents import ExtraFile
from channel_tools.mirror.model import SOURCES_FOLDER
from channel_tools.mirror.tarfiles import write_members
from channel_tools.sources.transfer import export_entries

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from channel_tools.progress import Progress
    from channel_tools.settings import Tree
    from channel_tools.sources.store import SourceStore

TREE = f"{SOURCES_FOLDER}/tree.tar"
_LEFT_OUT = frozenset({"__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache"})


def export_sources(store: SourceStore, entries: Sequence[Path], folder: Path, progress: Progress) -> list[ExtraFile]:
    """Write one tar file per entry of the store below ``folder``. Raises as export_entries."""
    found = []
    for entry in entries:
        path = f"{SOURCES_FOLDER}/{entry.parent.name}-{entry.name}.tar"
        if not (folder / path).is_file():  # of an interrupted run; it appeared whole
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            export_entries(store, [entry], folder / path, progress)
        found.append(_extra(folder, path))
    return found


def export_tree(tree: Tree, folder: Path) -> ExtraFile:
    """Write recipes, variants and patches of the tree to one tar file below ``folder``."""
    (folder / TREE).parent.mkdir(parents=True, exist_ok=True)
    (folder / TREE).unlink(missing_ok=True)
    with atomic_path(folder / TREE) as temporary, temporary.open("wb") as stream:
        members = ((path.relative_to(tree.root).as_posix(), path) for path in _files_of(tree))
        write_members(stream, members, executable_bits=True)
    return _extra(folder, TREE)


def _files_of(tree: Tree) -> Iterator[Path]:
    for top in (tree.patches, tree.recipes, tree.variants):
        for here, folders, names in os.walk(top):
            folders[:] = sorted(name for name in folders if name not in _LEFT_OUT)
            for name in sorted(names):
                path = top.__class__(here, name)
                if path.is_file() and not path.is_symlink():
                    yield path


def _extra(folder: Path, path: str) -> ExtraFile:
    file = folder / path
    return ExtraFile(path=path, file=file, size_bytes=file.stat().st_size, sha256=sha256_of_file(file))
