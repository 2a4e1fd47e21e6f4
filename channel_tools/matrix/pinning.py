# SPDX-License-Identifier: BSD-3-Clause
"""conda-forge's global pinning as the lowest layer of variants: what stands over it is the tree's own.

``pinning`` in stacks.yaml names a copy of ``conda_build_config.yaml`` from the package conda-forge-pinning, or a folder
with that file. It has values for a thousand packages; only keys that a recipe can use are kept. ``migrations`` are
applied to it before that.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from channel_tools.conda.metadata import PLATFORMS
from channel_tools.matrix.migrations import apply_migrations, read_migration
from channel_tools.matrix.model import Pinning
from channel_tools.matrix.selectors import Selectors
from channel_tools.matrix.variants import (
    CONDA_BUILD_CONFIG,
    OLD_FORMAT_KEYS,
    files_by_platform,
    read_conda_build_config,
)
from channel_tools.system.errors import nearest_names_hint
from channel_tools.system.yamlfile import read_yaml_text

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from channel_tools.matrix.migrations import Migration
    from channel_tools.matrix.model import RecipeFile, StacksFile, VariantFile

PINNING_KEY = "pinning"
MIGRATIONS_KEY = "migrations"
PACKAGE_MIGRATIONS = "share/conda-forge/migrations"
"""Where the package has its migrations, beside ``conda_build_config.yaml`` at its root."""
_FEEDSTOCK_MIGRATIONS = "migrations"


def read_pinning(
    file: StacksFile, root: Path, recipes: Mapping[str, RecipeFile], environ: Mapping[str, str]
) -> Pinning | None:
    """The pinning that stacks.yaml names with its migrations, for every platform; None if it names none.

    Raises ConfigError (file, line) for a path that does not exist, an unknown migration or one that does not fit, and
    as read_variant_file.
    """
    if file.pinning is None:
        if file.migrations:
            message = "migrations are applied to conda-forge's pinning, but there is no key pinning"
            raise file.document.error(message, MIGRATIONS_KEY, hint="add pinning, or remove migrations")
        return None
    path = _config_path(file, root, file.pinning)
    text = read_yaml_text(path)
    named = {found: read_yaml_text(found) for found in _migration_paths(file, path)}
    used = frozenset().union(*(recipe.used_keys for recipe in recipes.values()))
    read: dict[str, tuple[VariantFile, list[Migration]]] = {}
    for platform in PLATFORMS:
        selectors = Selectors(platform, environ)
        whole = read_conda_build_config(text, path, selectors, without=OLD_FORMAT_KEYS)
        read[platform] = whole, [read_migration(content, found, selectors) for found, content in named.items()]

    def migrated(recipe: str) -> VariantFile:
        return files_by_platform(
            {
                platform: _restricted(
                    apply_migrations(whole, [one for one in found if recipe not in one.exclude]), used
                )
                for platform, (whole, found) in read.items()
            }
        )

    excluded = frozenset(name for _whole, found in read.values() for one in found for name in one.exclude)
    return Pinning(file=migrated(""), excluding={name: migrated(name) for name in sorted(excluded & recipes.keys())})


def _config_path(file: StacksFile, root: Path, pinning: str) -> Path:
    path = root / pinning
    path = path / CONDA_BUILD_CONFIG if path.is_dir() else path
    if not path.is_file():
        message = f"pinning names {pinning!r}, but there is no file {path}"
        hint = f"unpack the package conda-forge-pinning of the version you want, and name its {CONDA_BUILD_CONFIG}"
        raise file.document.error(message, PINNING_KEY, hint=hint)
    return path


def _migration_paths(file: StacksFile, config: Path) -> list[Path]:
    folders = [config.parent / name for name in (PACKAGE_MIGRATIONS, _FEEDSTOCK_MIGRATIONS)]
    known = {path.stem: path for folder in reversed(folders) for path in sorted(folder.glob("*.yaml"))}
    for index, name in enumerate(file.migrations):
        if name not in known:
            where = " or ".join(map(str, folders))
            message = f"there is no migration {name!r} beside the pinning (in {where})"
            hint = nearest_names_hint(name, known, what="migration")
            raise file.document.error(message, MIGRATIONS_KEY, index, hint=hint)
    return [known[name] for name in dict.fromkeys(file.migrations)]


def _restricted(whole: VariantFile, keys: frozenset[str]) -> VariantFile:
    values = {key: found for key, found in whole.values.items() if key in keys}
    groups = tuple(tuple(key for key in group if key in values) for group in whole.zip_keys or ())
    return replace(whole, values=values, zip_keys=tuple(group for group in groups if len(group) > 1), is_base=True)
