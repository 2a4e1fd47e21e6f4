# SPDX-License-Identifier: BSD-3-Clause
"""The ACCL stack from upstream's sources: built, installed from the channel alone, ranks on the emulator."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from channel_tools.environments import activated_environment
from channel_tools.system.errors import ValidationError
from channel_tools.system.progress import SilentProgress
from channel_tools.system.settings import Settings
from channel_tools.validate import validate_stack
from channel_tools.validate.distributed import method as distributed
from tests.integration.conftest import ROOT
from tests.support.processes import processes_naming
from tests.support.stacks import DistributedRun, build_from_upstream, failed, install_stack

pytestmark = [pytest.mark.integration, pytest.mark.slow]

STACK = "accl"
LIMIT_S = 900
FEW: dict[str, object] = {"dtypes": ["int32"], "ops": ["SUM"], "ddp": False, "max_numel": 2000}
KILLS_THE_EMULATOR = """
import os, pathlib, signal, sys
folder = pathlib.Path(sys.argv[1]).parent
if os.environ["RANK"] == "0":
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\\0")
        except OSError:
            continue
        if words[0].endswith(b"/bin/cclo_emu") and os.environ["ACCL_EMULATOR_PORT"].encode() in words:
            os.kill(int(process.name), signal.SIGKILL)
signal.pause()
"""


@pytest.fixture(scope="module")
def channel(own_settings: Settings) -> Path:
    build_from_upstream(own_settings, STACK, "torch-accl")
    return build_from_upstream(own_settings, STACK, "accl-emulator")


@pytest.fixture(scope="module")
def prefix(own_settings: Settings, channel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install_stack(own_settings, channel, tmp_path_factory.mktemp(STACK) / "env", STACK)


@pytest.fixture
def run(own_settings: Settings, prefix: Path, tmp_path: Path) -> DistributedRun:
    return DistributedRun(settings=own_settings, stack=STACK, prefix=prefix, folder=tmp_path, few=FEW, limit_s=LIMIT_S)


def test_the_process_group_reduces_over_the_emulator(prefix: Path) -> None:
    script = ROOT / "recipes/torch-accl/tests/collectives.py"
    command = [str(prefix / "bin/accl-emulator"), "--ranks", "2", "--timeout", "300", "--"]
    command += [str(prefix / "bin/python"), "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*command, str(script)],
        env=activated_environment(prefix, environ=os.environ),
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stderr
    assert {f"rank {rank} of 2: all right" for rank in range(2)} <= set(done.stdout.splitlines())


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_the_stack_keeps_its_promises(prefix: Path, run: DistributedRun, ranks: int) -> None:
    report = validate_stack(run.whole(ranks=ranks), environ=os.environ, progress=SilentProgress())
    assert report.failed_checks == ()
    (carried,) = [check for check in report.result.checks if check.name.startswith("accl-emulator carried")]
    assert carried.found.startswith("rank 0: ")
    assert report.result.details["carrier"].endswith(".ProcessGroupACCL")
    assert processes_naming(prefix) == []


def test_another_backend_is_not_taken_for_it(run: DistributedRun) -> None:
    assert failed(run(backend="gloo")) >= {
        "accl-emulator carried every allreduce, by its own log",
        "the profiler saw every allreduce of the cases as accl::all_reduce",
    }


def test_an_emulator_that_dies_ends_the_run_and_is_named(run: DistributedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = run.folder / "killing.py"
    worker.write_text(KILLS_THE_EMULATOR, encoding="utf-8")
    monkeypatch.setattr(distributed, "WORKER", worker)
    message = rf"(?s)accl-emulator ended while the ranks ran: .*ended with exit code -{int(signal.SIGKILL)}"
    with pytest.raises(ValidationError, match=message):
        run()
    assert processes_naming(run.folder) == []
