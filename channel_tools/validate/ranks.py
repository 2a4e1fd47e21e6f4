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
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from pydantic import TypeAdapter
from pydantic import ValidationError as PydanticValidationError

from channel_tools.system.beneath import Beneath
from channel_tools.system.entries import read_at_most
from channel_tools.system.errors import ChannelToolsError, ValidationError
from channel_tools.system.files import read_tail
from channel_tools.system.processes import Deadline, Program, running_program, ssh_command, wait_for_any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

WORKERS = Path(__file__).parent / "workers"
DIED_UNDER_TORCHRUN = re.compile(r"failed \(exitcode: (-?\d+)\) local_rank: (\d+)")
_DIED_UNDER_HYDRA = re.compile(r"PID (\d+) RUNNING AT .*\n=\s*EXIT CODE: (\d+)")
_DIED_UNDER_SRUN = re.compile(r"^srun: error: \S+: task (\d+): (.+)$", re.MULTILINE)
_LOOPBACK = "lo"
_RESULT_BYTES = 64 << 20
_WORDS_BYTES = 64 << 10
T = TypeVar("T")


class Companion(Protocol):
    """A program that has to run as long as the ranks do."""

    @property
    def program(self) -> Program:
        """The running program."""

    def failure(self) -> ValidationError:
        """The error if it ended by itself."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RankHosts:
    """The hosts of a scheduler's job, on which ranks run instead of on this host's loopback network.

    This process runs on the first of them, which the others reach at ``address``. ``starter`` is the command that
    starts a script as the ranks, ``launcher`` its program. ``variables`` are the launcher's: the user's, and the
    scheduler's for this job. ``is_slurm`` if ``srun`` reaches the others, else ssh does.
    """

    names: tuple[str, ...]
    ranks_per_host: int
    address: str
    starter: tuple[str, ...]
    launcher: str
    variables: Mapping[str, str]
    is_slurm: bool = False

    def shell_command(self, host: str, script: str) -> tuple[str, ...]:
        """The command that runs a line of shell on one of the hosts, in addition to the ranks."""
        if not self.is_slurm:
            return (*ssh_command(host), script)
        step = ("--overlap", "--nodes=1", "--ntasks=1", "--cpus-per-task=1", f"--nodelist={host}", "--input=none")
        return ("srun", *step, "sh", "-c", script)

    def command(self, prefix: Path, ranks: int) -> tuple[str, ...]:
        """The command up to the script, for ranks in this environment."""
        return (*self.starter, "--prefix", str(prefix), "--ranks", str(ranks))


@dataclass(frozen=True, kw_only=True, slots=True)
class RankJob:
    """A worker script and how to start it: ``launcher`` is the command up to the program that each rank runs."""

    name: str
    launcher: tuple[str | Path, ...]
    worker: Path
    variables: Mapping[str, str]
    ranks: int
    document: Mapping[str, object]
    """The plan, as the worker reads it."""
    folder: Path

    @property
    def files(self) -> Beneath:
        """The folder, for what the ranks leave there."""
        return Beneath(root=self.folder)


def torchrun(prefix: Path, ranks: int) -> tuple[str | Path, ...]:
    """The environment's torchrun, which starts the program with its own Python."""
    return (
        prefix / "bin" / "python", "-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1",
        f"--nproc-per-node={ranks}",
    )  # fmt: skip


def forked_ranks(prefix: Path, ranks: int, *, trains: bool) -> tuple[str | Path, ...]:
    """Starts ranks on this host like torchrun, but in one process that imports PyTorch once for all.

    If a rank ``trains``, also imports the modules of DistributedDataParallel, which takes as long again.
    """
    module = "torch._dynamo" if trains else "torch.distributed"
    return (prefix / "bin" / "python", WORKERS / "fork_ranks.py", str(ranks), module)


def rank_variables() -> dict[str, str]:
    """The ranks' variables for all methods."""
    return {
        # otherwise gloo looks up the host's own name, which a laptop or container may not resolve
        "GLOO_SOCKET_IFNAME": _LOOPBACK,
        # ranks share the cores; more threads than cores only slow each other down
        "OMP_NUM_THREADS": "1",
        # the worker scripts are in this package, which they must not change
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def without_loopback(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables without those that apply only to ranks of one host."""
    return {name: value for name, value in variables.items() if value != _LOOPBACK}


def run_job(job: RankJob, *, deadline: Deadline, companions: Sequence[Companion] = ()) -> None:
    """Run the job to its end.

    Raises ValidationError within seconds if a rank or the launcher fails or a companion ends, and if ``deadline``
    passes; the message says which rank, why, and where the others were.
    """
    plan_file = job.folder / "plan.json"
    plan_file.write_text(json.dumps(job.document, indent=1), encoding="utf-8")
    temporary = job.folder / "tmp"  # for launchers' own folders, which they leave behind when killed
    temporary.mkdir()
    env = {**job.variables, "TMPDIR": str(temporary)}
    command = [*job.launcher, job.worker, plan_file]
    with running_program(job.name, command, env=env, cwd=job.folder, log=job.folder / "ranks.log") as launcher:
        ready = wait_for_any([launcher.descriptor, *(one.program.descriptor for one in companions)], deadline)
        for companion in companions:
            if companion.program.has_ended():
                raise companion.failure()
        if not ready:
            raise ValidationError(
                f"the ranks did not finish within {deadline.limit_s:g} s: {_whereabouts(job)}",
                hint=f"give more time with --timeout; their log is {launcher.log}",
            )
        if launcher.process.wait() != 0:
            raise _rank_failure(launcher, job)


def read_results(job: RankJob, kind: type[T], *, hint: str) -> tuple[T, ...]:
    """The ranks' results, by rank. Raises ValidationError with ``hint`` if one has another shape."""
    return tuple(_read_result(job, f"rank-{rank}.json", kind, hint) for rank in range(job.ranks))


def _rank_failure(launcher: Program, job: RankJob) -> ValidationError:
    """The error saying which rank failed and why, without the ranks that the launcher ended because of it."""
    hint = f"the ranks' log is {launcher.log}"
    errors = {rank: text for rank in range(job.ranks) if (text := _words(job, f"rank-{rank}.error")) is not None}
    said = [f"rank {rank}: {text}" for rank, text in errors.items()]
    died = _dead_rank(read_tail(launcher.log), job)
    if died and died[0] not in errors:
        said.insert(0, f"rank {died[0]}: ended by itself with {died[1]}")
    if said:
        return ValidationError("\n".join([*said, f"the ranks were at: {_whereabouts(job)}"]), hint=hint)
    return ValidationError(f"{job.name}: {launcher.end_in_words()}\n{launcher.tail()}", hint=hint)


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
