# SPDX-License-Identifier: BSD-3-Clause
"""The patched PyTorches: which variants there are, what belongs together, and what cannot exist."""

from __future__ import annotations

import functools
import re
import shutil
from collections import Counter
from pathlib import Path

import pytest

from channel_tools.matrix import FoundationKind, LoadedTree, Pin, RenderedPackage, expand_stacks, load_tree
from channel_tools.system.errors import ConfigError
from channel_tools.system.settings import Tree
from tests.unit.recipes.test_conda_forge_names import run_constraints

ROOT = Path(__file__).parents[3]
# each foundation and each platform once: the rest is rendered by the integration tests
PLACES: tuple[tuple[FoundationKind, str], ...] = (("conda-forge", "linux-64"), ("registry", "linux-aarch64"))
TORCHVISION = {
    "1.7.1": "0.8.2",
    "2.2.2": "0.17.2",
    "2.3.1": "0.18.1",
    "2.4.0": "0.19.0",
    "2.4.1": "0.19.1",
    "2.6.0": "0.21.0",
}
STOCK_TORCHVISION = {"2.12": "0.27.0", "2.13": "0.28.0"}


@functools.cache
def _tree() -> LoadedTree:
    return load_tree(Tree(root=ROOT))


@functools.cache
def _packages(stack: str, kind: FoundationKind, platform: str) -> tuple[RenderedPackage, ...]:
    loaded = _tree()
    return tuple(expand_stacks(loaded, [loaded.stacks[stack]], foundation_kind=kind, platform=platform))


def _named(
    name: str, stack: str, kind: FoundationKind = "conda-forge", platform: str = "linux-64"
) -> list[RenderedPackage]:
    return [package for package in _packages(stack, kind, platform) if package.name == name]


def _prefixes(packages: list[RenderedPackage]) -> Counter[str]:
    """Versions and build strings without the hash."""
    return Counter(f"{item.version} {item.engine_build_string.rpartition('_h')[0]}" for item in packages)


@pytest.mark.parametrize(("kind", "platform"), PLACES)
def test_the_builds_of_pytorch_with_mpi(kind: FoundationKind, platform: str) -> None:
    expected = {
        f"{version} patched_{gpu}_py{python}"
        for version in ("2.2.2", "2.3.1", "2.4.0", "2.4.1", "2.6.0")
        for gpu in ("cpu", "cuda122")
        for python in ("310", "311", "312")
    }
    assert _prefixes(_named("pytorch-cray-mpich", "cray-mpich-patched", kind, platform)) == Counter(expected)


@pytest.mark.parametrize(("kind", "platform"), PLACES)
def test_the_builds_of_pytorch_with_switchml_inside(kind: FoundationKind, platform: str) -> None:
    gpus = ("cpu", "cuda112") if platform == "linux-64" else ("cpu",)
    expected = {f"1.0.0 patched_{gpu}_py{python}" for gpu in gpus for python in ("38", "39")}
    assert _prefixes(_named("pytorch-switchml", "switchml-patched", kind, platform)) == Counter(expected)


def test_the_plugin_is_another_build_of_the_same_version() -> None:
    plugin, patched = _named("pytorch-switchml", "udp"), _named("pytorch-switchml", "switchml-patched")
    assert {item.version for item in plugin} == {item.version for item in patched}
    assert all(item.engine_build_string.startswith("plugin_") for item in plugin)
    source = ROOT / "recipes/pytorch-switchml-patched/src/torch/lib/c10d/SwitchMLReport.cpp"
    stated = re.search(r'kVersion = "([^"]+)"', source.read_text(encoding="utf-8"))
    assert stated is not None
    assert stated[1] == patched[0].version


@pytest.mark.parametrize(
    ("stack", "kind", "mpi", "needed"),
    [
        ("cray-mpich", "registry", "mpich", "mpich >=3.4"),
        ("openmpi", "registry", "openmpi", "openmpi >=4.1,<6"),
        ("mpi-abi", "registry", "mpi_abi", "mpich-abi"),
        ("mpi-abi", "conda-forge", "mpi_abi", "mpich >=5"),
    ],
)
def test_the_plugin_has_a_build_for_each_abi_of_mpi(stack: str, kind: FoundationKind, mpi: str, needed: str) -> None:
    builds = _named("torch-mpi", stack, kind)
    assert _prefixes(builds) == Counter(
        {f"1.0.0 {mpi}_py{python}": 2 for python in ("310", "311", "312", "313", "314")}
    )
    for build in builds:
        asked = [spec for spec in build.run if isinstance(spec, str) and "mpi" in spec.split()[0]]
        assert asked == [needed]


