# SPDX-License-Identifier: BSD-3-Clause
"""The site's libfabric in the place of libfabric: Debian's, unpacked, carries MPI's allreduces of a stack's ranks."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from channel_tools.environments import activated_environment
from channel_tools.system.settings import Settings
from tests.integration.conftest import build_into_output
from tests.support.programs import folder_of_libfabric
from tests.support.stacks import DistributedRun, failed, install

pytestmark = [pytest.mark.integration, pytest.mark.slow]

STACK = "cray-mpich"
FEW: dict[str, object] = {"dtypes": ["int32"], "ops": ["SUM"], "ddp": False}
CARRIED_BY_THE_NETWORK = {"FI_PROVIDER": "tcp", "MPIR_CVAR_NOLOCAL": "1"}
"""MPICH's ranks of one host would use its memory."""


@pytest.fixture(scope="module")
def prefix(own_settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Path:
    for stack in (STACK, "libfabric-external"):
        result = build_into_output("build", "--variant", stack)
        assert result.returncode == 0, result.stderr
    specs = ["pytorch-cray-mpich=*=plugin*", "mpich", "libfabric=*=external*"]
    return install(own_settings, own_settings.channel, tmp_path_factory.mktemp("site") / "env", specs)


def test_an_environment_with_it_has_no_libfabric_of_its_own(prefix: Path) -> None:
    assert [*prefix.glob("lib/libfabric*")] == []


def test_mpis_allreduces_go_through_it(
    own_settings: Settings, prefix: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHANNEL_LIBFABRIC_DIR", str(folder_of_libfabric()))
    run = DistributedRun(settings=own_settings, stack=STACK, prefix=prefix, folder=tmp_path, few=FEW, limit_s=300.0)
    result = run(environment=CARRIED_BY_THE_NETWORK, libraries=["libmpi.so.12"], site_libraries=["libfabric.so.1*"])
    assert failed(result) == set()


def test_without_one_the_environment_says_so_and_can_be_activated(prefix: Path, tmp_path: Path) -> None:
    environ = {**os.environ, "CHANNEL_LIBFABRIC_DIR": str(tmp_path)}
    variables = activated_environment(prefix, environ=environ)
    assert variables["CONDA_PREFIX"] == str(prefix)
    assert str(tmp_path) not in variables.get("LD_LIBRARY_PATH", "")
