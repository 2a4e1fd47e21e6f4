# SPDX-License-Identifier: BSD-3-Clause
"""The launcher is a script of the environment here; real ranks are in the integration tests."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from channel_tools.environments.oneccl_affinity import plan_oneccl_affinity
from channel_tools.matrix import load_tree
from channel_tools.ranks.hosts import Host, RankHosts
from channel_tools.ranks.services import ServiceCount, ServiceOptions, filled
from channel_tools.system.errors import ConfigError, UsageError, ValidationError
from channel_tools.system.kernel import Core
from channel_tools.system.processes import Deadline
from channel_tools.system.progress import SilentProgress
from channel_tools.system.settings import Tree
from channel_tools.validate.distributed.method import (
    DistributedMethod,
    DistributedOptions,
    DistributedResult,
    check_devices,
    check_gpus,
    check_site,
    judge_distributed,
    make_distributed_plan,
    read_distributed_options,
)
from channel_tools.validate.model import MethodContext, MethodResult
from channel_tools.validate.nccl.method import read_nccl_options
from channel_tools.validate.switchml.method import read_options
from tests.unit.ranks.conftest import make_site
from tests.unit.validate.distributed.fakes import EVENT, perfect_ranks, toy_options, toy_plan, write_libraries
from tests.unit.validate.fakes import write_program

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


Spoil = Callable[[DistributedResult], DistributedResult]

TOY_LIBRARY = "libtoy.so.1 is loaded from the environment alone"
MPI_LIBRARY = "libmpi.so.12 is loaded from the environment alone"
SITE_LIBRARY = "libsite.so* is the site's and is loaded"


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


def judged(folder: Path, spoil: Spoil = lambda result: result) -> MethodResult:
    """The judgement on a run whose second rank was spoilt."""
    libraries = write_libraries(folder / "env")
    first, second = perfect_ranks(toy_plan(), libraries)
    return judge_distributed(
        toy_plan(), [first, spoil(second)], prefix=folder / "env", launcher=Path("/site/bin/mpiexec")
    )


def failed(result: MethodResult) -> list[str]:
    return [check.name for check in result.checks if not check.passed]


def case_changed(index: int, **changes: object) -> Spoil:
    def spoil(result: DistributedResult) -> DistributedResult:
        cases = list(result.cases)
        cases[index] = replace(cases[index], **changes)  # type: ignore[arg-type]
        return replace(result, cases=tuple(cases))

    return spoil


def path_changed(name: str, mismatches: int) -> Spoil:
    def spoil(result: DistributedResult) -> DistributedResult:
        speed = result.speeds[0]
        path = replace(getattr(speed.paths, name), mismatches=mismatches)
        return replace(result, speeds=(replace(speed, paths=replace(speed.paths, **{name: path})),))

    return spoil


def without(name: str) -> Spoil:
    return lambda result: replace(result, libraries=tuple(one for one in result.libraries if name not in one))


def loaded(*paths: str) -> Spoil:
    return lambda result: replace(result, libraries=(*result.libraries, *paths))


def test_a_run_as_planned_passes(tmp_path: Path) -> None:
    result = judged(tmp_path)
    assert failed(result) == []
    assert all(case.passed and case.route == "toy" for case in result.cases)
    assert result.details["carrier"] == "torch.distributed.ProcessGroupToy"
    assert [(row.name, row.jobs, row.elements) for row in result.transports] == [
        ("toy", 6 + 4, 1000 + 4 * 257 + 10 + 4 * (1 << 20)),
        ("gloo (baseline)", 4, 4 * (1 << 20)),
    ]


@pytest.mark.parametrize(
    ("cpus", "thread_cpus", "found"),
    [
        pytest.param((2,), ((2,), (3,)), "workers on 1,3", id="as-planned"),
        pytest.param((3,), ((3,), (3,)), "rank 1 runs on (3,), not on (2,)", id="rank-elsewhere"),
        pytest.param((2,), ((2,), (2,)), "rank 1 has no worker bound to 3", id="worker-elsewhere"),
        pytest.param((2,), ((2, 3),), "rank 1 has no worker bound to 3", id="worker-not-bound"),
    ],
)
def test_ranks_and_workers_have_to_run_where_they_were_put(
    tmp_path: Path, cpus: tuple[int, ...], thread_cpus: tuple[tuple[int, ...], ...], found: str
) -> None:
    plan = toy_plan(replace(toy_options(), launcher="mpiexec"))
    first, second = perfect_ranks(plan, write_libraries(tmp_path / "env"))
    ranks = [
        replace(first, cpus=(0,), thread_cpus=((1,), (0,))),
        replace(second, cpus=cpus, thread_cpus=thread_cpus),
    ]
    affinity = plan_oneccl_affinity([Core(cpus=(number,), node=0) for number in range(4)], 2)
    result = judge_distributed(
        plan, ranks, prefix=tmp_path / "env", launcher=Path("/site/bin/mpiexec"), affinity=affinity
    )
    (check,) = [check for check in result.checks if check.name.startswith("ranks and oneCCL's workers")]
    assert (check.found, check.passed) == (found, found == check.expected)


def test_bandwidth_is_the_median_call_of_the_slowest_rank(tmp_path: Path) -> None:
    (row,) = judged(tmp_path).bandwidth
    # the slowest rank's calls took 2, 1 and 9 ms
    assert row.transport.median == pytest.approx(4 * (1 << 20) / 1e6 / 0.002)
    assert row.baseline.median == pytest.approx(4 * (1 << 20) / 1e6 / 0.004)


@pytest.mark.parametrize(
    ("spoil", "checks"),
    [
        pytest.param(lambda result: replace(result, world_size=1), ["all ranks are in one group"], id="alone"),
        pytest.param(
            lambda result: replace(result, backend="gloo"), ["the process group is the stack's own"], id="name"
        ),
        pytest.param(
            lambda result: replace(result, carrier_name="gloo"), ["the process group is the stack's own"], id="carrier"
        ),
        pytest.param(
            lambda result: replace(result, events={EVENT: 5, "gloo:all_reduce": 1}),
            [f"the profiler saw every allreduce of the cases as {EVENT}"],
            id="one-call-by-another",
        ),
        pytest.param(without("libtoy"), [TOY_LIBRARY], id="library-absent"),
        pytest.param(without("libmpich"), [MPI_LIBRARY], id="link-followed"),
        pytest.param(loaded("/usr/lib/libmpi.so.40.30"), [MPI_LIBRARY], id="second-mpi"),
        pytest.param(loaded("/usr/lib/libmpich.so.12"), [MPI_LIBRARY], id="second-mpich"),
        pytest.param(without("libsite"), [SITE_LIBRARY], id="site-library-absent"),
        pytest.param(
            case_changed(0, max_error=2e-6),
            ["float32 sums are within 1e-06 of float64's", "each case was right on every rank"],
            id="float-error",
        ),
        pytest.param(
            case_changed(1, mismatches=3),
            ["whole numbers are reduced exactly", "each case was right on every rank"],
            id="wrong-integers",
        ),
        pytest.param(path_changed("default", 1), ["measured calls of toy gave right results"], id="measured"),
        pytest.param(
            path_changed("plain", 1), ["measured calls of the baseline, gloo, gave right results"], id="baseline"
        ),
    ],
)
def test_each_fault_fails_its_check(tmp_path: Path, spoil: Spoil, checks: list[str]) -> None:
    assert failed(judged(tmp_path, spoil)) == checks


@pytest.mark.parametrize(
    ("lines", "bytes_per_line", "passed"),
    [
        pytest.param({"0": 10, "1": 10}, 0, True, id="a line for each allreduce"),
        pytest.param({"0": 10, "1": 9}, 0, False, id="one by another way"),
        pytest.param({"0": 10}, 0, False, id="a rank unknown to it"),
        pytest.param({}, 0, False, id="none"),
        pytest.param({"0": 6 + 4 * 1024, "1": 7 + 4 * 1024}, 4096, True, id="a line for each message"),
        pytest.param({"0": 6 + 4 * 1024, "1": 5 + 4 * 1024}, 4096, False, id="a message by another way"),
    ],
)
def test_a_service_has_to_have_carried_every_allreduce(
    tmp_path: Path, *, lines: dict[str, int], bytes_per_line: int, passed: bool
) -> None:
    count = ServiceCount(name="server", lines=lines, bytes_per_line=bytes_per_line)
    results = perfect_ranks(toy_plan(), write_libraries(tmp_path / "env"))
    found = judge_distributed(toy_plan(), results, [count], prefix=tmp_path / "env", launcher=Path("/site/bin/mpiexec"))
    check = next(check for check in found.checks if check.name == "server carried every allreduce, by its own log")
    assert check.passed is passed
    assert check.found == f"rank 0: {lines.get('0', 0)}, rank 1: {lines.get('1', 0)}"
    assert failed(found) == ([] if passed else [check.name])


def test_a_site_library_of_the_environment_is_not_the_sites(tmp_path: Path) -> None:
    own = str((tmp_path / "env").resolve() / "lib" / "libsite.so.3")
    assert failed(judged(tmp_path, loaded(own))) == [SITE_LIBRARY]


def test_a_launcher_from_elsewhere_fails_where_the_site_brings_nothing(tmp_path: Path) -> None:
    plan = toy_plan(replace(toy_options(), site_libraries=()))
    results = perfect_ranks(plan, write_libraries(tmp_path / "env"))
    elsewhere = judge_distributed(plan, results, prefix=tmp_path / "env", launcher=Path("/usr/bin/mpiexec"))
    assert failed(elsewhere) == ["the launcher is the environment's"]
    own = judge_distributed(
        plan, results, prefix=tmp_path / "env", launcher=(tmp_path / "env").resolve() / "bin/mpiexec"
    )
    assert failed(own) == []


def test_a_backend_is_enough() -> None:
    options = read_distributed_options("toy", {"backend": "mpi"})
    assert options == DistributedOptions(backend="mpi")
    assert (options.launcher, options.device, options.ddp, options.max_ranks) == ("torchrun", "cpu", True, 32)


def test_every_stack_of_this_tree_is_understood() -> None:
    read = {"distributed": read_distributed_options, "nccl": read_nccl_options, "switchml": read_options}
    loaded = load_tree(Tree(root=Path(__file__).parents[4]))
    understood = [
        read[str(stack.validation["method"])](
            stack.name, {name: value for name, value in stack.validation.items() if name != "method"}
        )
        for stack in loaded.stacks.values()
        if stack.validation
    ]
    assert len(understood) > 2


def test_lists_and_mappings_of_the_file_are_taken() -> None:
    options = read_distributed_options(
        "toy",
        {
            "backend": "ccl",
            "launcher": "mpiexec",
            "imports": ["oneccl_bindings_for_pytorch"],
            "environment": {"FI_PROVIDER": "tcp"},
            "libraries": ["libccl.so.1"],
            "needs": ["gpu", "library:libxrt_core.so.2"],
            "dtypes": ["float32", "int32"],
        },
    )
    assert options.imports == ("oneccl_bindings_for_pytorch",)
    assert options.environment == {"FI_PROVIDER": "tcp"}
    assert options.dtypes == ("float32", "int32")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        pytest.param({}, "backend: ", id="no-backend"),
        pytest.param({"backend": "C++"}, "backend: String should match", id="backend"),
        pytest.param({"backend": "mpi", "launcher": "rsh"}, "launcher: Input should be 'mpiexec' or", id="launcher"),
        pytest.param({"backend": "mpi", "launchre": "torchrun"}, "launchre: ", id="unknown"),
        pytest.param({"backend": "mpi", "needs": ["fpga"]}, "needs.0: String should match", id="need"),
        pytest.param({"backend": "mpi", "libraries": ["lib/libmpi.so"]}, "libraries.0: ", id="path"),
        pytest.param({"backend": "mpi", "dtypes": ["float8"]}, "dtypes.0: Input should be", id="dtype"),
        pytest.param({"backend": "mpi", "max_ranks": 64}, "max_ranks: ", id="ranks"),
        pytest.param({"backend": "mpi", "environment": {"A B": "1"}}, "environment.A B.", id="variable"),
    ],
)
def test_what_cannot_be_used_is_named(values: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match="stack toy: validate: ") as caught:
        read_distributed_options("toy", values)
    assert message in str(caught.value)
    assert caught.value.hint is not None
    assert caught.value.hint.startswith("the method distributed has the keys: backend, launcher,")


GOOD: dict[str, object] = {"command": ["server", "--port", "{port}"], "ready_port": "{port}"}


def read(**changes: object) -> ServiceOptions:
    values = {"backend": "toy", "services": [{**GOOD, **changes}]}
    (service,) = read_distributed_options("toy", values).services
    return service


def test_a_command_and_a_sign_of_readiness_are_enough() -> None:
    service = read(command=["sbin/server"])
    assert (service.name, service.ready_timeout_s, service.carried_line) == ("server", 60.0, None)


def test_placeholders_are_filled() -> None:
    assert filled("{prefix}/{port}:{port}", {"prefix": "/env", "port": "7"}) == "/env/7:7"
    service = read(ready_port="", ready_line=r"at (?P<where>\S+)", rank_environment={"WHERE": "{where}"})
    assert service.rank_environment == {"WHERE": "{where}"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        pytest.param({"command": []}, "services.0.command: ", id="no command"),
        pytest.param({"ready_port": ""}, "one of ready_line and ready_port", id="no readiness"),
        pytest.param({"ready_line": "ready"}, "one of ready_line and ready_port", id="two readinesses"),
        pytest.param({"ready_port": "http"}, "services.0.ready_port: String should match", id="port"),
        pytest.param({"ready_port": "", "ready_line": "("}, "services.0.ready_line: ", id="expression"),
        pytest.param({"carried_line": "call"}, "carried_line needs a group (?P<rank>...)", id="no rank"),
        pytest.param({"carried_bytes": 64}, "carried_bytes needs carried_line", id="bytes of nothing"),
        pytest.param(
            {"command": ["server", "{rank}"]}, "{rank} is not a known placeholder; known are port, pre", id="word"
        ),
        pytest.param({"rank_environment": {"A": "{a}"}}, "{a} is not a known placeholder", id="variable"),
        pytest.param({"wait": 1}, "services.0.wait: ", id="unknown"),
    ],
)
def test_what_a_service_cannot_use_is_named(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match="stack toy: validate: ") as caught:
        read(**changes)
    assert message in str(caught.value)
