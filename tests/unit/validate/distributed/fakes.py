# SPDX-License-Identifier: BSD-3-Clause
"""What ranks of the method ``distributed`` would have written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from channel_tools.validate.cases import Case, Speed
from channel_tools.validate.distributed.method import DistributedOptions, DistributedPlan, DistributedResult
from channel_tools.validate.ranks import RankCase, RankPath, RankPaths, RankSpeed

if TYPE_CHECKING:
    from pathlib import Path

EVENT = "toy::allreduce"
LIBRARIES = ("libtoy.so.1", "libmpi.so.12")


def toy_options() -> DistributedOptions:
    return DistributedOptions(backend="toy", event=EVENT, libraries=LIBRARIES, site_libraries=("libsite.so*",))


def toy_plan(options: DistributedOptions | None = None) -> DistributedPlan:
    """A case of each kind and one measured size."""
    return DistributedPlan(
        options=options or toy_options(),
        cases=(
            Case(name="floats", dtype="float32", data="positive", numel=1000),
            Case(name="integers", dtype="int32", data="range", numel=257, calls=4, is_async=True),
            Case(name="half", dtype="bfloat16", data="small", numel=10, op="MAX"),
        ),
        speeds=(Speed(dtype="int32", numel=1 << 20, warmups=1, repetitions=3),),
    )


def write_libraries(prefix: Path) -> tuple[str, ...]:
    """An environment whose libmpi is a link to another name, as MPICH's; what ranks have mapped of it."""
    (prefix / "lib").mkdir(parents=True)
    for name in ("libtoy.so.1", "libmpich.so.12.2.1"):
        (prefix / "lib" / name).write_bytes(b"")
    (prefix / "lib" / "libmpi.so.12").symlink_to("libmpich.so.12.2.1")
    lib = prefix.resolve() / "lib"
    return (str(lib / "libmpich.so.12.2.1"), str(lib / "libtoy.so.1"), "/lib/libc.so.6", "/site/libsite.so.3")


def perfect_ranks(plan: DistributedPlan, libraries: tuple[str, ...], *, ranks: int = 2) -> list[DistributedResult]:
    return [
        DistributedResult(
            rank=rank,
            world_size=ranks,
            host="node7",
            python="3.11.2",
            torch="2.13.0",
            backend="toy",
            carrier="torch.distributed.ProcessGroupToy",
            carrier_name="TOY",
            events={EVENT: plan.calls, "c10d::allreduce_": plan.calls},
            counted=plan.calls if plan.options.counter else None,
            libraries=libraries,
            cpus=(0, 1, 2, 3),
            thread_cpus=((0, 1, 2, 3),),
            cases=tuple(_perfect_case(case) for case in plan.cases),
            speeds=tuple(_perfect_speed(speed, rank) for speed in plan.speeds),
        )
        for rank in range(ranks)
    ]


def _perfect_case(case: Case) -> RankCase:
    error = 0.0 if case.measure == "exact" else 5e-8
    return RankCase(name=case.name, seconds=0.01, max_error=error, mismatches=0)


def _perfect_speed(speed: Speed, rank: int) -> RankSpeed[RankPath]:
    slow = 0.002 if rank else 0.001
    paths = RankPaths(
        default=RankPath(seconds=(slow, 0.001, 0.009), mismatches=0),
        plain=RankPath(seconds=(0.004, 0.004, 0.004), mismatches=0),
    )
    return RankSpeed(dtype=speed.dtype, numel=speed.numel, paths=paths)
