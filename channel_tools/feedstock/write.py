# SPDX-License-Identifier: BSD-3-Clause
"""Writing a feedstock: ``recipe/``, its ``conda_build_config.yaml`` and ``conda-forge.yml``.

Everything else of a feedstock (CI files, README) is what conda-smithy makes of these three.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import yaml

from channel_tools.errors import UsageError
from channel_tools.feedstock.model import Feedstock
from channel_tools.feedstock.recipe import feedstock_recipe
from channel_tools.feedstock.variants import feedstock_variants
from channel_tools.files import atomic_path, disk_full_reported
from channel_tools.matrix import ZIP_KEYS
from channel_tools.plan.buildfiles import OUTSIDE_FOLDER, DiskFiles, collect_build_files

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from channel_tools.feedstock.model import FeedstockRequest
    from channel_tools.matrix.model import RenderedPackage, VariantScalar
    from channel_tools.settings import Tree

_PROVIDER = "azure"
"""What conda-smithy takes for linux-64 when nothing else is said; said here so that aarch64 gets it too."""
_NOT_OURS = ("osx_64", "win_64")
"""Platforms that conda-smithy builds for unless told not to."""
_RECIPE = "recipe"


def write_feedstock(
    rendered: Sequence[RenderedPackage],
    folder: Path,
    *,
    tree: Tree,
    request: FeedstockRequest,
    pinned: frozenset[str],
    base: Mapping[str, Sequence[VariantScalar]],
) -> Feedstock:
    """Write the feedstock of one recipe, of which ``rendered`` has every variant on every platform, to ``folder``.

    ``pinned`` and ``base`` are as feedstock_variants takes them. Raises UsageError when ``folder`` exists, when a
    maintainer is missing, when the recipe has no homepage and none is given, and when its stacks disagree; nothing is
    written then.
    """
    if os.path.lexists(folder):
        message = f"{folder}: exists; a feedstock is written to a new folder"
        raise UsageError(message, hint="name another one; conda-smithy rerender updates one that is there")
    if not request.maintainers:
        raise UsageError("a feedstock needs a maintainer", hint="give --maintainer GITHUB_NAME, repeated for several")
    recipe_file = rendered[0].recipe_file
    text = feedstock_recipe(
        recipe_file, tree.root, outside=OUTSIDE_FOLDER, maintainers=request.maintainers, homepage=request.homepage
    )
    keys, zipped = feedstock_variants(rendered, pinned=pinned, base=base)
    platforms = tuple(sorted({package.platform for package in rendered}))
    with disk_full_reported(folder.parent), atomic_path(folder) as temporary:
        (temporary / _RECIPE).mkdir(parents=True)
        _copy_files(rendered, temporary / _RECIPE, tree)
        (temporary / _RECIPE / "recipe.yaml").write_text(text, encoding="utf-8")
        config = _config(keys, zipped, request)
        (temporary / _RECIPE / "conda_build_config.yaml").write_text(_dump(config), encoding="utf-8")
        (temporary / "conda-forge.yml").write_text(_dump(_smithy_settings(platforms)), encoding="utf-8")
    return Feedstock(folder=folder, platforms=platforms, keys=keys)


def _copy_files(rendered: Sequence[RenderedPackage], destination: Path, tree: Tree) -> None:
    reader = DiskFiles()
    files = {file.target: file for package in rendered for file in collect_build_files(package, tree.root, reader)}
    for target, file in sorted(files.items()):
        path = destination / target
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file.path, path)
        path.chmod(0o755 if file.executable else 0o644)


def _config(
    keys: Mapping[str, Sequence[object]], zipped: Sequence[str], request: FeedstockRequest
) -> dict[str, object]:
    config: dict[str, object] = {key: list(values) for key, values in keys.items()}
    if zipped:
        config[ZIP_KEYS] = [list(zipped)]
    if request.channels != ("conda-forge",):
        config["channel_sources"] = [",".join(request.channels)]
    return config


def _smithy_settings(platforms: Sequence[str]) -> dict[str, object]:
    names: list[str] = [platform.replace("-", "_") for platform in platforms]
    return {
        "conda_build_tool": "rattler-build",
        "conda_forge_output_validation": False,
        "provider": {**dict.fromkeys(names, _PROVIDER), **dict.fromkeys(_NOT_OURS)},
        "test": "native_and_emulated",
    }


def _dump(value: Mapping[str, object]) -> str:
    return yaml.safe_dump(dict(value), sort_keys=False, allow_unicode=True, width=120) if value else ""
