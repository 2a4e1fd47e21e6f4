# SPDX-License-Identifier: BSD-3-Clause
"""Plans of every stack over conda-forge's own records, as its users' solvers see them: under strict priority."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from channel_tools.system.settings import Settings, make_settings
from channel_tools.workflow.plan import PlanRequest, plan_request
from tests.support.conda_forge import conda_forge_folder
from tests.support.folder_server import serve_folder

if TYPE_CHECKING:
    from channel_tools.plan import Plan

pytestmark = pytest.mark.integration
_ROOT = Path(__file__).parents[2]
_SERVED = frozenset(
    ("accl", "libswitchml", "nccl-ofi", "oneccl", "pytorch-switchml", "switchml-switch", "torch-mpi", "torch-switchml")
)
"""Packages of ours that conda-forge serves in at least one variant."""


def _settings(tmp_path: Path) -> Settings:
    return make_settings(root=_ROOT, output=tmp_path / "output", environ={}, cwd=tmp_path)


def plan_over(channel: Path | str, settings: Settings) -> Plan:
    """The default variant of every stack, with a conda-forge foundation in a folder or at an address."""
    request = PlanRequest(every_stack=True, foundation="conda-forge", address=str(channel))
    return plan_request(settings, request)


def test_every_stack_is_planned(tmp_path: Path) -> None:
    plan = plan_over(conda_forge_folder() / "channel", _settings(tmp_path))
    assert {package.name for package in plan.packages} >= _SERVED
    assert {package.reasons for package in plan.packages} == {("new",)}


def test_a_folder_and_an_address_give_one_plan(tmp_path: Path) -> None:
    channel, settings = conda_forge_folder() / "channel", _settings(tmp_path)
    with serve_folder(channel) as address:
        assert _content(plan_over(address, settings)) == _content(plan_over(channel, settings))


def _content(plan: Plan) -> dict[str, dict[str, str]]:
    return {package.file_name: dict(package.inputs) for package in plan.packages}
