# SPDX-License-Identifier: BSD-3-Clause
"""Runs the ranks under torchrun beside the switch, and reads what each of them wrote.

torchrun gives every rank a session of its own, which a signal to torchrun's group does not reach: torchrun ends its
ranks on SIGTERM, and each rank asked the kernel to end it with torchrun.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import TypeAdapter
from pydantic import ValidationError as PydanticValidationError

from channel_tools.errors import ValidationError
from channel_tools.validate.processes import Deadline, Program, running_program, wait_for_any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from channel_tools.validate.switch import RunningSwitch

WORKER = Path(__file__).parent / "workers" / "switchml_allreduce.py"
_FAILED_RANK = re.compile(r"failed \(exitcode: (-?\d+)\) local_rank: (\d+)")


@dataclass(frozen=True, kw_only=True, slots=True)
class RankCounts:
    """Growth of the plugin's counters: jobs and elements by dtype, fallbacks by reason; zeros left out."""

    jobs: dict[str, int]
    elements: dict[str, int]
    fallbacks: dict[str, int]
    failed_jobs: int


@dataclass(frozen=True, kw_only=True, slots=True)
class RankCase:
    """One case as one rank saw it."""

    name: str
    seconds: float
    max_error: float
    mismatches: int
    counts: RankCounts


@dataclass(frozen=True, kw_only=True, slots=True)
class RankPath:
    """One way (default group, plain gloo group) of a measured size on one rank; seconds per measured call."""

    seconds: tuple[float, ...]
    counts: RankCounts
    mismatches: int


@dataclass(frozen=True, kw_only=True, slots=True)
class RankPaths:
    """Both ways."""

    default: RankPath
    plain: RankPath


@dataclass(frozen=True, kw_only=True, slots=True)
class RankSpeed:
    """One measured size on one rank."""

    dtype: str
    numel: int
    paths: RankPaths


@dataclass(frozen=True, kw_only=True, slots=True)
class PluginLibrary:
    """The transport library that the plugin loaded."""

    path: str
    version: str
    transport: str


@dataclass(frozen=True, kw_only=True, slots=True)
class DelegatedTotals:
    """Completed jobs of one dtype."""

    jobs: int
    elements: int
    bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class PluginStats:
    """The plugin's own report at the end of a rank."""

    active: bool
    version: str
    library: PluginLibrary | None
    delegated: dict[str, DelegatedTotals]
    fallbacks: dict[str, int]
    failed_jobs: int


@dataclass(frozen=True, kw_only=True, slots=True)
class RankResult:
    """Everything that one rank wrote."""

    rank: int
    world_size: int
    python: str
    torch: str
    cases: tuple[RankCase, ...]
    speeds: tuple[RankSpeed, ...]
    stats: PluginStats


def run_ranks(
    *,
    prefix: Path,
    variables: Mapping[str, str],
    ranks: int,
    document: Mapping[str, object],
    folder: Path,
    switch: RunningSwitch,
    deadline: Deadline,
) -> tuple[RankResult, ...]:
    """Run the worker script as ``ranks`` processes and return their results by rank.

    Raises ValidationError within seconds when a rank or torchrun fails or the switch ends, and when ``deadline``
    passes; the message says which rank, why, and where the others were.
    """
    plan_file = folder / "plan.json"
    plan_file.write_text(json.dumps(document, indent=1), encoding="utf-8")
    command: list[str | Path] = [
        prefix / "bin" / "python", "-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1",
        f"--nproc-per-node={ranks}", WORKER, plan_file,
    ]  # fmt: skip
    temporary = folder / "tmp"  # torchrun's own folders, which it leaves behind when it is killed
    temporary.mkdir()
    env = {**variables, "TMPDIR": str(temporary)}
    with running_program("torchrun", command, env=env, cwd=folder, log=folder / "ranks.log") as launcher:
        ready = wait_for_any([launcher.descriptor, switch.program.descriptor], deadline)
        if switch.program.has_ended():
            raise switch.failure()
        if not ready:
            where = _whereabouts(folder, ranks)
            raise ValidationError(
                f"the ranks were not done within {deadline.limit_s:g} s: {where}",
                hint=f"give more time with --timeout; their log is {launcher.log}",
            )
        if launcher.process.wait() != 0:
            raise _rank_failure(launcher, folder, ranks)
    return tuple(_read_result(folder / f"rank-{rank}.json") for rank in range(ranks))


def _rank_failure(launcher: Program, folder: Path, ranks: int) -> ValidationError:
    """Say which rank failed and why; the ranks that torchrun ended because of it are left out."""
    hint = f"the ranks' log is {launcher.log}"
    errors = {rank: folder / f"rank-{rank}.error" for rank in range(ranks)}
    said = [f"rank {rank}: {path.read_text(encoding='utf-8')}" for rank, path in errors.items() if path.is_file()]
    text = launcher.log.read_text(encoding="utf-8", errors="replace")
    died = _FAILED_RANK.search(text)
    if died and not errors.get(int(died[2]), folder).is_file():
        said.insert(0, f"rank {died[2]}: ended by itself with exit status {died[1]} (negative: a signal)")
    if said:
        return ValidationError("\n".join([*said, f"ranks stood at: {_whereabouts(folder, ranks)}"]), hint=hint)
    return ValidationError(f"torchrun: {launcher.end_in_words()}\n{launcher.tail()}", hint=hint)


def _whereabouts(folder: Path, ranks: int) -> str:
    steps = {rank: folder / f"rank-{rank}.at" for rank in range(ranks)}
    return ", ".join(
        f"rank {rank}: {path.read_text(encoding='utf-8') if path.is_file() else 'setting up'}"
        for rank, path in steps.items()
    )


def _read_result(path: Path) -> RankResult:
    if not path.is_file():
        raise ValidationError(f"{path.name}: the rank ended without a result", hint=f"see the log in {path.parent}")
    try:
        return TypeAdapter(RankResult).validate_json(path.read_bytes())
    except PydanticValidationError as err:
        fault = err.errors()[0]
        where = ".".join(map(str, fault["loc"]))
        message = f"{path}: {where}: {fault['msg']}, found {fault['input']!r}"
        raise ValidationError(message, hint="install a torch-switchml of this channel's version") from None
