# SPDX-License-Identifier: BSD-3-Clause
"""The recipe of a feedstock: the tree's own text, with paths that stay inside its folder and what linters ask for.

Only the scalars that have to change are changed, at their place in the text: templates, comments and order stay as
their authors wrote them.
"""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

import yaml

from channel_tools.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from channel_tools.matrix.model import RecipeFile

_INDENT = "  "
Edit = tuple[int, int, str]
"""Replace the text between two offsets."""


def feedstock_recipe(
    recipe_file: RecipeFile, root: Path, *, outside: str, maintainers: Sequence[str], homepage: str | None
) -> str:
    """The text of ``recipe/recipe.yaml``.

    A path that leaves the recipe's folder becomes ``outside/<path in the tree>``. ``homepage`` and ``maintainers`` are
    added where the recipe names none. Raises UsageError when the recipe has no homepage and none is given.
    """
    text = recipe_file.path.read_text(encoding="utf-8")
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    sections = _mapping(node)
    folder = recipe_file.folder.relative_to(root).as_posix()
    edits = [
        (scalar.start_mark.index, scalar.end_mark.index, _quoted(_inside(scalar.value, folder, outside)))
        for scalar in _paths(sections)
        if scalar.value.startswith("../")
    ]
    edits += _homepage_edit(recipe_file, sections, homepage)
    edits += _maintainers_edit(text, sections, maintainers)
    return _apply(text, edits)


def _mapping(node: yaml.Node | None) -> dict[str, tuple[yaml.Node, yaml.Node]]:
    """A mapping node's keys and values by the key's text."""
    pairs = node.value if isinstance(node, yaml.MappingNode) else []
    return {key.value: (key, value) for key, value in pairs}


def _paths(sections: dict[str, tuple[yaml.Node, yaml.Node]]) -> Iterator[yaml.ScalarNode]:
    """Every scalar that can name a file: all of ``source``, and ``license_file`` of ``about``."""
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


def _inside(text: str, folder: str, outside: str) -> str:
    """``../../LICENSE`` seen from ``recipes/x`` is LICENSE of the tree; templates in it are kept as they are."""
    return posixpath.join(outside, posixpath.normpath(posixpath.join(folder, text)))


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
        return [(end, end, f"\nabout:\n{_INDENT}homepage: {homepage}\n") for end in [_end_of(sections)]]
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
    """Put ``line`` before what a section begins with, in the style it is written in."""
    start = section.start_mark.index
    if isinstance(section, yaml.MappingNode) and section.flow_style:
        return start + 1, start + 1, f"{line}, " if section.value else line
    return start, start, f"{line}\n{' ' * section.start_mark.column}"


def _end_of(sections: dict[str, tuple[yaml.Node, yaml.Node]]) -> int:
    """The offset behind the last section of a recipe."""
    return max(value.end_mark.index for _key, value in sections.values())


def _apply(text: str, edits: Sequence[Edit]) -> str:
    for start, end, replacement in sorted(edits, reverse=True):
        text = text[:start] + replacement + text[end:]
    return text
