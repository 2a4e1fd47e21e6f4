# SPDX-License-Identifier: BSD-3-Clause
"""The sources of an evaluated recipe. What is fetched must be named by its content: a sha256 or a full commit."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from channel_tools.matrix.model import Source

if TYPE_CHECKING:
    from collections.abc import Mapping

    from channel_tools.errors import ConfigError
    from channel_tools.matrix.model import RecipeFile, SourceKind
    from channel_tools.yamlfile import YamlValue

_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_KINDS: tuple[SourceKind, ...] = ("url", "git", "path")


def read_sources(recipe: Mapping[str, YamlValue], recipe_file: RecipeFile) -> tuple[Source, ...]:
    """The sources in the recipe's order.

    Raises ConfigError (file, line) for a url without sha256 and for git without a full commit: neither would be the
    same bytes tomorrow.
    """
    entries = recipe.get("source")
    items = entries if isinstance(entries, list) else [] if entries is None else [entries]
    return tuple(_read_source(item, recipe_file) for item in items if isinstance(item, dict))


def _read_source(entry: Mapping[str, YamlValue], recipe_file: RecipeFile) -> Source:
    kind = next(kind for kind in _KINDS if kind in entry)
    addresses = entry[kind]
    locations = [str(item) for item in addresses] if isinstance(addresses, list) else [str(addresses)]
    sha256 = _text(entry.get("sha256"))
    revision = _text(entry.get("rev"))
    if kind == "url" and sha256 is None:
        raise _unnamed(recipe_file, f"source {locations[0]} has no sha256", "add its sha256")
    if kind == "git" and (revision is None or not _COMMIT.fullmatch(revision)):
        found = f"rev {revision}" if revision else "no rev"
        raise _unnamed(recipe_file, f"git source {locations[0]} has {found}", "name the full commit: rev: <40 digits>")
    patches = entry.get("patches")
    return Source(
        kind=kind,
        location=locations[0],
        mirrors=tuple(locations[1:]),
        sha256=sha256,
        revision=revision,
        patches=tuple(str(item) for item in patches) if isinstance(patches, list) else (),
        target_directory=_text(entry.get("target_directory")),
        entry=entry,
    )


def _unnamed(recipe_file: RecipeFile, message: str, hint: str) -> ConfigError:
    return recipe_file.document.error(f"{message}, so what it gives may change", "source", hint=hint)


def _text(value: YamlValue) -> str | None:
    return None if value is None else str(value)
