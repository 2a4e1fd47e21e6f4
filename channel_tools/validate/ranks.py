# SPDX-License-Identifier: BSD-3-Clause
"""Runs a worker script as ranks under a launcher, and reads their results.

The folder of a job is theirs, too: what they left there is opened once, beneath it, and read up to a bound.

torchrun gives every rank its own session, which a signal to torchrun's group does not reach: launchers end their ranks
on SIGTERM, and each rank has asked the kernel to end it with the launcher.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from pydantic import TypeAdapter
from pydantic import ValidationError as PydanticValidationError

from channel_tools.ranks.launchers import DIED_UNDER_TORCHRUN
from channel_tools.ranks.plan import find_placement, plan_ranks, rank_variables, without_loopback
from channel_tools.ranks.run import check_plan_reachable, running_ranks
from channel_tools.system.beneath import Beneath
from channel_tools.system.errors import ChannelToolsError, ValidationError
from channel_tools.system.files import read_at_most, read_tail
from channel_tools.system.processes import last_lines

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from channel_tools.ranks.hosts import RankHosts
    from channel_tools.ranks.plan import RankPlan
    from channel_tools.ranks.run import Companion
    from channel_tools.system.processes import Deadline
    from channel_tools.validate.model import MethodContext, ValidationMethod

_DOCUMENT, _TEMPORARY = "plan.json", "tmp"
WORKERS = Path(__file__).parent / "workers"
_DIED_UNDER_HYDRA = re.compile(r"PID (\d+) RUNNING AT .*\n=\s*EXIT CODE: (\d+)")
_DIED_UNDER_SRUN = re.compile(r"^srun: error: \S+: task (\d+): (.+)$", re.MULTILINE)
_RESULT_BYTES = 64 << 20
_WORDS_BYTES = 64 << 10
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class RankJob:
    """A plan whose ranks run ``rank_words`` in ``folder``; ``document`` is what the worker script reads."""

    name: str
    """The launcher's name in messages."""
    plan: RankPlan
    ranks: int
    document: Mapping[str, object]
    folder: Path

    @property
    def files(self) -> Beneath:
        """The folder, for what the ranks leave there."""
        return Beneath(root=self.folder)


def rank_words(worker: Path, folder: Path) -> tuple[str, ...]:
    """The words of the script that ranks run: the worker, and the file of its document."""
    return (str(worker), str(folder / _DOCUMENT))


def worker_variables(folder: Path) -> dict[str, str]:
    """The variables of ranks for all methods, whose job runs in ``folder``."""
    return {
        **rank_variables(),
        # the worker scripts are in this package, which they must not change
        "PYTHONDONTWRITEBYTECODE": "1",
        # for launchers' own folders, which they leave behind when killed
        "TMPDIR": str(folder / _TEMPORARY),
    }


def plan_on_hosts(
    method: ValidationMethod, context: MethodContext, hosts: RankHosts, *, words: Sequence[str], own: Mapping[str, str]
) -> RankPlan:
    """The plan for the hosts of a job: as for a user's script, with the method's ``own`` variables as the user's.

    Raises as find_placement, start_settings, plan_ranks and check_plan_reachable do.
    """
    environ = {**hosts.variables, **without_loopback({**worker_variables(context.folder), **own})}
    placement = find_placement(context.prefix, context.ranks, hosts=hosts.hosts, are_named=False, environ=environ)
    settings = method.start_settings(placement, stack=context.stack, options=context.options)
    plan = plan_ranks(placement, settings, stack=context.stack, words=words, folder=context.folder)
    check_plan_reachable(plan)
    return plan


def run_job(job: RankJob, *, deadline: Deadline, companions: Sequence[Companion] = ()) -> None:
    """Run the job to its end.

    Raises ValidationError within seconds if a rank or the launcher fails or a companion ends, and if ``deadline``
    passes; the message says which rank, why, and where the others were.
    """
    (job.folder / _DOCUMENT).write_text(json.dumps(job.document, indent=1), encoding="utf-8")
    log = job.folder / "ranks.log"
    log.write_text("".join(f"{line}\n" for line in job.plan.lines()), encoding="utf-8")
    (job.folder / _TEMPORARY).mkdir()
    with running_ranks(job.plan, log=log) as running:
        code = running.wait(companions, deadline)
        for companion in companions:
            if companion.program.has_ended():
                raise companion.failure()
        if code is None:
            raise ValidationError(
                f"the ranks did not finish within {deadline.limit_s:g} s: {_whereabouts(job)}",
                hint=f"give more time with --timeout; their log is {log}",
            )
        if code:
            raise _rank_failure(job, log, code)


