# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from channel_tools.feedstock.variants import feedstock_variants
from channel_tools.matrix import RenderedPackage, VariantScalar, expand_stack, load_tree
from tests.unit.matrix.toytree import FILES, write_tree

Variant = dict[str, VariantScalar]


@pytest.fixture
def package(tmp_path: Path) -> RenderedPackage:
    loaded = load_tree(write_tree(tmp_path, FILES))
    return expand_stack(loaded, loaded.stacks["udp"], foundation_kind="conda-forge", platform="linux-64")[0]


@pytest.mark.parametrize(
    ("variants", "pinned", "keys", "zipped"),
    [
        ([{"a": "1", "target_platform": "linux-64"}], set(), {"a": ("1",)}, ()),
        ([{"a": "1"}, {"a": "2"}, {"a": "1"}], set(), {"a": ("1", "2")}, ()),
        (
            [{"a": "1", "b": "x"}, {"a": "1", "b": "y"}, {"a": "2", "b": "x"}, {"a": "2", "b": "y"}],
            set(),
            {"a": ("1", "2"), "b": ("x", "y")},
            (),
        ),
        (
            [{"a": "1", "b": "x", "c": "0"}, {"a": "2", "b": "y", "c": "0"}, {"a": "2", "b": "x", "c": "0"}],
            set(),
            {"a": ("1", "2", "2"), "b": ("x", "y", "x"), "c": ("0",)},
            ("a", "b"),
        ),
        ([{"a": "1", "python": "3.11"}, {"a": "1", "python": "3.12"}], {"python"}, {"a": ("1",)}, ()),
        (
            [{"a": "1", "python": "3.9"}, {"a": "2", "python": "3.12"}],
            {"python"},
            {"a": ("1", "2"), "python": ("3.9", "3.12")},
            ("a", "python"),
        ),
        ([{"python": "3.11"}, {"python": "3.12"}], {"python"}, {}, ()),
    ],
    ids=["one", "list", "product", "zipped", "pinned", "pinned but deciding", "nothing of its own"],
)
def test_the_keys_and_what_moves_together(
    package: RenderedPackage,
    variants: list[Variant],
    pinned: set[str],
    keys: dict[str, tuple[str, ...]],
    zipped: tuple[str, ...],
) -> None:
    rendered = [replace(package, variant=variant) for variant in variants]
    assert feedstock_variants(rendered, pinned_elsewhere=frozenset(pinned)) == (keys, zipped)
