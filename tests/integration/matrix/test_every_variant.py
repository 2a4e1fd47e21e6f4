# SPDX-License-Identifier: BSD-3-Clause
"""Every variant of every stack renders, for both platforms; conda-build itself, where it is, names them alike."""

from __future__ import annotations

import asyncio
import functools
import subprocess
from pathlib import Path

import pytest
import yaml
from rattler import GenericVirtualPackage, PackageName, Version
from rattler.package import BuildString

from channel_tools.conda.platforms import SUPPORTED_PLATFORMS
from channel_tools.matrix import LoadedTree, RenderedPackage, expand_stacks, load_tree
from channel_tools.plan import Plan, make_plan, open_foundation, render_folder
from channel_tools.system.settings import Tree
from tests.support.made_up_foundation import write_made_up_foundation
from tests.support.processes import TEST_TIMEOUT_S
from tests.support.programs import program

pytestmark = [pytest.mark.integration, pytest.mark.slow]

_TREE = Tree(root=Path(__file__).parents[3])
_X86_ONLY = frozenset({"accl-xrt", "oneccl", "dpdk", "dpdk-mlx5", "dpdk-mlx4", "dummy", "rdma"})
"""Stacks that have packages for linux-64 alone."""
_NOT_FOR_CONDA_FORGE = frozenset({"grpc", "python", "torchvision"})
"""Stacks that build what conda-forge has."""


@functools.cache
def tree() -> LoadedTree:
    return load_tree(_TREE)


def stacks() -> list[str]:
    return sorted(tree().stacks)


@functools.cache
def rendered(stack: str, platform: str) -> tuple[RenderedPackage, ...]:
    loaded = tree()
    return tuple(expand_stacks(loaded, [loaded.stacks[stack]], foundation_kind="conda-forge", platform=platform))


def planned(stack: str, platform: str, folder: Path) -> Plan:
    packages = rendered(stack, platform)
    channel = write_made_up_foundation(folder / "conda-forge", packages, platform)
    virtual = [
        GenericVirtualPackage(PackageName(name), Version(version), BuildString("0"))
        for name, version in (("__glibc", "2.39"), ("__linux", "6.1"), ("__unix", "0"), ("__cuda", "13.9"))
    ]
    return asyncio.run(
        make_plan(
            packages,
            root=_TREE.root,
            foundation=open_foundation(channel, kind="conda-forge", platform=platform),
            published={},
            virtual_packages=virtual,
        )
    )


@pytest.mark.parametrize("platform", SUPPORTED_PLATFORMS)
@pytest.mark.parametrize("stack", stacks())
def test_every_variant_is_planned_under_a_name_of_its_own(stack: str, platform: str, tmp_path: Path) -> None:
    plan = planned(stack, platform, tmp_path)
    assert [f"{item.rendered.name}: {item.reason}" for item in plan.unsatisfiable] == []
    names = [package.file_name for package in plan.packages]
    assert len(set(names)) == len(names) == len(rendered(stack, platform))
    assert names or stack in _NOT_FOR_CONDA_FORGE or (platform == "linux-aarch64" and stack in _X86_ONLY)


@pytest.mark.parametrize("stack", stacks())
def test_conda_build_takes_every_folder_and_names_it_alike(stack: str, tmp_path: Path) -> None:
    conda_render = program("conda-render")
    plan = planned(stack, "linux-64", tmp_path)
    for package in plan.packages:
        folder = render_folder(package, tmp_path / "recipes", tree=_TREE)
        command = [
            conda_render,
            str(folder),
            "-m",
            str(folder / "variants.yaml"),
            "--override-channels",
            "-c",
            "conda-forge",
        ]
        made = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TEST_TIMEOUT_S)
        assert made.returncode == 0, f"{folder.name}: {made.stdout}{made.stderr}"
        recipe = yaml.safe_load(made.stdout)
        name = f"{recipe['package']['name']}-{recipe['package']['version']}-{recipe['build']['string']}"
        assert name == folder.name
