# SPDX-License-Identifier: BSD-3-Clause
"""conda-forge's global pinning as the lowest layer of variants: what stands over it is the tree's own.

``pinning`` in stacks.yaml names a copy of ``conda_build_config.yaml`` from the package conda-forge-pinning, or a folder
with that file. It has values for a thousand packages; only keys that a recipe can use are kept.
"""

from __future__ import annotations

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

    from channel_tools.matrix.model import StacksFile, VariantFile

PINNING_KEY = "pinning"


def read_pinning(
    file: StacksFile, root: Path, used_keys: frozenset[str], environ: Mapping[str, str]
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
        hint = f"unpack the package conda-forge-pinning of the version you want, and name its {CONDA_BUILD_CONFIG}"
        raise file.document.error(message, PINNING_KEY, hint=hint)
    text = read_yaml_text(path)
    readings = {}
    for platform in PLATFORMS:
        whole = read_conda_build_config(text, path, Selectors(platform, environ), without=OLD_FORMAT_KEYS)
        readings[platform] = _restricted(whole, used_keys)
    return files_by_platform(readings)


def _restricted(whole: VariantFile, keys: frozenset[str]) -> VariantFile:
    values = {key: found for key, found in whole.values.items() if key in keys}
    groups = tuple(tuple(key for key in group if key in values) for group in whole.zip_keys or ())
    return replace(whole, values=values, zip_keys=tuple(group for group in groups if len(group) > 1), is_base=True)
