# SPDX-License-Identifier: BSD-3-Clause
"""A tree as it would be with some files changed, beside the real one: links, and the files that change.

So the tree's own reader says what is wrong with a change before anything is written.
"""

from __future__ import annotations

import contextlib
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from channel_tools.conda.metadata import PLATFORMS
from channel_tools.matrix.expand import expand_stacks
from channel_tools.matrix.load import load_tree
from channel_tools.requests.names import FoundationKind
from channel_tools.system.errors import ConfigError
from channel_tools.system.settings import Tree

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from channel_tools.matrix.model import LoadedTree, RenderedPackage


class ChangedTree:
    """The tree ``loaded`` in the empty folder ``root``, with some files of other content, by their real paths."""

    def __init__(
        self, loaded: LoadedTree, environ: Mapping[str, str], root: Path, contents: Mapping[Path, bytes]
    ) -> None:
        self.root = root
        self._real = loaded.tree.root
        self._environ = environ
        _link(self._real, root, {path.relative_to(self._real): content for path, content in contents.items()})

    def loaded(self) -> LoadedTree:
        """The tree as it would be. Raises ConfigError as load_tree does."""
        return load_tree(Tree(root=self.root), self._environ)

    @contextlib.contextmanager
    def real_names(self, before: str) -> Iterator[None]:
        """Raise the block's ConfigError with the real tree's paths in it, and with ``before`` in front."""
        try:
            yield
        except ConfigError as err:
            message = before + str(err).replace(str(self.root), str(self._real))
            hint = err.hint.replace(str(self.root), str(self._real)) if err.hint else None
            raise ConfigError(message, hint=hint) from None


def every_variant(loaded: LoadedTree, name: str) -> list[RenderedPackage]:
    """Every variant of a recipe, over all stacks, kinds of foundation and platforms."""
    stacks = [stack for stack in loaded.stacks.values() if name in stack.packages]
    only = [replace(stack, packages=(name,)) for stack in stacks]
    return [
        package
        for kind in get_args(FoundationKind)
        for platform in PLATFORMS
        for package in expand_stacks(loaded, only, foundation_kind=kind, platform=platform)
    ]


def _link(root: Path, target: Path, contents: Mapping[Path, bytes]) -> None:
    """The tree ``root`` as links in ``target``, with some files (by relative path) of other content.

    A recipe's folder with such a file is copied, since files below links are not listed.
    """
    for path, content in contents.items():
        for parent in reversed(path.parents):
            folder = target / parent
            if folder.is_symlink():
                folder.unlink()
            if not folder.exists() or parent == Path():
                is_recipe = parent.parts[:1] == ("recipes",) and len(parent.parts) > 1
                if is_recipe and (root / parent).is_dir():
                    shutil.copytree(root / parent, folder, symlinks=True)
                    continue
                folder.mkdir(exist_ok=True)
                for item in sorted((root / parent).iterdir()) if (root / parent).is_dir() else []:
                    if not (folder / item.name).is_symlink() and not (folder / item.name).exists():
                        (folder / item.name).symlink_to(item)
        (target / path).unlink(missing_ok=True)
        (target / path).write_bytes(content)
