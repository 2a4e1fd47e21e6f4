# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from pathlib import Path

import pytest

from channel_tools.matrix.choice import version_of
from channel_tools.requests.environment import InstallRequest
from channel_tools.system.settings import make_settings
from channel_tools.workflow.environment import (
    install_specs,
)
from tests.unit.validate.conftest import report

__all__ = ["report"]

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param({}, {"python": "3.11", "pytorch": "2.13"}, id="the default variant"),
        pytest.param({"pytorch": "2.12"}, {"python": "3.11", "pytorch": "2.12"}, id="the default Python"),
        pytest.param({"python": "3.13"}, {"python": "3.13", "pytorch": "2.13"}, id="the default PyTorch"),
        pytest.param({"channels": ("https://a.example",)}, {}, id="another channel's solver"),
    ],
)
def test_an_installation_is_of_one_python_and_pytorch(
    tmp_path: Path, given: dict[str, str], expected: dict[str, str]
) -> None:
    settings = make_settings(root=ROOT, output=tmp_path, environ={}, cwd=tmp_path)
    specs = install_specs(settings, InstallRequest(stack="cray-mpich", **given))  # type: ignore[arg-type]
    chosen = {key: version_of(value) for key, _, value in (spec.partition(" ") for spec in specs)}
    assert {key: value for key, value in chosen.items() if key in {"python", "pytorch"}} == expected


def test_a_pytorch_that_is_the_stacks_own_package_is_pinned_by_its_name(tmp_path: Path) -> None:
    settings = make_settings(root=ROOT, output=tmp_path, environ={}, cwd=tmp_path)
    request = InstallRequest(stack="cray-mpich-patched", python="3.11", pytorch="2.6.0")
    specs = install_specs(settings, request)
    assert "pytorch-cray-mpich 2.6.0.*" in specs
    assert not [spec for spec in specs if spec.startswith("pytorch ")]
