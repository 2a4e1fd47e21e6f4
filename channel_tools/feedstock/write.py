# SPDX-License-Identifier: BSD-3-Clause
"""Writes a feedstock: ``recipe/``, its ``conda_build_config.yaml`` and ``conda-forge.yml``.

conda-smithy generates everything else of a feedstock (CI files, README) from these three. The recipe is the tree's own
text: only the scalars that have to change are replaced, so templates, comments and order are kept.
"""

from __future__ import annotations

import os
import posixpath
from dataclasses import dataclass
from typing import TYPE_CHECKING

import yaml

from channel_tools.feedstock.variants import feedstock_variants
from channel_tools.matrix import ZIP_KEYS
from channel_tools.plan.inputs import OUTSIDE_FOLDER, TreeFiles
from channel_tools.system.errors import UsageError
from channel_tools.system.files import atomic_path, disk_full_reported
from channel_tools.system.source_files import copy_source_file
from channel_tools.system.yamlfile import dump_yaml

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from pathlib import Path

    from channel_tools.feedstock.variants import Base, FeedstockVariants
    from channel_tools.matrix.model import RecipeFile, RenderedPackage, VariantScalar
    from channel_tools.requests.init import FeedstockRequest
    from channel_tools.system.settings import Tree

_PROVIDER = "azure"
"""conda-smithy's default for linux-64, written explicitly so that aarch64 gets it too."""
_NOT_OURS = ("osx_64", "win_64")
"""Platforms that conda-smithy builds for unless they are excluded."""
_RECIPE = "recipe"
_INDENT = "  "
Edit = tuple[int, int, str]
"""A replacement for the text between two offsets."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Feedstock:
    """A written feedstock: its folder, its platforms, and its variants."""

    folder: Path
    platforms: tuple[str, ...]
    variants: FeedstockVariants


def write_feedstock(
    rendered: Sequence[RenderedPackage],
    request: FeedstockRequest,
    *,
    tree: Tree,
    pinned: Collection[str],
    base: Base,
    read: Mapping[str, VariantScalar],
) -> Feedstock:
    """Write the feedstock of one recipe; ``rendered`` has its every variant on every platform.

    ``pinned``, ``base`` and ``read`` are as for feedstock_variants. Raises UsageError, without writing anything, if its
    folder exists, no maintainer is given, the recipe has no homepage and none is given, or its stacks disagree.
    """
    folder = request.destination
    if os.path.lexists(folder):
        message = f"{folder}: exists; expected a new folder for the feedstock"
        raise UsageError(message, hint="give another folder; conda-smithy rerender updates an existing feedstock")
    if not request.maintainers:
        raise UsageError("a feedstock needs a maintainer", hint="give --maintainer GITHUB_NAME; it may be repeated")
    recipe_file = rendered[0].recipe_file
    text = feedstock_recipe(recipe_file, tree.root, maintainers=request.maintainers, homepage=request.homepage)
    variants = feedstock_variants(rendered, pinned=pinned, base=base, read=read)
    platforms = tuple(sorted({package.platform for package in rendered}))
    with disk_full_reported(folder.parent), atomic_path(folder) as temporary:
        (temporary / _RECIPE).mkdir(parents=True)
        tree_files = TreeFiles(tree.root)
        files = {file.target: file for package in rendered for file in tree_files.of_build(package)}
        for target, file in sorted(files.items()):
            copy_source_file(file.path, temporary / _RECIPE / target, follow=file.link is None)
        (temporary / _RECIPE / "recipe.yaml").write_text(text, encoding="utf-8")
        config: dict[str, object] = {key: list(values) for key, values in variants.keys.items()}
        if variants.zipped:
            config[ZIP_KEYS] = [list(variants.zipped)]
        if request.channels != ("conda-forge",):
            config["channel_sources"] = [",".join(request.channels)]
        (temporary / _RECIPE / "conda_build_config.yaml").write_text(_dump(config), encoding="utf-8")
        names: list[str] = [platform.replace("-", "_") for platform in platforms]
        smithy: dict[str, object] = {
            "conda_build_tool": "rattler-build",
            "conda_forge_output_validation": False,
            "provider": {**dict.fromkeys(names, _PROVIDER), **dict.fromkeys(_NOT_OURS)},
            "test": "native_and_emulated",
        }
        (temporary / "conda-forge.yml").write_text(_dump(smithy), encoding="utf-8")
    return Feedstock(folder=folder, platforms=platforms, variants=variants)


def _dump(value: Mapping[str, object]) -> str:
    return dump_yaml(value) if value else ""


def feedstock_recipe(recipe_file: RecipeFile, root: Path, *, maintainers: Sequence[str], homepage: str | None) -> str:
    """The text of ``recipe/recipe.yaml``.

    A path that leaves the recipe's folder becomes ``OUTSIDE_FOLDER/<path in the tree>``. ``homepage`` and
    ``maintainers`` are added if the recipe names none. Raises UsageError if the recipe has no homepage and none is
    given.
    """
    text = recipe_file.path.read_text(encoding="utf-8")
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    sections = _mapping(node)
    folder = recipe_file.folder.relative_to(root).as_posix()
    edits = [
        (scalar.start_mark.index, scalar.end_mark.index, _quoted(_inside(scalar.value, folder)))
        for scalar in _paths(sections)
        if scalar.value.startswith("../")
    ]
    edits += _homepage_edit(recipe_file, sections, homepage)
    edits += _maintainers_edit(text, sections, maintainers)
    for start, end, replacement in sorted(edits, reverse=True):
        text = text[:start] + replacement + text[end:]
    return text


def _mapping(node: yaml.Node | None) -> dict[str, tuple[yaml.Node, yaml.Node]]:
    """A mapping node's keys and values by the key's text."""
    pairs = node.value if isinstance(node, yaml.MappingNode) else []
    return {key.value: (key, value) for key, value in pairs}


def _paths(sections: dict[str, tuple[yaml.Node, yaml.Node]]) -> Iterator[yaml.ScalarNode]:
    """Every scalar that can be a file's path: all of ``source``, and ``license_file`` of ``about``."""
    if "source" in sections:
        yield from _scalars(sections["source"][1])
    about = _mapping(sections["about"][1]) if "about" in sections else {}
    if "license_file" in about:
        yield from _scalars(about["license_file"][1])


