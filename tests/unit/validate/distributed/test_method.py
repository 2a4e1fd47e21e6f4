# SPDX-License-Identifier: BSD-3-Clause
"""The launcher is a script of the environment here; real ranks are in the integration tests."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import pytest

from channel_tools.ranks.hosts import Host, RankHosts
from channel_tools.system.errors import ConfigError, UsageError, ValidationError
from channel_tools.system.processes import Deadline
from channel_tools.system.progress import SilentProgress
from channel_tools.validate.distributed.method import DistributedMethod, check_devices, check_gpus, check_site
from channel_tools.validate.distributed.options import DistributedOptions, make_distributed_plan
from channel_tools.validate.model import MethodContext
from tests.unit.ranks.conftest import make_site
from tests.unit.validate.distributed.fakes import perfect_ranks, write_libraries
from tests.unit.validate.fakes import write_program

if TYPE_CHECKING:
    from pathlib import Path

    from channel_tools.validate.model import MethodResult

OPTIONS: dict[str, object] = {"backend": "toy", "launcher": "mpiexec", "environment": {"TOY_HOME": "{prefix}/share"}}
WRITE_RESULTS = """
    import json, os, pathlib, sys
    assert sys.argv[1:3] == ["-n", "2"], sys.argv
    assert sys.argv[-3].endswith("/bin/python"), sys.argv
    assert sys.argv[-2].endswith("/distributed_allreduce.py"), sys.argv
    assert os.environ["TOY_HOME"].endswith("/env/share"), os.environ
    assert os.environ["OMP_NUM_THREADS"] == "1"
    plan = pathlib.Path(sys.argv[-1])
    assert json.loads(plan.read_text())["backend"] == "toy"
    for rank in (0, 1):
        (plan.parent / f"rank-{rank}.json").write_text((plan.parent / f"canned-{rank}.json").read_text())
"""
SERVER = """
    import os, signal
    print("serves at nowhere as process", os.getpid(), flush=True)
    signal.pause()
"""
KILLED = """
    import pathlib, sys
    folder = pathlib.Path(sys.argv[-1]).parent
    for rank, process in enumerate((11, 12)):
        (folder / f"rank-{rank}.pid").write_text(str(process))
    print("=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES")
    print("=   PID 12 RUNNING AT host")
    print("=   EXIT CODE: 9")
    sys.exit(9)
