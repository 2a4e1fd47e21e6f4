# SPDX-License-Identifier: BSD-3-Clause
"""conda-forge's global pinning as the lowest layer of variants: what stands over it is the tree's own.

``pinning`` in stacks.yaml is the path of a ``conda_build_config.yaml``, or of a folder with it. That file has values
for a thousand packages; only keys that a recipe can use are kept.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from channel_tools.conda.metadata import PLATFORMS
from channel_tools.matrix.selectors import Selectors
from channel_tools.matrix.variants import (
    CONDA_BUILD_CONFIG,
    OLD_FORMAT_KEYS,
    files_by_platform,
    read_conda_build_config,
)
from channel_tools.system.yamlfile import read_yaml_text

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from channel_tools.matrix.model import RecipeFile, StacksFile, VariantFile

_KEY = "pinning"
_VERSION = re.compile(r"\d+(\.\d+)+")
_KEPT = "locks/conda-forge-pinning/{version}"
"""Where trees of channel_tools 0.2 keep the file of a version that they name."""


def read_pinning(
    file: StacksFile, root: Path, recipes: Mapping[str, RecipeFile], environ: Mapping[str, str]
) -> VariantFile | None:
    """The pinning that stacks.yaml names, for every platform; None if it names none.

    Raises ConfigError (file, line) for a path that does not exist, and as read_variant_file.
    """
    if file.pinning is None:
        return None
    path = root / file.pinning
    path = path / CONDA_BUILD_CONFIG if path.is_dir() else path
    if not path.is_file():
        message = f"pinning names {file.pinning!r}, but there is no file {path}"
        hint = f"name the path of a {CONDA_BUILD_CONFIG}, relative to the tree"
        if _VERSION.fullmatch(file.pinning):
            kept = _KEPT.format(version=file.pinning)
            hint = f"take {CONDA_BUILD_CONFIG} of conda-forge-pinning {file.pinning} into the tree and name its path"
            hint = f"the tree has the file of this version: pinning: {kept}" if (root / kept).is_dir() else hint
        raise file.document.error(message, _KEY, hint=hint)
    text = read_yaml_text(path)
    used = frozenset().union(*(recipe.used_keys for recipe in recipes.values()))
    files = {
        platform: read_conda_build_config(text, path, Selectors(platform, environ), without=OLD_FORMAT_KEYS)
        for platform in PLATFORMS
    }
    return files_by_platform({platform: _restricted(pinning, used) for platform, pinning in files.items()})


def _restricted(pinning: VariantFile, keys: frozenset[str]) -> VariantFile:
    values = {key: of_key for key, of_key in pinning.values.items() if key in keys}
    groups = tuple(tuple(key for key in group if key in values) for group in pinning.zip_keys or ())
    return replace(pinning, values=values, zip_keys=tuple(group for group in groups if len(group) > 1), is_base=True)