@pytest.mark.parametrize(
    ("kind", "archives", "dependency"),
    [("registry", 15, "openblas"), ("conda-forge", 1, "mkl-devel")],
    ids=["in parts and lean", "upstream's tarball and full"],
)
def test_a_foundation_chooses_where_the_sources_come_from_and_what_pytorch_is_built_with(
    kind: FoundationKind, archives: int, dependency: str
) -> None:
    builds = [
        package for package in _named("pytorch-cray-mpich", "cray-mpich-patched", kind) if package.version == "2.6.0"
    ]
    assert builds
    for package in builds:
        fetched = [source for source in package.sources if source.kind == "url"]
        assert len({source.sha256 for source in fetched}) == len(fetched) == archives
        assert dependency in package.host
        assert len(fetched[0].patches) == (5 if kind == "registry" else 4)
        assert "debian_mirror" not in package.variant


def test_the_plugin_is_a_newer_build_of_pytorch_with_mpi() -> None:
    """So that whoever asks for the package alone gets it, and no PyTorch from source."""
    plugin = _named("pytorch-cray-mpich", "cray-mpich")
    assert _prefixes(plugin) == Counter(
        f"{version} plugin_py{python}" for version in ("2.12", "2.13") for python in ("310", "311", "312", "313", "314")
    )
    stated = {str(item.version) for item in _named("torch-mpi", "cray-mpich")}
    for package in plugin:
        assert f"torch-mpi =={stated.copy().pop()} mpich_*" in package.run
    assert len(stated) == 1
    source = (ROOT / "recipes/torch-mpi/src/torch_mpi/version.py").read_text(encoding="utf-8")
    assert f'"{stated.pop()}"' in source


@pytest.mark.parametrize(
    ("stack", "brings"), [("switchml-patched", "pytorch-switchml"), ("cray-mpich-patched", "pytorch-cray-mpich")]
)
def test_each_torchvision_is_pinned_to_the_very_build_of_its_pytorch(stack: str, brings: str) -> None:
    for package in _named("torchvision-patched", stack):
        assert package.version == TORCHVISION[str(package.variant["pytorch"])]
        pins = [item for item in package.run if isinstance(item, Pin)]
        assert [(pin.function, pin.name, pin.exact) for pin in pins] == [("pin_compatible", brings, True)]
        gpu = "cpu" if package.variant["cuda_compiler_version"] == "None" else "cuda"
        spec = next(item for item in package.host if isinstance(item, str) and item.startswith(f"{brings} "))
        assert f" {gpu}" in spec or f"_{gpu}" in spec
        assert "torchvision <0.0a0" in run_constraints(package)
    assert len(_named("torchvision-patched", stack)) == len(_named(brings, stack))


def test_torchvision_is_built_without_pkg_resources_where_setuptools_has_none() -> None:
    """setuptools 82 removed it: releases that need it have an earlier one, the others a patch and what that imports."""
    for package in _named("torchvision-patched", "cray-mpich-patched"):
        (source,) = package.sources
        if package.version == "0.21.0":
            assert [patch.name for patch in map(Path, source.patches)] == ["0001-do-without-pkg-resources.patch"]
            assert {"setuptools", "packaging"} <= set(package.host)
        else:
            assert "setuptools <70" in package.host
            assert not source.patches