def read_results(job: RankJob, kind: type[T], *, hint: str) -> tuple[T, ...]:
    """The ranks' results, by rank. Raises ValidationError with ``hint`` if one has another shape."""
    return tuple(_read_result(job, f"rank-{rank}.json", kind, hint) for rank in range(job.ranks))


def _rank_failure(job: RankJob, log: Path, code: int) -> ValidationError:
    """The error saying which rank failed and why, without the ranks that the launcher ended because of it."""
    hint = f"the ranks' log is {log}"
    errors = {rank: text for rank in range(job.ranks) if (text := _words(job, f"rank-{rank}.error")) is not None}
    reports = [f"rank {rank}: {text}" for rank, text in errors.items()]
    died = _dead_rank(read_tail(log), job)
    if died and died[0] not in errors:
        reports.insert(0, f"rank {died[0]}: ended by itself with {died[1]}")
    if reports:
        return ValidationError("\n".join([*reports, f"the ranks were at: {_whereabouts(job)}"]), hint=hint)
    return ValidationError(f"{job.name}: exit status {code}\n{last_lines(read_tail(log))}", hint=hint)


def _dead_rank(log: str, job: RankJob) -> tuple[int, str] | None:
    """The rank that ended and how, by the launcher's log."""
    if by_torchrun := DIED_UNDER_TORCHRUN.search(log):
        return int(by_torchrun[2]), f"exit status {by_torchrun[1]} (negative: a signal)"
    by_srun = _DIED_UNDER_SRUN.search(log)
    if (
        by_srun and _words(job, f"rank-{by_srun[1]}.pid") is not None
    ):  # otherwise it did not start, and the log says why
        return int(by_srun[1]), by_srun[2]
    if by_hydra := _DIED_UNDER_HYDRA.search(log):
        for rank in range(job.ranks):
            if _words(job, f"rank-{rank}.pid") == by_hydra[1]:
                return rank, f"exit status or signal {by_hydra[2]}"
    return None


def _whereabouts(job: RankJob) -> str:
    return ", ".join(f"rank {rank}: {_words(job, f'rank-{rank}.at') or 'setting up'}" for rank in range(job.ranks))


def _words(job: RankJob, name: str) -> str | None:
    """What a rank left in a file, up to _WORDS_BYTES, or what is wrong with the file; None if there is none."""
    try:
        with job.files.opened(name) as stream:
            return read_at_most(stream, _WORDS_BYTES).decode(errors="replace")
    except FileNotFoundError:
        return None
    except ChannelToolsError as err:
        return str(err)


def _read_result(job: RankJob, name: str, kind: type[T], hint: str) -> T:
    path = job.folder / name
    try:
        return TypeAdapter(kind).validate_json(job.files.read(name, limit_bytes=_RESULT_BYTES))
    except FileNotFoundError:
        raise ValidationError(f"{name}: the rank ended without a result", hint=f"see the log in {job.folder}") from None
    except ChannelToolsError as err:
        raise ValidationError(str(err), hint=hint) from None
    except PydanticValidationError as err:
        fault = err.errors()[0]
        where = ".".join(map(str, fault["loc"]))
        message = f"{path}: {where}: {fault['msg']}, found {fault['input']!r}"
        raise ValidationError(message, hint=hint) from None


@dataclass(frozen=True, kw_only=True, slots=True)
class RankCase:
    """One case as seen by one rank."""

    name: str
    seconds: float
    max_error: float
    mismatches: int


@dataclass(frozen=True, kw_only=True, slots=True)
class RankPath:
    """One path (the stack's, plain gloo) of a measured size on one rank; seconds per measured call."""

    seconds: tuple[float, ...]
    mismatches: int


P_co = TypeVar("P_co", bound=RankPath, covariant=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class RankPaths(Generic[P_co]):
    """Both ways."""

    default: P_co
    plain: P_co


@dataclass(frozen=True, kw_only=True, slots=True)
class RankSpeed(Generic[P_co]):
    """One measured size on one rank."""

    dtype: str
    numel: int
    paths: RankPaths[P_co]


@dataclass(frozen=True, kw_only=True, slots=True)
class RankFacts:
    """A rank's data about itself; ``host`` is the scheduler's name of its node, else its machine's name."""

    rank: int
    world_size: int
    host: str
    python: str
    torch: str
