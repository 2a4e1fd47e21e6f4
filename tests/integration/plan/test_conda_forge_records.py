# SPDX-License-Identifier: BSD-3-Clause
"""Plans of every stack over conda-forge's own records, as its users' solvers see them: under strict priority."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from channel_tools.plan.lock import write_lock
from channel_tools.requests.plan import PlanRequest
from channel_tools.system.settings import Settings, make_settings
from channel_tools.workflow.plan import plan_request
from tests.support.conda_forge import conda_forge_folder, copy_tree, copy_with_newer, copy_with_pinned
from tests.support.folder_server import serve_folder

if TYPE_CHECKING:
    from channel_tools.plan import Plan

pytestmark = [pytest.mark.integration, pytest.mark.slow]
_ROOT = Path(__file__).parents[3]
_SERVED = frozenset(
    ("accl", "libswitchml", "nccl-ofi", "oneccl", "pytorch-switchml", "switchml-switch", "torch-mpi", "torch-switchml")
)
"""Packages of ours that conda-forge serves in at least one variant."""
_DATA = ("tzdata", "ca-certificates")


def settings_of(tmp_path: Path, root: Path) -> Settings:
    return make_settings(root=root, output=tmp_path / "output", environ={}, cwd=tmp_path)


def plan_over(channel: Path | str, tmp_path: Path, root: Path) -> Plan:
    """The default variant of every stack, with a conda-forge foundation in a folder or at an address."""
    request = PlanRequest(every_stack=True, foundation="conda-forge", address=str(channel))
    return plan_request(settings_of(tmp_path, root), request)


def _content(plan: Plan) -> dict[str, dict[str, str]]:
    return {package.file_name: dict(package.inputs) for package in plan.packages}


@pytest.fixture(scope="module")
def channel() -> Path:
    return conda_forge_folder() / "channel"


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project's tree without a foundation lock."""
    return copy_tree(tmp_path_factory.mktemp("tree"))


@pytest.fixture(scope="module")
def planned(channel: Path, tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Plan:
    """The plan over the records in their folder."""
    return plan_over(channel, tmp_path_factory.mktemp("plan"), tree)


def test_every_stack_is_planned(planned: Plan) -> None:
    assert {package.name for package in planned.packages} >= _SERVED
    assert {package.reasons for package in planned.packages} == {("new",)}


def test_a_folder_and_an_address_give_one_plan(planned: Plan, channel: Path, tree: Path, tmp_path: Path) -> None:
    with serve_folder(channel) as address:
        found = plan_over(address, tmp_path, tree)
    assert _content(found) == _content(planned)
    assert found.lock == planned.lock


def test_newer_data_renames_nothing(planned: Plan, channel: Path, tree: Path, tmp_path: Path) -> None:
    newer = copy_with_newer(channel, tmp_path / "newer", _DATA)
    found = plan_over(newer, tmp_path, tree)
    assert _content(found) == _content(planned)
    assert found.lock != planned.lock


def test_with_a_lock_the_plan_is_the_same_whatever_is_newer(
    planned: Plan, channel: Path, tree: Path, tmp_path: Path
) -> None:
    assert planned.lock is not None
    locked = tmp_path / "tree"
    shutil.copytree(tree, locked)
    path = write_lock(locked, "conda-forge", "linux-64", planned.lock)
    assert path.stat().st_size < 1_000_000
    newer = copy_with_newer(channel, tmp_path / "newer", (*_DATA, "filelock", "fsspec"))
    assert _content(plan_over(newer, tmp_path, tree)).keys() != _content(planned).keys()
    for address in (str(newer), "http://127.0.0.1:9/out-of-reach"):
        found = plan_over(address, tmp_path, locked)
        assert (_content(found), found.lock, found.locks) == (_content(planned), planned.lock, ())


def _unserved(plan: Plan) -> set[tuple[str, str, str | None]]:
    found = [one.rendered for one in plan.unsatisfiable]
    return {(one.stack, one.name, str(one.variant.get("pytorch"))) for one in found}


def test_every_stack_can_be_built_with_the_pinned_versions(planned: Plan, channel: Path, tmp_path: Path) -> None:
    pinned = copy_tree(tmp_path / "tree", pinning=conda_forge_folder())
    offered = copy_with_pinned(channel, tmp_path / "channel")
    found = plan_over(offered, tmp_path, pinned)
    assert _unserved(found) == _unserved(planned)
    libtorch = {
        spec for package in found.packages for spec in package.rendered.host if str(spec).startswith("libtorch")
    }
    assert libtorch == {"libtorch 2.13.*"}
    assert {str(one.rendered.variant["openssl"]) for one in found.packages if "openssl" in one.rendered.variant} == {
        "3.5"
    }
