# SPDX-License-Identifier: BSD-3-Clause
"""What is built for conda-forge follows what conda-forge has: its Pythons, its glibc, its MPICH."""

from __future__ import annotations

import functools

import pytest
from rattler import Version, VersionSpec

from channel_tools.matrix import FoundationKind, RenderedPackage, expand_stacks, load_tree
from channel_tools.system.settings import Tree
from tests.unit.recipes.test_conda_forge_names import ROOT, run_constraints


def ignored_run_exports(package: RenderedPackage) -> list[object]:
    """The packages whose run_exports its recipe ignores."""
    requirements = package.recipe["requirements"]
    assert isinstance(requirements, dict)
    ignored = requirements["ignore_run_exports"]
    assert isinstance(ignored, dict)
    found = ignored["from_package"]
    assert isinstance(found, list)
    return list(found)


@functools.cache
def _packages(stack: str, kind: FoundationKind) -> tuple[RenderedPackage, ...]:
    loaded = load_tree(Tree(root=ROOT))
    return tuple(expand_stacks(loaded, [loaded.stacks[stack]], foundation_kind=kind, platform="linux-64"))


@pytest.mark.parametrize("stack", ["udp", "cray-mpich", "openmpi", "mpi-abi", "accl", "oneccl"])
def test_plugins_are_built_for_every_python(stack: str) -> None:
    found = {
        str(package.variant["python"]) for package in _packages(stack, "conda-forge") if "python" in package.variant
    }
    assert found == {"3.10.* *_cpython", "3.11.* *_cpython", "3.12.* *_cpython", "3.13.* *_cp313", "3.14.* *_cp314"}


@pytest.mark.parametrize(("stack", "glibc"), [("oneccl", "2.28"), ("nccl-ofi", "2.28"), ("udp", "2.17")])
def test_what_links_libfabric_is_built_with_the_glibc_of_conda_forges(stack: str, glibc: str) -> None:
    for kind, expected in (("conda-forge", glibc), ("registry", "2.36")):
        packages = _packages(stack, kind)
        found = {package.variant["c_stdlib_version"] for package in packages if "c_stdlib_version" in package.variant}
        assert found == {expected}


@pytest.mark.parametrize(("stack", "name"), [("oneccl", "oneccl"), ("cray-mpich", "torch-mpi")])
def test_what_was_built_with_mpich_4_takes_mpich_5(stack: str, name: str) -> None:
    for package in _packages(stack, "conda-forge"):
        if package.name == name:
            assert "mpich" in package.host
            assert package.variant["mpich"] == "4"
            assert "mpich" in ignored_run_exports(package)
            (range_,) = [item for item in package.run if isinstance(item, str) and item.startswith("mpich ")]
            assert VersionSpec(range_.removeprefix("mpich ")).matches(Version("5.0.1"))


def test_the_sites_mpi_stands_in_for_each_mpich_but_not_for_the_standard_abi() -> None:
    packages = [package for package in _packages("mpich-external", "conda-forge") if package.name == "mpich"]
    found = {package.version: package.engine_build_string.rpartition("_h")[0] for package in packages}
    assert found == {"3.4.3": "external_cray", "4.3.2": "external_cray", "5.0.1": "external5_cray"}
    assert all(run_constraints(package) == ["torch-mpi * mpich_*"] for package in packages)
