# SPDX-License-Identifier: BSD-3-Clause
"""The oneCCL stack from upstream's sources: built, installed from the channel alone, two ranks under mpiexec."""

from __future__ import annotations

import os
import signal
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
from tests.integration.upstream import build_from_upstream
from tests.processes import processes_naming, seconds_since_the_last_step

pytestmark = pytest.mark.integration

STACK = "oneccl"
SUBDIR = "linux-64"
SECONDS_TO_AN_ERROR = 30.0
LIMIT_S = 600.0
FEW: dict[str, object] = {"dtypes": ["int32"], "ops": ["SUM"], "ddp": False}


@pytest.fixture(scope="module")
def channel(own_settings: Settings) -> Path:
    return build_from_upstream(own_settings, STACK, "torch-ccl", heavy=True)


@pytest.fixture(scope="module")
def prefix(own_settings: Settings, channel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return create_environment(
        tmp_path_factory.mktemp("oneccl") / "env",
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


def failed(result: MethodResult) -> set[str]:
    return {check.name for check in result.checks if not check.passed}


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
    )
    report = validate_stack(request, environ=os.environ, progress=SilentProgress())
    assert report.failed_checks == ()
    assert report.result.details["carrier"].endswith(".ProcessGroupCCL")
    assert len(report.result.bandwidth) == 6


def test_torchrun_and_libfabric_carry_it_too(run: Run) -> None:
    result = run(
        launcher="torchrun",
        environment={"CCL_ATL_TRANSPORT": "ofi", "FI_PROVIDER": "tcp"},
        libraries=["libccl.so.1", "libfabric.so.1"],
    )
    assert failed(result) == set()


def test_another_backend_is_not_taken_for_it(run: Run) -> None:
    assert failed(run(backend="gloo")) == {
        "the profiler saw every allreduce of the cases as oneccl_bindings_for_pytorch::allreduce",
        "libmpi.so.12 is loaded from the environment alone",
    }


def test_a_rank_that_raises_ends_the_run_within_seconds(run: Run) -> None:
    with pytest.raises(ValidationError, match=r"rank \d: ModuleNotFoundError: No module named 'no_such_backend'"):
        run(imports=["no_such_backend"])
    assert seconds_since_the_last_step(run.folder) < SECONDS_TO_AN_ERROR
    assert processes_naming(run.folder) == []


def test_a_rank_that_dies_is_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
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
