# SPDX-License-Identifier: BSD-3-Clause
"""The oneCCL stack from upstream's sources: built, installed from the channel alone, two ranks under mpiexec."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from channel_tools.system.errors import ValidationError
from channel_tools.system.progress import SilentProgress
from channel_tools.system.settings import Settings
from channel_tools.validate import validate_stack
from channel_tools.validate.distributed import method as distributed
from tests.support.processes import processes_naming, seconds_since_the_last_step
from tests.support.stacks import DistributedRun, build_from_upstream, failed, install_stack

pytestmark = [pytest.mark.integration, pytest.mark.slow]

STACK = "oneccl"
SECONDS_TO_AN_ERROR = 30.0
LIMIT_S = 600.0
FEW: dict[str, object] = {"dtypes": ["int32"], "ops": ["SUM"], "ddp": False}


@pytest.fixture(scope="module")
def channel(own_settings: Settings) -> Path:
    return build_from_upstream(own_settings, STACK, "torch-ccl")


@pytest.fixture(scope="module")
def prefix(own_settings: Settings, channel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install_stack(own_settings, channel, tmp_path_factory.mktemp(STACK) / "env", STACK)


@pytest.fixture
def run(own_settings: Settings, prefix: Path, tmp_path: Path) -> DistributedRun:
    return DistributedRun(settings=own_settings, stack=STACK, prefix=prefix, folder=tmp_path, few=FEW, limit_s=LIMIT_S)


@pytest.mark.parametrize("ranks", [2, 4])
def test_the_stack_keeps_its_promises(run: DistributedRun, ranks: int) -> None:
    report = validate_stack(run.whole(ranks=ranks), environ=os.environ, progress=SilentProgress())
    assert report.failed_checks == ()
    assert report.result.details["carrier"].endswith(".ProcessGroupCCL")
    assert len(report.result.bandwidth) == 6


def test_torchrun_and_libfabric_carry_it_too(run: DistributedRun) -> None:
    result = run(
        launcher="torchrun",
        environment={"CCL_ATL_TRANSPORT": "ofi", "FI_PROVIDER": "tcp"},
        libraries=["libccl.so.1", "libfabric.so.1"],
    )
    assert failed(result) == set()


def test_another_backend_is_not_taken_for_it(run: DistributedRun) -> None:
    assert failed(run(backend="gloo", affinity="none")) == {
        "the profiler saw every allreduce of the cases as oneccl_bindings_for_pytorch::allreduce",
        "libmpi.so.12 is loaded from the environment alone",
    }


def test_a_rank_that_raises_ends_the_run_within_seconds(run: DistributedRun) -> None:
    with pytest.raises(ValidationError, match=r"rank \d: ModuleNotFoundError: No module named 'no_such_backend'"):
        run(imports=["no_such_backend"])
    assert seconds_since_the_last_step(run.folder) < SECONDS_TO_AN_ERROR
    assert processes_naming(run.folder) == []


def test_a_rank_that_dies_is_named(run: DistributedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = run.folder / "dying.py"
    worker.write_text(
        "import os, pathlib, signal, sys\n"
        "rank = os.environ['PMI_RANK']\n"
        "(pathlib.Path(sys.argv[1]).parent / f'rank-{rank}.pid').write_text(str(os.getpid()))\n"
        "if rank == '1':\n"
        f"    os.kill(os.getpid(), {int(signal.SIGKILL)})\n"
        "signal.pause()\n",
        encoding="utf-8",
    )
    monkeypatch.setattr(distributed, "WORKER", worker)
    with pytest.raises(ValidationError, match=r"rank 1: ended by itself with exit status or signal 9"):
        run()
    assert processes_naming(run.folder) == []
