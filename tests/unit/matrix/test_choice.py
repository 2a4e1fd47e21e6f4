# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest

from channel_tools.matrix import RenderedPackage, expand_stacks, find_stack, load_tree
from channel_tools.matrix.choice import choices, default_variants, fits, variants_for, version_of
from channel_tools.system.errors import UsageError
from tests.unit.matrix.toytree import PLATFORM, write_tree

if TYPE_CHECKING:
    from pathlib import Path

PYTHONS = ("3.9.* *_cpython", "3.11.* *_cpython", "3.13.* *_cp313")


@pytest.fixture
def package(tmp_path: Path) -> RenderedPackage:
    loaded = load_tree(write_tree(tmp_path))
    return expand_stacks(loaded, [find_stack(loaded, None)], foundation_kind="registry", platform=PLATFORM)[0]


def of_variants(package: RenderedPackage, *, stack: str = "udp") -> list[RenderedPackage]:
    """One package for neither, one for each Python, and one for each Python with each of two PyTorches."""
    variants: list[dict[str, str]] = [{}, *({"python": python} for python in PYTHONS)]
    variants += [{"python": python, "pytorch": pytorch} for pytorch in ("2.13", "2.9") for python in PYTHONS]
    return [dataclasses.replace(package, stack=stack, variant=variant) for variant in variants]


@pytest.mark.parametrize(
    ("offered", "python", "pytorch"),
    [
        pytest.param({}, "3.13.* *_cp313", "2.13", id="the newest where everything is offered"),
        pytest.param({"python": ["3.11"], "pytorch": ["2.13.0"]}, "3.11.* *_cpython", "2.13", id="what is offered"),
        pytest.param({"python": ["3.11"], "pytorch": ["2.9.1"]}, "3.11.* *_cpython", "2.9", id="an older one offered"),
        pytest.param({"python": ["3.12"]}, "3.13.* *_cp313", "2.13", id="none of its values is offered"),
    ],
)
def test_the_default_variant_is_the_newest_that_is_offered(
    package: RenderedPackage, offered: dict[str, list[str]], python: str, pytorch: str
) -> None:
    found = default_variants(of_variants(package), offered)
    assert [dict(item.variant) for item in found] == [{}, {"python": python}, {"python": python, "pytorch": pytorch}]


def test_each_stack_has_its_own_default(package: RenderedPackage) -> None:
    old = [dataclasses.replace(package, stack="old", variant={"pytorch": "1.7.1"})]
    found = default_variants([*of_variants(package), *old], {"pytorch": ["2.9.0"]})
    assert [item.variant.get("pytorch") for item in found] == [None, None, "2.9", "1.7.1"]


def test_a_version_that_is_asked_for_goes_before_what_is_offered(package: RenderedPackage) -> None:
    offered = {"python": ["3.11"], "pytorch": ["2.13.0"]}
    found = variants_for(of_variants(package), {"python": "3.13"}, offered)
    assert choices(found) == [(("pytorch", "2.13"), ("python", "3.13.* *_cp313"))]
    with pytest.raises(UsageError, match=r"no package is built for python 3\.1$") as caught:
        variants_for(of_variants(package), {"python": "3.1"}, offered)
    assert caught.value.hint == "python in the variants of these packages: 3.9, 3.11, 3.13"


def test_choices_are_pairs_the_newest_first(package: RenderedPackage) -> None:
    found = choices(of_variants(package))
    assert len(found) == 6
    assert found[0] == (("pytorch", "2.13"), ("python", "3.13.* *_cp313"))
    assert found[-1] == (("pytorch", "2.9"), ("python", "3.9.* *_cpython"))


def test_a_value_fits_the_releases_of_its_series() -> None:
    assert version_of("3.13.* *_cp313") == "3.13"
    assert fits("2.13", "2.13.0")
    assert not fits("2.1", "2.13.0")
    assert fits("3.13.* *_cp313", "3.13")
