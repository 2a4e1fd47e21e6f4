# SPDX-License-Identifier: BSD-3-Clause
"""Profiles of fabrics that trees have in ``profiles/NAME.toml``, beside those of recipes/fabric-profile.

They are further values of its variant key wherever a stack has that, and a further source of the recipe, which says
what is wrong with a file that is no profile. One of the same name stands in the place of the recipe's own.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from channel_tools.matrix.model import VariantFile
from channel_tools.matrix.site import read_default_profile
from channel_tools.system.errors import ConfigError, nearest_names_hint
from channel_tools.system.yamlfile import YamlDocument

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from channel_tools.matrix.engine import EvaluatedRecipe
    from channel_tools.matrix.model import LoadedTree, RecipeFile
    from channel_tools.system.settings import Tree
    from channel_tools.system.yamlfile import YamlValue

PROFILE_KEY = "fabric_profile"
DEFAULT_KEY = "fabric_profile_default"
"""The profile that solvers take unless they are asked for another."""
_FOLDER = "profiles"
_NAME = re.compile(r"[a-z0-9_]+")


def find_profiles(trees: Iterable[Tree], recipes: Iterable[RecipeFile]) -> dict[str, Path]:
    """The files by name: of trees, first the tree's own, the first that has one.

    Raises ConfigError for a name that no build string may have, and for a tree with two profiles of one name.
    """
    users = [recipe for recipe in recipes if PROFILE_KEY in recipe.used_keys]
    found: dict[str, Path] = {}
    for tree in trees:
        for path in sorted(tree.profiles.glob("*.toml")):
            if not _NAME.fullmatch(path.stem):
                message = f"the profile's name is {path.stem!r}, expected lower case letters, digits and underscores"
                raise ConfigError(message, path=path, hint=f"rename the file: {_like(path.stem)}.toml")
            for recipe in users:
                other = recipe.folder / _FOLDER / path.name
                if recipe.folder.parent == tree.recipes and other.exists():
                    message = f"two profiles are named {path.stem!r}: this file and {other}"
                    raise ConfigError(message, path=path, hint="remove or rename one of the two")
            found.setdefault(path.stem, path)
    return found


def _like(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_") or "ours"


def check_default_profile(loaded: LoadedTree) -> str | None:
    """The profile that the tree's ``site.yaml`` names. Raises ConfigError (file, line) for one that is not there."""
    read = read_default_profile(loaded.tree)
    if read is None:
        return None
    document, name = read
    files = [
        file for items in loaded.variant_files.values() for item in items for file in (item, *item.others.values())
    ]
    known = {str(value) for file in files for value in file.values.get(PROFILE_KEY, ())} | loaded.profiles.keys()
    if name not in known:
        message = f"profile names {name!r}, and there is no {_FOLDER}/{name}.toml"
        raise document.error(message, "profile", hint=nearest_names_hint(name, known, noun="profile"))
    return name


def profile_variants(loaded: LoadedTree, files: Sequence[VariantFile]) -> Iterator[VariantFile]:
    """What stands over the variant files of a stack that has profiles: all of them, and the default."""
    listed = next((file.values[PROFILE_KEY] for file in reversed(files) if PROFILE_KEY in file.values), None)
    if listed is None or not (loaded.profiles or loaded.default_profile):
        return
    default = loaded.default_profile
    own = () if default is None else (default,)
    names = tuple(dict.fromkeys((*listed, *loaded.profiles, *own)))
    values = {PROFILE_KEY: names} | ({DEFAULT_KEY: own} if own else {})
    document = YamlDocument(
        path=loaded.tree.site_file, value={key: list(items) for key, items in values.items()}, lines={}, spellings={}
    )
    yield VariantFile(document=document, values=values, zip_keys=None)


def with_profile(recipe: RecipeFile, evaluated: EvaluatedRecipe, profiles: Mapping[str, Path]) -> EvaluatedRecipe:
    """The evaluated recipe with the tree's file among its sources, if its profile is one of the tree's."""
    path = profiles.get(str(evaluated.variant.get(PROFILE_KEY)))
    if path is None:
        return evaluated
    source = evaluated.recipe.get("source")
    sources: list[YamlValue] = list(source) if isinstance(source, list) else [] if source is None else [source]
    own: YamlValue = {"path": os.path.relpath(path, recipe.folder), "target_directory": _FOLDER}
    return replace(evaluated, recipe={**evaluated.recipe, "source": [*sources, own]})