def test_a_stock_pytorch_has_the_torchvision_of_its_minor_version() -> None:
    builds = _named("torchvision", "torchvision", "registry")
    assert _prefixes(builds) == Counter(
        f"{version} cpu_py{python}"
        for version in ("0.27.0", "0.28.0")
        for python in ("310", "311", "312", "313", "314")
    )
    for package in builds:
        assert package.version == STOCK_TORCHVISION[str(package.variant["pytorch"])]
        (pin,) = [item for item in package.run if isinstance(item, Pin)]
        assert (pin.function, pin.name, pin.exact) == ("pin_compatible", "pytorch", False)
        (source,) = package.sources
        assert source.location.endswith(f"/v{package.version}.tar.gz")
    assert len({package.sources[0].sha256 for package in builds}) == len(STOCK_TORCHVISION)


def test_conda_forge_has_torchvision_itself() -> None:
    assert {one.name for one in _packages("torchvision", "conda-forge", "linux-64")} == {"channel_tools-stacks"}


def test_no_other_stack_needs_the_torchvision_of_a_stock_pytorch() -> None:
    """Its source cannot be had everywhere, and the default stacks come from registries alone."""
    assert [stack.name for stack in _tree().stacks.values() if "torchvision-stock" in stack.packages] == ["torchvision"]


def test_a_cpu_build_asks_for_nothing_of_cuda() -> None:
    for stack in ("switchml-patched", "cray-mpich-patched"):
        for package in _packages(stack, "conda-forge", "linux-64"):
            names = package.requirement_names()
            if package.variant.get("cuda_compiler_version") == "None":
                assert not {name for name in names if "cuda" in name or name.startswith(("libcu", "cudnn", "nccl"))}
            elif package.name.startswith("pytorch-"):
                assert {"cudnn", "nccl"} <= names


def test_every_pytorch_has_hash_and_patches_of_its_own() -> None:
    for package in _named("pytorch-cray-mpich", "cray-mpich-patched"):
        tarball = package.sources[0]
        assert tarball.location.endswith(f"/v{package.version}/pytorch-v{package.version}.tar.gz")
        assert tarball.sha256 is not None
        assert all(f"/{package.version}/" in patch for patch in tarball.patches)
        assert tarball.patches
    hashes = {item.version: item.sources[0].sha256 for item in _named("pytorch-cray-mpich", "cray-mpich-patched")}
    assert len(set(hashes.values())) == len(hashes)


@pytest.mark.parametrize(
    ("file", "old", "new", "reason"),
    [
        (
            "switchml-patched.yaml",
            '"3.9.* *_cpython"]',
            '"3.11.* *_cpython"]',
            "PyTorch 1.7.1 was made for Python 3.6 to 3.9",
        ),
        ("switchml-patched.yaml", 'pytorch: ["1.7.1"]', 'pytorch: ["1.8.0"]', "are for PyTorch 1.7.1 alone"),
        ("cray-mpich-patched.yaml", '"2.4.1", "2.6.0"]', '"2.4.1", "2.5.1"]', "2.2.2, 2.3.1, 2.4.0, 2.4.1 and 2.6.0"),
        (
            "cray-mpich-patched.yaml",
            '"3.12.* *_cpython"]',
            '"3.13.* *_cp313"]',
            "with Python 3.13 or later does not exist",
        ),
        (
            "cray-mpich-patched.yaml",
            '"0.18.1", "0.19.0"',
            '"0.19.0", "0.18.1"',
            "each torchvision belongs to one PyTorch",
        ),
        ("torchvision.yaml", '"0.27.0", "0.28.0"', '"0.28.0", "0.27.0"', "each torchvision belongs to one PyTorch"),
    ],
    ids=[
        "1.7.1 with python 3.11",
        "another pytorch",
        "a pytorch without patches",
        "python 3.13",
        "torchvisions swapped",
        "torchvisions of stock pytorches swapped",
    ],
)
def test_a_combination_that_cannot_exist_is_one_error(
    tmp_path: Path, file: str, old: str, new: str, reason: str
) -> None:
    (tmp_path / "recipes").symlink_to(ROOT / "recipes")
    shutil.copytree(ROOT / "variants", tmp_path / "variants")
    path = tmp_path / "variants" / file
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1
    path.write_text(text.replace(old, new), encoding="utf-8")
    loaded = load_tree(Tree(root=tmp_path))
    with pytest.raises(ConfigError, match=re.escape(reason)):
        expand_stacks(loaded, [loaded.stacks[path.stem]], foundation_kind="conda-forge", platform="linux-64")
