# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from channel_tools.feedstock.variants import FeedstockVariants, feedstock_variants
from channel_tools.matrix import RenderedPackage, VariantScalar, expand_stacks, load_tree
from channel_tools.system.errors import UsageError
from tests.unit.matrix.toytree import FILES, write_tree

Variant = dict[str, VariantScalar]
PINNED = frozenset({"python", "c_compiler_version", "numpy"})
BASE = {"linux-64": {"python": ("3.11", "3.12"), "c_compiler_version": ("15",), "numpy": ("2",)}}


@pytest.fixture
def package(tmp_path: Path) -> RenderedPackage:
    loaded = load_tree(write_tree(tmp_path, FILES))
    return expand_stacks(loaded, [loaded.stacks["udp"]], foundation_kind="conda-forge", platform="linux-64")[0]


@pytest.mark.parametrize(
    ("variants", "keys", "zipped"),
    [
        ([{"a": "1", "target_platform": "linux-64"}], {"a": ("1",)}, ()),
        ([{"a": "1"}, {"a": "2"}, {"a": "1"}], {"a": ("1", "2")}, ()),
        (
            [{"a": "1", "b": "x"}, {"a": "1", "b": "y"}, {"a": "2", "b": "x"}, {"a": "2", "b": "y"}],
            {"a": ("1", "2"), "b": ("x", "y")},
            (),
        ),
        (
            [{"a": "1", "b": "x", "c": "0"}, {"a": "2", "b": "y", "c": "0"}, {"a": "2", "b": "x", "c": "0"}],
            {"a": ("1", "2", "2"), "b": ("x", "y", "x"), "c": ("0",)},
            ("a", "b"),
        ),
        ([{"a": "1", "python": "3.11"}, {"a": "1", "python": "3.12"}], {"a": ("1",)}, ()),
        (
            [{"a": "1", "python": "3.9"}],
            {"a": ("1",), "python": ("3.9",), "is_python_min": ("false",)},
            (),
        ),
        (
            [{"a": "1", "c_compiler_version": "10"}],
            {"a": ("1",), "c_compiler_version": ("10",), "fortran_compiler_version": ("10",)},
            (),
        ),
        ([{"python": "3.11"}, {"python": "3.12"}], {}, ()),
        ([{"a": "1", "numpy": "2"}], {"a": ("1",)}, ()),
        (
            [{"a": "1", "numpy": "1.26"}, {"a": "2", "numpy": "2"}],
            {"a": ("1", "2"), "numpy": ("1.26", "2")},
            ("a", "numpy"),
        ),
    ],
    ids=[
        *("one", "list", "product", "zipped", "as conda-forge", "other python", "other compiler", "nothing of its own"),
        *("another key as conda-forge", "another key that moves with ours"),
    ],
)
def test_the_keys_and_what_moves_together(
    package: RenderedPackage, variants: list[Variant], keys: dict[str, tuple[str, ...]], zipped: tuple[str, ...]
) -> None:
    rendered = [replace(package, variant=variant) for variant in variants]
    assert feedstock_variants(rendered, pinned=PINNED, base=BASE) == FeedstockVariants(keys=keys, zipped=zipped)


def test_a_variant_that_uses_fewer_keys_adds_no_combination(package: RenderedPackage) -> None:
    """A build for CPUs uses no cuDNN; with any cuDNN beside it, it would be a build with CUDA that no stack has."""
    variants: list[Variant] = [{"a": "1", "cudnn": "8"}, {"a": "2", "cudnn": "9"}, {"a": "1"}, {"a": "2"}]
    rendered = [replace(package, variant=variant) for variant in variants]
    found = feedstock_variants(rendered, pinned=PINNED, base=BASE)
    assert found == FeedstockVariants(keys={"a": ("1", "2"), "cudnn": ("8", "9")}, zipped=("a", "cudnn"))


def test_what_conda_forge_zips_with_cuda_is_given_in_full(package: RenderedPackage) -> None:
    variants: list[Variant] = [
        {"cuda_compiler_version": cuda, "c_compiler_version": "12", "cxx_compiler_version": "12"}
        for cuda in ("None", "12.2")
    ]
    rendered = [replace(package, variant=variant) for variant in variants]
    pinned = PINNED | {"cuda_compiler_version", "cxx_compiler_version"}
    base = {"linux-64": BASE["linux-64"] | {"c_stdlib_version": ("2.17",)}}
    assert feedstock_variants(rendered, pinned=pinned, base=base) == FeedstockVariants(
        keys={
            "c_compiler_version": ("12", "12"),
            "cxx_compiler_version": ("12", "12"),
            "fortran_compiler_version": ("12", "12"),
            "c_stdlib_version": ("2.17", "2.17"),
            "cuda_compiler_version": ("None", "12.2"),
        }
    )


def test_of_stacks_that_disagree_the_one_that_agrees_with_conda_forge_counts_and_the_other_is_named(
    package: RenderedPackage,
) -> None:
    rendered = [
        replace(package, stack="new", variant={"a": "1", "c_compiler_version": "15"}),
        replace(package, stack="old", variant={"a": "1", "c_compiler_version": "10", "python": "3.9"}),
        replace(package, stack="new", variant={"a": "1", "python": "3.11"}),
        replace(package, stack="new", variant={"a": "1", "python": "3.12"}),
    ]
    found = feedstock_variants(rendered, pinned=PINNED, base=BASE)
    assert (found.keys, found.zipped) == ({"a": ("1",)}, ())
    (said,) = found.left_out
    assert said.endswith("not those of the stack old: c_compiler_version 10; python 3.9")


def test_no_value_of_a_stack_is_left_out_if_conda_forge_does_not_zip_its_key(package: RenderedPackage) -> None:
    rendered = [
        replace(package, stack="new", variant={"a": "1", "numpy": "2"}),
        replace(package, stack="old", variant={"a": "0", "numpy": "1.26"}),
    ]
    found = feedstock_variants(rendered, pinned=PINNED, base=BASE)
    assert found == FeedstockVariants(keys={"a": ("1", "0"), "numpy": ("2", "1.26")}, zipped=("a", "numpy"))


def test_platforms_are_compared_each_with_its_own_values(package: RenderedPackage) -> None:
    base = {"linux-64": {"c_compiler_version": ("14",)}, "linux-aarch64": {"c_compiler_version": ("15",)}}
    rendered = [
        replace(package, platform=platform, variant={"c_compiler_version": values["c_compiler_version"][0]})
        for platform, values in base.items()
    ]
    assert feedstock_variants(rendered, pinned=PINNED, base=base) == FeedstockVariants(keys={})
    swapped = [replace(one, variant=other.variant) for one, other in zip(rendered, reversed(rendered), strict=True)]
    assert feedstock_variants(swapped, pinned=PINNED, base=base).keys["c_compiler_version"] == ("15", "14")


def test_stacks_that_disagree_among_themselves_are_an_error(package: RenderedPackage) -> None:
    rendered = [
        replace(package, stack="middle", variant={"c_compiler_version": "12"}),
        replace(package, stack="old", variant={"c_compiler_version": "10"}),
    ]
    with pytest.raises(UsageError, match=r"different values of c_compiler_version \(middle: 12; old: 10\)") as caught:
        feedstock_variants(rendered, pinned=PINNED, base=BASE)
    assert caught.value.hint == "give --variant with one of middle, old"