"""


def run(folder: Path, code: str, options: dict[str, object] | None = None) -> MethodResult:
    prefix = folder / "env"
    write_program(prefix / "bin/mpiexec", code)
    context = MethodContext(
        stack="toy",
        prefix=prefix,
        variables={"PATH": str(prefix / "bin")},
        ranks=2,
        options=OPTIONS if options is None else options,
        folder=folder,
        deadline=Deadline.after(30.0),
        progress=SilentProgress(),
    )
    return DistributedMethod().run(context)


def test_ranks_are_started_by_the_environments_mpiexec(tmp_path: Path) -> None:
    libraries = write_libraries(tmp_path / "env")
    plan = make_distributed_plan(DistributedOptions(backend="toy"))
    for result in perfect_ranks(plan, libraries):
        (tmp_path / f"canned-{result.rank}.json").write_text(json.dumps(asdict(result)), encoding="utf-8")
    found = run(tmp_path, WRITE_RESULTS)
    assert [check.name for check in found.checks if not check.passed] == []
    assert found.details["launcher"] == "mpiexec"
    assert found.details["TOY_HOME"] == "{prefix}/share"


def test_services_run_before_and_beside_the_ranks(tmp_path: Path) -> None:
    libraries = write_libraries(tmp_path / "env")
    plan = make_distributed_plan(DistributedOptions(backend="toy"))
    for result in perfect_ranks(plan, libraries):
        (tmp_path / f"canned-{result.rank}.json").write_text(json.dumps(asdict(result)), encoding="utf-8")
    write_program(tmp_path / "env/bin/server", SERVER)
    service = {
        "command": ["server"],
        "ready_line": r"serves at (?P<place>\S+)",
        "rank_environment": {"SERVER": "{place}"},
        "carried_line": r"rank (?P<rank>\d+): carried",
    }
    code = WRITE_RESULTS + '\n    assert os.environ["SERVER"] == "nowhere"\n'
    found = run(tmp_path, code, {**OPTIONS, "services": [service]})
    assert [check.name for check in found.checks if not check.passed] == [
        "server carried every allreduce, by its own log"
    ]


def test_a_service_that_dies_ends_the_ranks_and_is_named(tmp_path: Path) -> None:
    write_program(tmp_path / "env/bin/server", SERVER)
    service = {"command": ["server"], "ready_line": r"process (?P<pid>\d+)", "rank_environment": {"SERVER": "{pid}"}}
    code = "import os, signal; os.kill(int(os.environ['SERVER']), signal.SIGKILL); signal.pause()"
    with pytest.raises(ValidationError, match="server ended while the ranks ran: signal SIGKILL"):
        run(tmp_path, code, {**OPTIONS, "services": [service]})


ON_HOSTS = """
import os, pathlib, sys
plan = pathlib.Path(sys.argv[1])
rank, size = os.environ["RANK"], os.environ["WORLD_SIZE"]
names = ("TOY_HOME", "TMPDIR", "GLOO_SOCKET_IFNAME", "MASTER_PORT")
seen = [size, *(os.environ.get(name, "any") for name in names)]
(plan.parent / f"seen-{rank}").write_text(" ".join(seen))
(plan.parent / f"rank-{rank}.json").write_text((plan.parent / f"canned-{rank}.json").read_text())
"""


def test_ranks_of_a_job_are_started_as_a_users_script_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site, folder = make_site(tmp_path / "site"), tmp_path / "run"
    folder.mkdir()
    worker = tmp_path / "worker.py"
    worker.write_text(ON_HOSTS, encoding="utf-8")
    monkeypatch.setattr("channel_tools.validate.distributed.method.WORKER", worker)
    prefix = site.folder / "env"
    for result in perfect_ranks(make_distributed_plan(DistributedOptions(backend="toy")), write_libraries(prefix)):
        (folder / f"canned-{result.rank}.json").write_text(json.dumps(asdict(result)), encoding="utf-8")
    context = MethodContext(
        stack="toy",
        prefix=prefix,
        variables={},
        ranks=2,
        options=OPTIONS,
        folder=folder,
        deadline=Deadline.after(30.0),
        progress=SilentProgress(),
        hosts=RankHosts(
            hosts=tuple(Host(name=name, ranks=1, is_local=name == "n1") for name in ("n1", "n2")),
            address="10.0.0.1",
            is_slurm=True,
            variables={**site.environ, "SLURM_JOB_ID": "20007", "SLURM_JOB_NODELIST": "n[1-2]"},
        ),
    )
    found = DistributedMethod().run(context)
    assert found.details["launcher"] == "srun"
    assert "srun --mpi=pmi2 --ntasks=2 --kill-on-bad-exit=1 --export=ALL " in (folder / "ranks.log").read_text()
    seen = f"2 {prefix / 'share'} {folder / 'tmp'} any 28007"  # no loopback: ranks of several hosts do not meet there
    assert [(folder / f"seen-{rank}").read_text() for rank in range(2)] == [seen, seen]


def test_a_rank_that_mpiexec_saw_die_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match=r"rank 1: ended by itself with exit status or signal 9"):
        run(tmp_path, KILLED)


def test_a_rank_of_another_shape_is_an_error(tmp_path: Path) -> None:
    for rank in (0, 1):
        (tmp_path / f"canned-{rank}.json").write_text("{}", encoding="utf-8")
    with pytest.raises(ValidationError, match=r"rank-0\.json: rank: Field required"):
        run(tmp_path, WRITE_RESULTS)


def test_a_need_that_is_not_met_starts_nothing(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="the variable TOY_DEVICE"):
        run(tmp_path, "raise SystemExit('started')", {**OPTIONS, "needs": ["variable:TOY_DEVICE"]})


def test_an_environment_without_mpiexec_says_so(tmp_path: Path) -> None:
    context = MethodContext(
        stack="toy",
        prefix=tmp_path / "env",
        variables={"PATH": str(tmp_path / "env/bin")},
        ranks=2,
        options=OPTIONS,
        folder=tmp_path,
        deadline=Deadline.after(30.0),
        progress=SilentProgress(),
    )
    with pytest.raises(ValidationError, match="has no mpiexec"):
        DistributedMethod().run(context)


def test_requests_that_cannot_be_run_are_refused() -> None:
    method = DistributedMethod()
    method.check(stack="toy", ranks=4, options=OPTIONS)
    with pytest.raises(UsageError, match="4 ranks: stack toy is validated with at most 2"):
        method.check(stack="toy", ranks=4, options={**OPTIONS, "max_ranks": 2})
    with pytest.raises(ConfigError, match="stack toy: validate: backend"):
        method.check(stack="toy", ranks=2, options={})


def test_nothing_is_asked_of_the_machine_without_needs(tmp_path: Path) -> None:
    check_devices("toy", (), root=tmp_path)
    check_site("toy", (), variables={})


def test_devices_that_are_there_are_enough(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvidia0").touch()
    (tmp_path / "dev/kfd").touch()
    (tmp_path / "sys/class/infiniband/mlx5_0").mkdir(parents=True)
    check_devices("toy", ("gpu", "amdgpu", "rdma"), root=tmp_path)


def test_each_rank_on_a_gpu_needs_one_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    check_gpus("toy", 4, root=tmp_path)  # `needs` says whether there must be one
    (tmp_path / "dev" / "nvidia0").touch()
    check_gpus("toy", 1, root=tmp_path)
    with pytest.raises(UsageError, match=r"^2 ranks: stack toy needs a GPU for each rank, and this machine has 1$"):
        check_gpus("toy", 2, root=tmp_path)


def test_devices_that_are_absent_are_named_in_one_error(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvidiactl").touch()
    (tmp_path / "sys/class/infiniband").mkdir(parents=True)
    with pytest.raises(ValidationError, match=r"this machine lacks: an NVIDIA GPU.*; an AMD GPU.*; an RDMA device"):
        check_devices("toy", ("rdma", "amdgpu", "gpu"), root=tmp_path)


def test_what_a_site_brings_is_looked_for_in_the_activated_environment(tmp_path: Path) -> None:
    program = tmp_path / "srun"
    program.write_text("#!/bin/sh\n", encoding="utf-8")
    program.chmod(0o755)
    variables = {"PATH": str(tmp_path), "XILINX_XRT": "somewhere"}
    check_site("toy", ("library:libc.so.6", "program:srun", "variable:XILINX_XRT"), variables=variables)


@pytest.mark.parametrize(
    ("need", "message"),
    [
        ("library:libxrt_absent.so.2", r"the library libxrt_absent\.so\.2 \(libxrt_absent\.so\.2: cannot open"),
        ("program:no-such-launcher", r"the program no-such-launcher \(not on the PATH"),
        ("variable:XILINX_XRT", r"the variable XILINX_XRT \(not set"),
    ],
    ids=["library", "program", "variable"],
)
def test_what_a_site_does_not_bring_is_named(tmp_path: Path, need: str, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        check_site("toy", (need,), variables={"PATH": str(tmp_path)})
