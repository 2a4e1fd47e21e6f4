# SPDX-License-Identifier: BSD-3-Clause
"""conda-forge's global pinning as the lowest layer of variants: what stands over it is the tree's own.

``pinning`` in stacks.yaml names a version of the package conda-forge-pinning, whose files are in the tree (see
``pinning_lock``), or the path of a ``conda_build_config.yaml`` or of a folder with it. That file has values for a
thousand packages; only keys that a recipe can use are kept. ``migrations`` are applied to it before that.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from channel_tools.conda.metadata import PLATFORMS
from channel_tools.matrix.migrations import apply_migrations, read_migration
from channel_tools.matrix.model import Pinning
from channel_tools.matrix.pinning_lock import (
    PACKAGE_MIGRATIONS,
    PINNING_PACKAGE,
    is_pinning_version,
    pinned_folder,
    read_pinned,
)
from channel_tools.matrix.selectors import Selectors
from channel_tools.matrix.variants import (
    CONDA_BUILD_CONFIG,
    OLD_FORMAT_KEYS,
    files_by_platform,
    read_conda_build_config,
)
from channel_tools.system.errors import nearest_names_hint
from channel_tools.system.yamlfile import read_yaml_text, yaml_text

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from channel_tools.matrix.migrations import Migration
    from channel_tools.matrix.model import RecipeFile, StacksFile, VariantFile
    from channel_tools.matrix.pinning_lock import PinnedPackage

PINNING_KEY = "pinning"
MIGRATIONS_KEY = "migrations"
_FEEDSTOCK_MIGRATIONS = "migrations"
_ByPlatform = dict[str, tuple["VariantFile", list["Migration"]]]
"""For each platform, the pinning without migrations, and the migrations."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Files:
    """The pinning's own file and its migrations by name; ``where`` they are, for messages, and the ``content`` of those
    that were read already."""

    config: Path
    migrations: Mapping[str, Path]
    where: str
    content: Mapping[Path, bytes]

    def text(self, path: Path) -> str:
        return yaml_text(self.content[path], path) if path in self.content else read_yaml_text(path)


def read_pinning(
    file: StacksFile,
    root: Path,
    recipes: Mapping[str, RecipeFile],
    environ: Mapping[str, str],
    pinned: PinnedPackage | None = None,
) -> Pinning | None:
    """The pinning that stacks.yaml names with its migrations, for every platform; None if it names none.

    ``pinned`` stands for the version that stacks.yaml names. Raises ConfigError (file, line) for a path that does not
    exist, a version that is not in the tree as it was recorded, an unknown migration or one that does not fit, and as
    read_variant_file.
    """
    if file.pinning is None:
        if file.migrations:
            message = "migrations are applied to conda-forge's pinning, but there is no key pinning"
            raise file.document.error(message, MIGRATIONS_KEY, hint="add pinning, or remove migrations")
        return None
    if is_pinning_version(file.pinning):
        files = _files_of_package(pinned or _pinned_in_tree(file, root, file.pinning), root)
    else:
        files = _files_at(_config_path(file, root, file.pinning))
    config = files.text(files.config)
    texts = {path: files.text(path) for path in _named_migrations(file, files)}
    by_platform: _ByPlatform = {}
    for platform in PLATFORMS:
        selectors = Selectors(platform, environ)
        unmigrated = read_conda_build_config(config, files.config, selectors, without=OLD_FORMAT_KEYS)
        migrations = [read_migration(text, path, selectors) for path, text in texts.items()]
        by_platform[platform] = unmigrated, migrations
    used = frozenset().union(*(recipe.used_keys for recipe in recipes.values()))
    excluded = frozenset(
        name for _config, migrations in by_platform.values() for migration in migrations for name in migration.exclude
    )
    return Pinning(
        file=_migrated(by_platform, "", used),
        unmigrated=files_by_platform(
            {platform: _restricted(unmigrated, used) for platform, (unmigrated, _migrations) in by_platform.items()}
        ),
        excluding={name: _migrated(by_platform, name, used) for name in sorted(excluded & recipes.keys())},
    )


def _migrated(by_platform: _ByPlatform, recipe: str, used: frozenset[str]) -> VariantFile:
    """The pinning with the migrations that do not exclude a recipe, reduced to the keys that recipes use."""
    files = {}
    for platform, (unmigrated, migrations) in by_platform.items():
        applied = [migration for migration in migrations if recipe not in migration.exclude]
        files[platform] = _restricted(apply_migrations(unmigrated, applied), used)
    return files_by_platform(files)


def _pinned_in_tree(file: StacksFile, root: Path, version: str) -> PinnedPackage:
    folder = pinned_folder(root, version)
    if not folder.is_dir():
        message = f"pinning names {PINNING_PACKAGE} {version}, but the tree has no {folder.relative_to(root)}"
        hint = "fetch it, and commit it with the tree: channel_tools foundation lock; a path would have a slash: ./NAME"
        raise file.document.error(message, PINNING_KEY, hint=hint)
    return read_pinned(root, version)


def _files_of_package(pinned: PinnedPackage, root: Path) -> _Files:
    folder = pinned_folder(root, pinned.version)
    content = {folder / name: data for name, data in pinned.files.items()}
    migrations = {path.stem: path for path in content if path.parent == folder / PACKAGE_MIGRATIONS}
    where = f"in {PINNING_PACKAGE} {pinned.version}; conda-forge removes those that are finished"
    return _Files(config=folder / CONDA_BUILD_CONFIG, migrations=migrations, where=where, content=content)


def _files_at(config: Path) -> _Files:
    folders = [config.parent / name for name in (PACKAGE_MIGRATIONS, _FEEDSTOCK_MIGRATIONS)]
    migrations = {path.stem: path for folder in reversed(folders) for path in sorted(folder.glob("*.yaml"))}
    where = f"beside the pinning (in {' or '.join(map(str, folders))})"
    return _Files(config=config, migrations=migrations, where=where, content={})


def _config_path(file: StacksFile, root: Path, pinning: str) -> Path:
    path = root / pinning
    path = path / CONDA_BUILD_CONFIG if path.is_dir() else path
    if not path.is_file():
        message = f"pinning names {pinning!r}, but there is no file {path}"
        hint = (
            f"name a version of {PINNING_PACKAGE}, such as 2026.08.12.18.05.35, or the path of its {CONDA_BUILD_CONFIG}"
        )
        raise file.document.error(message, PINNING_KEY, hint=hint)
    return path


def _named_migrations(file: StacksFile, files: _Files) -> list[Path]:
    known = files.migrations
    for index, name in enumerate(file.migrations):
        if name not in known:
            message = f"there is no migration {name!r} {files.where}"
            hint = nearest_names_hint(name, known, noun="migration")
            raise file.document.error(message, MIGRATIONS_KEY, index, hint=hint)
    return [known[name] for name in dict.fromkeys(file.migrations)]


def _restricted(pinning: VariantFile, keys: frozenset[str]) -> VariantFile:
    values = {key: of_key for key, of_key in pinning.values.items() if key in keys}
    groups = tuple(tuple(key for key in group if key in values) for group in pinning.zip_keys or ())
    return replace(pinning, values=values, zip_keys=tuple(group for group in groups if len(group) > 1), is_base=True)