def _scalars(node: yaml.Node) -> Iterator[yaml.ScalarNode]:
    if isinstance(node, yaml.ScalarNode):
        yield node
    elif isinstance(node, yaml.MappingNode):
        for _key, value in node.value:
            yield from _scalars(value)
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _scalars(item)


def _inside(text: str, folder: str) -> str:
    """The path in the tree: ``../../LICENSE`` in ``recipes/x`` is ``LICENSE``; templates in it are kept unchanged."""
    return posixpath.join(OUTSIDE_FOLDER, posixpath.normpath(posixpath.join(folder, text)))


def _quoted(text: str) -> str:
    return f'"{text}"' if "{" in text else text


def _homepage_edit(
    recipe_file: RecipeFile, sections: dict[str, tuple[yaml.Node, yaml.Node]], homepage: str | None
) -> list[Edit]:
    about = sections.get("about")
    if about is not None and "homepage" in _mapping(about[1]):
        return []
    if homepage is None:
        message = f"{recipe_file.path}: about.homepage is missing, which every feedstock needs"
        raise UsageError(message, hint="give --homepage ADDRESS, or write it into the recipe")
    if about is None:
        end = max(value.end_mark.index for _key, value in sections.values())
        return [(end, end, f"\nabout:\n{_INDENT}homepage: {homepage}\n")]
    return [_first_in(about[1], f"homepage: {homepage}")]


def _maintainers_edit(
    text: str, sections: dict[str, tuple[yaml.Node, yaml.Node]], maintainers: Sequence[str]
) -> list[Edit]:
    block = f"recipe-maintainers: [{', '.join(maintainers)}]"
    extra = sections.get("extra")
    if extra is None:
        gap = "" if text.endswith("\n") else "\n"
        return [(len(text), len(text), f"{gap}\nextra:\n{_INDENT}{block}\n")]
    if "recipe-maintainers" in _mapping(extra[1]):
        return []
    return [_first_in(extra[1], block)]


def _first_in(section: yaml.Node, line: str) -> Edit:
    """Insert ``line`` at the start of a section, in the section's style."""
    start = section.start_mark.index
    if isinstance(section, yaml.MappingNode) and section.flow_style:
        return start + 1, start + 1, f"{line}, " if section.value else line
    return start, start, f"{line}\n{' ' * section.start_mark.column}"
