# SPDX-License-Identifier: BSD-3-Clause
"""The ACCL stack from upstream's sources: built, installed from the channel alone, ranks on the emulator."""

from __future__ import annotations

import os
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from channel_tools.environments import activated_environment, create_environment
from channel_tools.errors import ValidationError
from channel_tools.matrix import find_stack, load_tree
from channel_tools.progress import SilentProgress
from channel_tools.settings import Settings
from channel_tools.validate import ValidationRequest, distributed, validate_stack
from channel_tools.validate.context import MethodContext
from channel_tools.validate.distributed import DistributedMethod
from channel_tools.validate.model import MethodResult
from channel_tools.validate.processes import Deadline
from tests.integration.conftest import ROOT
from tests.integration.upstream import build_from_upstream
from tests.processes import processes_naming

pytestmark = pytest.mark.integration

STACK = "accl"
SUBDIR = "linux-64"
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
    build_from_upstream(own_settings, STACK, "torch-accl", heavy=True)
    return build_from_upstream(own_settings, STACK, "accl-emulator", heavy=True)


@pytest.fixture(scope="module")
def prefix(own_settings: Settings, channel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return create_environment(
        tmp_path_factory.mktemp("accl") / "env",
        find_stack(load_tree(own_settings.tree), STACK).install,
        [channel.as_uri()],
        package_cache=own_settings.package_cache,
        subdir=SUBDIR,
        progress=SilentProgress(),
    ).prefix


@dataclass(frozen=True, kw_only=True)
class Run:
    """Few allreduces of the stack's backend in the installed environment."""

    prefix: Path
    folder: Path
    options: dict[str, object]

    def __call__(self, **options: object) -> MethodResult:
        context = MethodContext(
            stack=STACK,
            prefix=self.prefix,
            variables=activated_environment(self.prefix, environ=os.environ),
            ranks=2,
            options={**self.options, **FEW, **options},
            folder=self.folder,
            deadline=Deadline.after(LIMIT_S),
            progress=SilentProgress(),
        )
        return DistributedMethod().run(context)


@pytest.fixture
def run(own_settings: Settings, prefix: Path, tmp_path: Path) -> Run:
    validation = find_stack(load_tree(own_settings.tree), STACK).validation
    options: dict[str, object] = {name: value for name, value in validation.items() if name != "method"}
    return Run(prefix=prefix, folder=tmp_path, options=options)


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


def test_the_stack_keeps_its_promises(own_settings: Settings, channel: Path, prefix: Path, run: Run) -> None:
    request = ValidationRequest(
        stack=STACK,
        method="distributed",
        options=run.options,
        specs=find_stack(load_tree(own_settings.tree), STACK).install,
        channels=(channel.as_uri(),),
        ranks=2,
        subdir=SUBDIR,
        package_cache=own_settings.package_cache,
        work=run.folder,
        forbidden=(own_settings.tree.root, own_settings.output),
        prefix=prefix,
        timeout_s=LIMIT_S,
    )
    report = validate_stack(request, environ=os.environ, progress=SilentProgress())
    assert report.failed_checks == ()
    (carried,) = [check for check in report.result.checks if check.name.startswith("accl-emulator carried")]
    assert carried.found.startswith("rank 0: ")
    assert report.result.details["carrier"].endswith(".ProcessGroupACCL")
    assert processes_naming(prefix) == []


def test_another_backend_is_not_taken_for_it(run: Run) -> None:
    failed = {check.name for check in run(backend="gloo").checks if not check.passed}
    assert failed >= {
        "accl-emulator carried every allreduce, by its own log",
        "the profiler saw every allreduce of the cases as accl::all_reduce",
    }


def test_an_emulator_that_dies_ends_the_run_and_is_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = run.folder / "killing.py"
    worker.write_text(KILLS_THE_EMULATOR, encoding="utf-8")
    monkeypatch.setattr(distributed, "WORKER", worker)
    message = rf"(?s)accl-emulator ended while the ranks ran: .*ended with exit code -{int(signal.SIGKILL)}"
    with pytest.raises(ValidationError, match=message):
        run()
    assert processes_naming(run.folder) == []
