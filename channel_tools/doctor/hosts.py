# SPDX-License-Identifier: BSD-3-Clause
"""What has to be the same on all hosts of a run: clocks, kernels, limits, the environment's packages."""

from __future__ import annotations

import shlex
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from channel_tools.doctor.model import Diagnosis
from channel_tools.system.counting import counted
from channel_tools.system.remote import run_on_hosts, ssh_command

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from channel_tools.doctor.model import ExaminedStack, Level
    from channel_tools.system.remote import HostOutput

_CLOCK_S = 1.0
_ANSWERS = ("clock", "kernel", "memlock", "rmem_max", "packages")
_ABSENT = "no such environment"


@dataclass(frozen=True, kw_only=True, slots=True)
class HostAnswer:
    """What a host reports about itself, and the times before and after; ``error`` is ssh's message if it failed."""

    name: str
    asked_at: float
    answered_at: float
    values: dict[str, str]
    error: str

    def clock_is_off_by(self) -> float:
        """Seconds by which its clock differs from this machine's at least; 0 if within the time that the query took."""
        clock = float(self.values["clock"])
        return max(0.0, self.asked_at - clock, clock - self.answered_at)


def compare_hosts(names: Sequence[str], local: frozenset[str], subject: ExaminedStack) -> Iterator[Diagnosis]:
    """One finding for each host that cannot be reached, and one for each thing that has to be the same."""
    answers = _ask(names, local, subject)
    for answer in answers:
        if answer.error:
            yield Diagnosis(
                subject=f"host {answer.name}", level="fault", found=answer.error, fix=f"ssh {answer.name} true"
            )
    heard = [answer for answer in answers if not answer.error]
    if heard:
        yield _clocks(heard)
        fix_packages = f"channel_tools env update {subject.prefix_word}, on the host that differs"
        yield _alike(heard, "packages", "packages of the environment", level="fault", fix=fix_packages)
        yield _alike(heard, "kernel", "kernel", level="warning", fix="boot the same kernel on all hosts")
        yield _alike(heard, "memlock", "locked memory of ssh's sessions", level="warning", fix="ulimit -l unlimited")
        yield _alike(
            heard, "rmem_max", "net.core.rmem_max", level="warning", fix="sudo sysctl -w net.core.rmem_max=VALUE"
        )


def _ask(names: Sequence[str], local: frozenset[str], subject: ExaminedStack) -> list[HostAnswer]:
    """Query all hosts at once."""
    folder = "" if subject.prefix is None else f"{subject.prefix}/conda-meta"
    packages = f'cd {shlex.quote(folder)} 2>/dev/null && ls *.json | sort | cksum || echo "{_ABSENT}"'
    words = [
        "sh",
        "-c",
        (
            "date +%s.%N; uname -r; ulimit -l; cat /proc/sys/net/core/rmem_max 2>/dev/null || echo unknown; "
            + (packages if folder else "echo none")
        ),
    ]
    asked_at = time.time()
    commands = {name: words if name in local else [*ssh_command(name), shlex.join(words)] for name in names}
    answers = run_on_hosts(commands, env=subject.variables)
    return [_read(name, answer, asked_at) for name, answer in answers.items()]


def _read(name: str, answer: HostOutput, asked_at: float) -> HostAnswer:
    lines = answer.output.splitlines()[-len(_ANSWERS) :]
    error = answer.error or ("" if len(lines) == len(_ANSWERS) else "its shell printed unexpected output")
    values = {} if error else dict(zip(_ANSWERS, lines, strict=True))
    return HostAnswer(name=name, asked_at=asked_at, answered_at=answer.read_at, values=values, error=error)


def _clocks(answers: Sequence[HostAnswer]) -> Diagnosis:
    off = {answer.name: answer.clock_is_off_by() for answer in answers}
    worst = max(off, key=lambda name: off[name])
    if off[worst] <= _CLOCK_S:
        return Diagnosis(
            subject="clocks", level="ok", found=f"of {counted(len(answers), 'host')}, within {_CLOCK_S:g} s"
        )
    message = f"{worst} is off by {off[worst]:.1f} s or more"
    return Diagnosis(subject="clocks", level="warning", found=message, fix=f"ssh {worst} sudo chronyc makestep")


def _alike(answers: Sequence[HostAnswer], key: str, subject: str, *, level: Level, fix: str) -> Diagnosis:
    by_value: dict[str, list[str]] = {}
    for answer in answers:
        by_value.setdefault(answer.values[key], []).append(answer.name)
    if len(by_value) == 1 and _ABSENT not in by_value:
        return Diagnosis(subject=subject, level="ok", found=f"the same on {counted(len(answers), 'host')}")
    message = "; ".join(f"{', '.join(names)}: {value}" for value, names in by_value.items())
    return Diagnosis(subject=subject, level=level, found=message, fix=fix)
