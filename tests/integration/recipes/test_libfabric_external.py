# SPDX-License-Identifier: BSD-3-Clause
"""The site's libfabric in the place of libfabric: Debian's, unpacked, carries oneCCL's allreduces."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from channel_tools.environments import activated_environment
from channel_tools.system.settings import Settings
from tests.integration.conftest import build_into_output
from tests.support.programs import folder_of_libfabric
from tests.support.stacks import DistributedRun, build_from_upstream, failed, install

pytestmark = [pytest.mark.integration, pytest.mark.slow]

STACK = "oneccl"
FEW: dict[str, object] = {"dtypes": ["int32"], "ops": ["SUM"], "ddp": False}
LIMIT_S = 240.0


@pytest.fixture(scope="module")
def prefix(own_settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Path:
    channel = build_from_upstream(own_settings, STACK, "torch-ccl")
    result = build_into_output("build", "--variant", "libfabric-external")
    assert result.returncode == 0, result.stderr
    specs = ["torch-ccl", "libfabric=*=external*"]
    return install(own_settings, channel, tmp_path_factory.mktemp("site") / "env", specs)


def test_oneccls_allreduces_go_through_the_sites(
    own_settings: Settings, prefix: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [*prefix.glob("lib/libfabric*")] == []
    monkeypatch.setenv("CHANNEL_LIBFABRIC_DIR", str(folder_of_libfabric(tmp_path / "libfabric")))
    run = DistributedRun(settings=own_settings, stack=STACK, prefix=prefix, folder=tmp_path, few=FEW, limit_s=LIMIT_S)
    result = run(
        launcher="torchrun",
        environment={"CCL_ATL_TRANSPORT": "ofi", "FI_PROVIDER": "tcp"},
        libraries=["libccl.so.1"],
        site_libraries=["libfabric.so.1*"],
    )
    assert failed(result) == set()


def test_without_one_the_environment_is_activated_all_the_same(prefix: Path, tmp_path: Path) -> None:
    variables = activated_environment(prefix, environ={**os.environ, "CHANNEL_LIBFABRIC_DIR": str(tmp_path)})
    assert variables["CONDA_PREFIX"] == str(prefix)
    assert str(tmp_path) not in variables.get("LD_LIBRARY_PATH", "")
