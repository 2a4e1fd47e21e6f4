# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest

from channel_tools.matrix import RenderedPackage, expand_stacks, find_stack, load_tree
from channel_tools.matrix.choice import choices, default_variants, fits, label, variants_for, version_of
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


GRAALPY = "3.11.* *_graalpy242_311_native"


def _pythons(package: RenderedPackage, values: list[str]) -> list[RenderedPackage]:
    return [dataclasses.replace(package, variant={"python": value}) for value in values]


@pytest.mark.parametrize(
    ("values", "default"),
    [
        (["3.13.* *_cp313", "3.13.* *_cp313t"], "3.13.* *_cp313"),
        (["3.13.* *_cp313t", "3.13.* *_cp313"], "3.13.* *_cp313"),
        (["3.11.* *_cpython", GRAALPY], "3.11.* *_cpython"),
        (["3.9.* *_cpython", "3.9.* *_73_pypy"], "3.9.* *_cpython"),
        (["3.13.* *_cp313", "3.14.* *_cp314t"], "3.13.* *_cp313"),
        (["3.9.*", "3.10.*"], "3.10.*"),
        ([">=3.9,<3.10", "3.13"], "3.13"),
        (["3.14.* *_cp314t"], "3.14.* *_cp314t"),
    ],
)
def test_a_special_build_of_python_is_no_default(package: RenderedPackage, values: list[str], default: str) -> None:
    for order in (values, values[::-1]):
        assert [item.variant["python"] for item in default_variants(_pythons(package, order), {})] == [default]


@pytest.mark.parametrize(
    ("asked", "chosen"),
    [
        ("3.13", "3.13.* *_cp313"),
        ("3.13t", "3.13.* *_cp313t"),
        ("3.13.* *_cp313t", "3.13.* *_cp313t"),
        ("3.11", "3.11.* *_cpython"),
        ("3.11-graalpy242_311_native", GRAALPY),
        ("3.14", "3.14.* *_cp314t"),
    ],
)
def test_every_python_can_be_chosen(package: RenderedPackage, asked: str, chosen: str) -> None:
    values = ["3.11.* *_cpython", GRAALPY, "3.13.* *_cp313t", "3.13.* *_cp313", "3.14.* *_cp314t"]
    found = variants_for(_pythons(package, values), {"python": asked}, {"python": ["3.11"]})
    assert [item.variant["python"] for item in found] == [chosen]
    with pytest.raises(UsageError) as caught:
        variants_for(_pythons(package, values), {"python": "3.12"}, {})
    assert caught.value.hint is not None
    assert caught.value.hint.endswith(": 3.11-graalpy242_311_native, 3.13t, 3.14t, 3.11, 3.13")


@pytest.mark.parametrize(
    ("value", "version"),
    [("12.10", "12.10"), ("12.9", "12.9"), ("None", "0"), (2, "2"), ("mpich >=5", "0"), ("3.10.* *_cpython", "3.10")],
)
def test_the_version_of_a_value(value: str | int, version: str) -> None:
    assert version_of(value) == version


def test_a_newer_version_is_not_the_one_with_the_later_text(package: RenderedPackage) -> None:
    packages = [dataclasses.replace(package, variant={"pytorch": value}) for value in ("2.9", "2.10", "None")]
    assert [item.variant["pytorch"] for item in default_variants(packages, {})] == ["2.10"]


def test_labels_of_values_differ() -> None:
    values = ["3.13.* *_cp313", "3.13.* *_cp313t", GRAALPY, "3.9.* *_73_pypy"]
    assert [label(value) for value in values] == ["3.13", "3.13t", "3.11-graalpy242_311_native", "3.9-73_pypy"]
