# SPDX-License-Identifier: BSD-3-Clause
"""Runs ACCL's emulator for a number of ranks, alone or around a command.

One process of ``cclo_emu`` stands for each rank's FPGA. They listen on loopback, on four ports per rank, and a message
sent before all of them are connected would be lost: the command starts when every one has said that it is ready.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType

PORTS_PER_RANK = 4
READY_TEXT = "ZMQ Context established"
# the log level on which the emulator says that it is ready
LOWEST_LOG_LEVEL = 3
DEFAULT_PORT = 5500
LAST_PORT = 65535
STOP_TIMEOUT_S = 10.0


class EmulatorError(Exception):
    """The emulator could not be started, or one of its processes ended by itself."""


@dataclass(frozen=True)
class Settings:
    """What to run; ``command`` may be empty."""

    ranks: int
    port: int
    protocol: str
    log_level: int
    timeout_s: float
    command: tuple[str, ...]


def claim_ports(first: int, count: int) -> tuple[int, list[socket.socket]]:
    """The lowest port from ``first`` with ``count`` free ones from it, and what keeps other emulators from them.

    Raises EmulatorError when there are none.
    """
    start = first
    while start + count - 1 <= LAST_PORT:
        claims: list[socket.socket] = []
        for port in range(start, start + count):
            claim = _claim(port)
            if claim is None:
                break
            claims.append(claim)
        else:
            return start, claims
        for claim in claims:
            claim.close()
        start = port + 1
    raise EmulatorError(f"no {count} free ports in a row from {first}: choose another --port")


def _claim(port: int) -> socket.socket | None:
    """A name that one emulator alone has in the network namespace: ranks begin to listen only after the search."""
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        claim.bind(f"\0accl-emulator-{port}")
    except OSError:
        claim.close()
        return None
    if _is_free(port):
        return claim
    claim.close()
    return None


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def find_program() -> Path:
    """``bin/cclo_emu`` of this environment. Raises EmulatorError when it is not there."""
    program = Path(__file__).resolve().parents[2] / "bin" / "cclo_emu"
    if not os.access(program, os.X_OK):
        raise EmulatorError(f"{program} is missing: install accl-emulator again")
    return program


class Ranks:
    """The emulator's processes, from start to end."""

    def __init__(self, program: Path, settings: Settings, port: int, output: TextIO) -> None:
        self._output = output
        self._events: queue.SimpleQueue[tuple[int, bool]] = queue.SimpleQueue()
        self._processes: list[subprocess.Popen[str]] = []
        self._readers: list[threading.Thread] = []
        try:
            for rank in range(settings.ranks):
                self._start(program, settings, port, rank)
        except OSError as err:
            self.stop()
            raise EmulatorError(f"cannot start {program}: {err.strerror}") from err

    def _start(self, program: Path, settings: Settings, port: int, rank: int) -> None:
        command = [str(program), "-s", str(settings.ranks), "-r", str(rank), "-p", str(port)]
        command += ["-c", settings.protocol, "-l", str(settings.log_level), "-b"]
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self._processes.append(process)
        reader = threading.Thread(target=self._read, args=(rank, process), daemon=True)
        reader.start()
        self._readers.append(reader)

    def _read(self, rank: int, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None  # noqa: S101  (it is a pipe)
        for line in process.stdout:
            self._output.write(line)
            self._output.flush()
            if READY_TEXT in line:
                self._events.put((rank, True))
        self._events.put((rank, False))

    def wait_until_ready(self, timeout_s: float) -> None:
        """Return when every rank is connected. Raises EmulatorError when one ends first, or the time is over."""
        waiting = set(range(len(self._processes)))
        while waiting:
            try:
                rank, is_ready = self._events.get(timeout=timeout_s)
            except queue.Empty:
                raise EmulatorError(f"after {timeout_s:g} s not ready: ranks {sorted(waiting)}") from None
            if not is_ready:
                raise self._ended(rank)
            waiting.discard(rank)

    def wait_for_end(self) -> None:
        """Return never: raises EmulatorError when a rank ends by itself."""
        while True:
            rank, is_ready = self._events.get()
            if not is_ready:
                raise self._ended(rank)

    def _ended(self, rank: int) -> EmulatorError:
        code = self._processes[rank].wait()
        return EmulatorError(f"the emulator of rank {rank} ended with exit code {code}")

    def stop(self) -> None:
        """End all processes, those that do not obey by force."""
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for reader in self._readers:
            reader.join()


def run_command(command: Sequence[str], ranks: Ranks, port: int, count: int) -> int:
    """Run ``command`` until it or a rank ends; its exit code. Raises EmulatorError for the latter."""
    environment = {**os.environ, "ACCL_EMULATOR_PORT": str(port), "ACCL_EMULATOR_RANKS": str(count)}
    try:
        # a session of its own: launchers' children end with it
        process = subprocess.Popen(command, env=environment, start_new_session=True)
    except OSError as err:
        raise EmulatorError(f"cannot start {command[0]}: {err.strerror}") from err
    failures: queue.SimpleQueue[EmulatorError] = queue.SimpleQueue()

    def watch() -> None:
        try:
            ranks.wait_for_end()
        except EmulatorError as err:
            failures.put(err)
            _end_group(process)

    threading.Thread(target=watch, daemon=True).start()
    try:
        code = process.wait()
    finally:
        _end_group(process)
    if not failures.empty():
        raise failures.get()
    return code if code >= 0 else 128 - code


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """End what is left of a command and of all that it started, by force what does not obey."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            continue


def run(settings: Settings, output: TextIO) -> int:
    """Run the emulator, and the command in it where there is one; the exit code."""
    port, claims = claim_ports(settings.port, PORTS_PER_RANK * settings.ranks)
    with contextlib.ExitStack() as held:
        for claim in claims:
            held.enter_context(claim)
        return _run_at(port, settings, output)


def _run_at(port: int, settings: Settings, output: TextIO) -> int:
    ranks = Ranks(find_program(), settings, port, output)
    try:
        ranks.wait_until_ready(settings.timeout_s)
        output.write(f"accl-emulator: {settings.ranks} ranks ready, first port {port}\n")
        output.flush()
        if settings.command:
            return run_command(settings.command, ranks, port, settings.ranks)
        ranks.wait_for_end()
        return 0
    finally:
        ranks.stop()


def read_settings(arguments: Sequence[str] | None = None) -> Settings:
    """The command line; leaves with a message when it is wrong."""
    parser = argparse.ArgumentParser(
        prog="accl-emulator",
        description="Run ACCL's emulator, one process per rank, until interrupted or until COMMAND ends. "
        "COMMAND finds the first port in ACCL_EMULATOR_PORT.",
    )
    parser.add_argument("-n", "--ranks", type=_number(1, 32), required=True)
    parser.add_argument(
        "-p", "--port", type=_number(1, LAST_PORT), default=DEFAULT_PORT, help="look for free ports from here"
    )
    parser.add_argument("-c", "--protocol", choices=("tcp", "udp", "cyt_rdma"), default="tcp")
    parser.add_argument("-l", "--log-level", type=_number(LOWEST_LOG_LEVEL, 5), default=LOWEST_LOG_LEVEL)
    parser.add_argument("--timeout", type=float, default=60.0, metavar="SECONDS", help="for getting ready")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND")
    options = parser.parse_args(arguments)
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    return Settings(
        ranks=options.ranks,
        port=options.port,
        protocol=options.protocol,
        log_level=options.log_level,
        timeout_s=options.timeout,
        command=tuple(command),
    )


def _number(lowest: int, highest: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not text.isdecimal() or not lowest <= int(text) <= highest:
            raise argparse.ArgumentTypeError(f"found {text!r}, expected a number from {lowest} to {highest}")
        return int(text)

    return read


def _stop(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def main(arguments: Sequence[str] | None = None) -> int:
    """The program. Both interruptions end the ranks, too."""
    settings = read_settings(arguments)
    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGINT, _stop)
    try:
        return run(settings, sys.stderr)
    except EmulatorError as err:
        sys.stderr.write(f"accl-emulator: {err}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
