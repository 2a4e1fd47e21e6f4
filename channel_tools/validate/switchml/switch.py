# SPDX-License-Identifier: BSD-3-Clause
"""Runs the software switch of the validated environment and reads its counters."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from pydantic import TypeAdapter
from pydantic import ValidationError as PydanticValidationError

from channel_tools.system.errors import ValidationError
from channel_tools.system.processes import Deadline, Program, end_process_group, running_program, wait_for_any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

PROGRAM = "switchml-switch"
_READY_TIMEOUT_S = 20.0
_CHUNK_BYTES = 4096
T = TypeVar("T")
DATA_PORT = 48864
_ATTEMPTS = 20
_FIRST_WORKER = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadyLine:
    """The line that the switch prints when it is ready."""

    event: str
    controller: str
    data: str
    version: str


@dataclass(frozen=True, kw_only=True, slots=True)
class DroppedPackets:
    """Packets that the switch dropped, by cause.

    ``stale`` arrived too late, after retransmission; ``injected`` are those that the switch was told to lose.
    """

    malformed: int
    unknown_worker: int
    bad_slot: int
    stale: int
    injected: int


@dataclass(frozen=True, kw_only=True, slots=True)
class SwitchStats:
    """The switch's counters, as in its statistics file."""

    sessions_opened: int
    num_workers: int
    packets_received: int
    packets_dropped: DroppedPackets
    slots_completed: int
    elements_aggregated: int
    results_sent: int


@dataclass(frozen=True, kw_only=True, slots=True)
class RunningSwitch:
    """A running switch."""

    program: Program
    ready: ReadyLine
    stats_file: Path

    def failure(self) -> ValidationError:
        """The error for a switch that ended by itself."""
        return ValidationError(
            f"the switch ended while the ranks ran: {self.program.end_in_words()}\n{self.program.tail()}",
            hint=f"the switch's log is {self.program.log}",
        )

    def stop(self) -> SwitchStats:
        """End the switch normally and return its last counters."""
        end_process_group(self.program.process)
        return _read(SwitchStats, self.stats_file.read_bytes() if self.stats_file.exists() else b"", self.program)


@contextlib.contextmanager
def running_switch(
    *,
    prefix: Path,
    variables: Mapping[str, str],
    address: str,
    folder: Path,
    deadline: Deadline,
    controller_port: int = 0,
    data_port: int = DATA_PORT,
) -> Iterator[RunningSwitch]:
    """The environment's switch on ``address``, its controller on ``controller_port`` there (0: any free one).

    ``data_port`` 0 also means any free one; workers learn it when they open a session. The switch is ended at the end
    of the block. Raises ValidationError, with its output, if it does not exist, ends, or is not ready in time.
    """
    program_file = prefix / "bin" / PROGRAM
    if not program_file.is_file():
        message = f"{program_file}: the environment has no software switch"
        raise ValidationError(message, hint="add switchml-switch to the stack's install list")
    stats_file = folder / "switch-stats.json"
    command: list[str | Path] = [
        program_file,
        "--address",
        address,
        "--controller-port",
        str(controller_port),
        "--port",
        str(data_port),
        "--stats-file",
        stats_file,
    ]
    with running_program(
        PROGRAM, command, env=variables, cwd=folder, log=folder / "switch.log", stdout=subprocess.PIPE
    ) as program:
        line = _first_line(program, deadline.capped(_READY_TIMEOUT_S))
        yield RunningSwitch(program=program, ready=_read(ReadyLine, line, program), stats_file=stats_file)


def _first_line(program: Program, deadline: Deadline) -> bytes:
    stdout = program.process.stdout
    if stdout is None:
        raise ValueError(f"{program.name}: started without a pipe")
    received = b""
    while b"\n" not in received:
        if not wait_for_any([stdout.fileno()], deadline):
            message = f"{program.name}: not ready within {deadline.limit_s:g} s\n{program.tail()}"
            raise ValidationError(message, hint=f"its log is {program.log}")
        chunk = os.read(stdout.fileno(), _CHUNK_BYTES)
        if not chunk:
            message = f"{program.name}: ended before it was ready: {program.end_in_words()}\n{program.tail()}"
            raise ValidationError(message, hint=f"its log is {program.log}")
        received += chunk
    return received.partition(b"\n")[0]


def _read(kind: type[T], text: bytes, program: Program) -> T:
    try:
        return TypeAdapter(kind).validate_json(text)
    except PydanticValidationError as err:
        fault = err.errors()[0]
        where = ".".join(map(str, fault["loc"])) or "the whole"
        beginning = text[:200].decode(errors="replace")
        message = f"{program.name}: expected a {kind.__name__} in JSON; {where}: {fault['msg']}; found: {beginning}"
        raise ValidationError(message, hint="install a switchml-switch of this channel's version") from None


@dataclass(frozen=True, kw_only=True, slots=True)
class LoopbackNetwork:
    """A /24 of the loopback network."""

    base: str
    """Its first three numbers, ``127.77.3``."""

    @property
    def switch(self) -> str:
        """The address of the switch."""
        return f"{self.base}.1"

    def workers(self, count: int) -> tuple[str, ...]:
        """One source address per rank."""
        return tuple(f"{self.base}.{_FIRST_WORKER + rank}" for rank in range(count))


def choose_loopback_network(port: int = DATA_PORT) -> LoopbackNetwork:
    """A network whose switch address has the UDP ``port`` free. Raises ValidationError if none was found."""
    source = random.SystemRandom()
    for _ in range(_ATTEMPTS):
        network = LoopbackNetwork(base=f"127.{source.randrange(1, 255)}.{source.randrange(256)}")
        if _is_free(network.switch, port):
            return network
    message = f"no loopback address with UDP port {port} free was found in {_ATTEMPTS} attempts"
    raise ValidationError(message, hint="end what listens on that port on all addresses, then run the command again")


def _is_free(address: str, port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True
