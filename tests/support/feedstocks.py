# SPDX-License-Identifier: BSD-3-Clause
"""The variants of a feedstock as conda-smithy writes them for its CI, and as the tree has them, in one form."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import yaml

from channel_tools.conda.package import NOARCH

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from channel_tools.matrix import RenderedPackage

Variant = frozenset[tuple[str, str]]
"""The keys that a variant uses, with their values as text: conda-smithy's files have no other types."""

_OF_THE_CI = frozenset(
    ("build_number_decrement", "channel_sources", "channel_targets", "docker_image", "github_actions_labels")
)
"""What conda-smithy keeps in every file for the jobs of the CI."""
_OF_THE_ENGINE = frozenset({"build_platform", "host_platform"})
"""What the engine notes as used where a recipe asks whether it is cross-compiled; no variant file sets them."""


def variants_of_ci(folder: Path, platform: str) -> list[Variant]:
    """Every combination of the files that ``conda-smithy rerender`` wrote for a platform (linux_64)."""
    files = sorted((folder / ".ci_support").glob(f"{platform}_*.yaml"))
    # BaseLoader: every value is text, as in ``Variant``
    read = [yaml.load(path.read_text(encoding="utf-8"), yaml.BaseLoader) for path in files]  # noqa: S506
    return [found for config in read for found in _combinations(config)]


def _combinations(config: Mapping[str, list[str]]) -> Iterator[Variant]:
    """Keys of one group of ``zip_keys`` move together, the others are independent."""
    values = {key: items for key, items in config.items() if key not in _OF_THE_CI | {"zip_keys", "pin_run_as_build"}}
    groups = [[key for key in group if key in values] for group in config.get("zip_keys", [])]
    zipped = {key for group in groups for key in group}
    groups = [*filter(None, groups), *([key] for key in values if key not in zipped)]
    rows = [
        [[(key, values[key][index]) for key in group] for index in range(len(values[group[0]]))] for group in groups
    ]
    for choice in itertools.product(*rows):
        yield frozenset(itertools.chain.from_iterable(choice))


def variants_of_tree(rendered: Iterable[RenderedPackage]) -> dict[Variant, set[str]]:
    """The variants that the stacks of the tree have of a recipe, with these stacks.

    Left out are keys of the engine that conda-smithy leaves out, too: those of exact pins between outputs, which hold a
    build string, and the platform of packages for every platform.
    """
    packages = list(rendered)
    left_out = _OF_THE_ENGINE | {package.name.replace("-", "_") for package in packages}
    found: dict[Variant, set[str]] = {}
    for package in packages:
        without = left_out | ({"target_platform"} if package.subdir == NOARCH else set())
        used = ((key, value) for key, value in package.variant.items() if key not in without)
        variant = frozenset((key, str(value).lower() if isinstance(value, bool) else str(value)) for key, value in used)
        found.setdefault(variant, set()).add(package.stack)
    return found


def agree(one: Variant, other: Variant) -> bool:
    """Whether two variants have the same values of all keys that both of them use."""
    first, second = dict(one), dict(other)
    return all(first[key] == second[key] for key in first.keys() & second.keys())
