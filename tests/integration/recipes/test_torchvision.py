# SPDX-License-Identifier: BSD-3-Clause
"""torchvision from upstream's source, in one environment with pytorch-cray-mpich and mpi4py.

Its recipe's tests import it, run its operators, a model and its image codecs; here ranks reduce a model's gradients.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from channel_tools.system.processes import run_command
from channel_tools.system.settings import Settings
from tests.integration.conftest import ROOT, build_into_output
from tests.support.processes import TEST_TIMEOUT_S
from tests.support.stacks import build_from_upstream, install

pytestmark = [pytest.mark.integration, pytest.mark.slow]


@pytest.fixture(scope="module")
def programs(own_settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of what a user installs from the channel alone, and PyPI's mpi4py."""
    channel = build_from_upstream(own_settings, "torchvision", "torchvision-stock", release="0.28.0")
    result = build_into_output("build", "--variant", "cray-mpich")
    assert result.returncode == 0, result.stderr
    prefix = tmp_path_factory.mktemp("torchvision") / "env"
    install(own_settings, channel, prefix, ["pytorch-cray-mpich", "torchvision", "pip"])
    python = prefix / "bin" / "python"
    done = run_command([python, "-m", "pip", "install", "--quiet", "mpi4py"], check=False, timeout_s=TEST_TIMEOUT_S)
    if done.returncode != 0:
        pytest.skip(f"mpi4py cannot be installed into the environment: {done.tail()}")
    return python.parent


def test_ranks_reduce_a_models_gradients_beside_mpi4py(programs: Path) -> None:
    script = ROOT / "tests" / "support" / "torchvision_gradients.py"
    done = run_command([programs / "mpiexec", "-n", "2", programs / "python", script], timeout_s=TEST_TIMEOUT_S)
    told = r"torchvision \S+, PyTorch \S+: 62 gradients of 2 ranks as mpi4py's, allreduces by torch_mpi: [1-9]\d*\n"
    assert re.fullmatch(told, done.stdout)


def test_pip_finds_what_it_requires(programs: Path) -> None:
    """Else pip would take another PyTorch for it at the next installation."""
    again = ("-m", "pip", "install", "--dry-run", "--no-index", "torchvision")
    done = run_command([programs / "python", *again], timeout_s=TEST_TIMEOUT_S)
    assert "Would install" not in done.stdout
