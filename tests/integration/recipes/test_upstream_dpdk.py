# SPDX-License-Identifier: BSD-3-Clause
"""vectorclass, DPDK and gRPC built from upstream's sources; their recipes' own tests run in those builds.

What is asked here is what a recipe's test cannot see: the package beside others in a channel, moved, and among stacks.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from conda_package_streaming.package_streaming import stream_conda_component

from channel_tools.environments import activated_environment
from channel_tools.system.processes import run_command
from channel_tools.system.settings import Settings
from tests.integration.conftest import ROOT
from tests.support.processes import TEST_TIMEOUT_S
from tests.support.stacks import build_from_upstream, install, packages_of

pytestmark = [pytest.mark.integration, pytest.mark.slow]

TOOLCHAIN = ["gcc_linux-64", "gxx_linux-64", "sysroot_linux-64", "cmake", "ninja", "make", "pkg-config"]
DPDK_TESTS = ROOT / "recipes" / "dpdk" / "tests"
STACKS = {"none": "dpdk", "mlx5": "dpdk-mlx5", "mlx4": "dpdk-mlx4"}


def _install(settings: Settings, channel: Path, prefix: Path, specs: list[str]) -> dict[str, str]:
    install(settings, channel, prefix, specs)
    return activated_environment(prefix, environ=os.environ)


def _index_of(package: Path) -> dict[str, object]:
    with package.open("rb") as stream:
        for tar, member in stream_conda_component(package.name, stream, "info"):
            if member.name == "info/index.json":
                content = tar.extractfile(member)
                assert content is not None
                index: dict[str, object] = json.load(content)
                return index
    raise AssertionError(f"{package} has no index.json")


def test_vectorclass_serves_every_subdir_from_one_package(own_settings: Settings) -> None:
    channel = build_from_upstream(own_settings, "dpdk", "vectorclass")
    found = [package.relative_to(channel).parts[0] for package in packages_of(channel, "vectorclass")]
    assert found
    assert set(found) == {"noarch"}


@pytest.mark.parametrize("drivers", STACKS)
def test_dpdk_works_where_it_was_not_built(own_settings: Settings, drivers: str, tmp_path: Path) -> None:
    """Installed at one prefix and moved to another: the .pc file and the make rules find themselves."""
    channel = build_from_upstream(own_settings, STACKS[drivers], "dpdk")
    variables = _install(own_settings, channel, tmp_path / "tools", [*TOOLCHAIN, "libnuma", "rdma-core"])
    _install(own_settings, channel, tmp_path / "first", [f"dpdk * {drivers}_*", "libnuma", "rdma-core"])
    moved = tmp_path / ("moved-" + "x" * 100)
    shutil.move(tmp_path / "first", moved)
    shutil.copytree(DPDK_TESTS, tmp_path / "work" / "tests")
    variables |= {"PREFIX": str(moved), "EXPECTED_VERSION": "19.11", "EXPECTED_DRIVERS": drivers}
    run_command(["bash", "tests/consume.sh"], cwd=tmp_path / "work", env=variables, timeout_s=TEST_TIMEOUT_S)


@pytest.mark.parametrize("drivers", STACKS)
def test_what_links_dpdk_inherits_what_the_archives_need(own_settings: Settings, drivers: str) -> None:
    channel = build_from_upstream(own_settings, STACKS[drivers], "dpdk")
    exports = json.loads((channel / "linux-64" / "run_exports.json").read_text(encoding="utf-8"))["packages.conda"]
    of_drivers = [entry["run_exports"] for name, entry in exports.items() if name.startswith(f"dpdk-19.11-{drivers}_")]
    assert of_drivers
    for entry in of_drivers:
        names = [spec.split()[0] for spec in entry["weak"]]
        assert names == (["libnuma"] if drivers == "none" else ["libnuma", "rdma-core"])
        assert entry["weak_constrains"] == ["_x86_64-microarch-level >=2"]


def test_a_foundations_own_grpc_is_preferred(own_settings: Settings, tmp_path: Path) -> None:
    channel = build_from_upstream(own_settings, "grpc", "grpc")
    built = [package for package in packages_of(channel, "libgrpc") if "-source_h" in package.name]
    assert built
    assert all(_index_of(package)["track_features"] for package in built)
    _install(own_settings, channel, tmp_path / "default", ["libgrpc"])
    assert not list((tmp_path / "default" / "conda-meta").glob("libgrpc-*-source_h*.json"))
    _install(own_settings, channel, tmp_path / "asked", ["libgrpc * source*"])
    assert list((tmp_path / "asked" / "conda-meta").glob("libgrpc-*-source_h*.json"))
