# SPDX-License-Identifier: BSD-3-Clause
"""Everything as planned passes; every single thing that is not fails the check that is named after it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from channel_tools.environments.oneccl_affinity import plan_oneccl_affinity
from channel_tools.ranks.services import ServiceCount
from channel_tools.system.kernel import Core
from channel_tools.validate.distributed.checks import DistributedResult, judge_distributed
from channel_tools.validate.model import MethodResult
from tests.unit.validate.distributed.fakes import EVENT, perfect_ranks, toy_options, toy_plan, write_libraries

Spoil = Callable[[DistributedResult], DistributedResult]

TOY_LIBRARY = "libtoy.so.1 is loaded from the environment alone"
MPI_LIBRARY = "libmpi.so.12 is loaded from the environment alone"
SITE_LIBRARY = "libsite.so* is the site's and is loaded"


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
