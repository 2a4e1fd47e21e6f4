# SPDX-License-Identifier: BSD-3-Clause
"""Starts the ranks of a scenario as processes, as torchrun would, and gathers what they report."""

import json
import os
import random
import socket
import subprocess
import sys
import time
import zlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rank_server import Ended, RankServer

TESTS = Path(__file__).resolve().parent

# No scenario takes near as long; one that does has hung, which is what is tested.
LIMIT_S = 300.0


@dataclass(frozen=True, kw_only=True, slots=True)
class RankResult:
    """What one rank left behind: exit code, what it said, its scenario's value, seconds it took."""

    rank: int
    code: int
    stderr: str
    value: Any
    seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Launcher:
    """Runs a function of scenarios.py in several ranks at once."""

    folder: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    server: RankServer | None = None

    def run(
        self,
        scenario: str,
        *,
        ranks: int = 2,
        environment: Mapping[str, str] | None = None,
        rank_environment: Mapping[int, Mapping[str, str | None]] | None = None,
        fresh: bool = False,
    ) -> list[RankResult]:
        """Run it to the end; more variables for all ranks or for one, None to leave one out.

        With ``fresh`` rank 0 is a new interpreter, which shows its end: for what depends on how one begins or ends.
        """
        port = free_port()
        asked = [environment or {}, *(rank_environment or {}).values()]
        shows_its_end = 0 if fresh else rank_that_shows_its_end(scenario, ranks, asked)
        environments = []
        for rank in range(ranks):
            values: dict[str, str | None] = {
                **os.environ,
                **self.environment,
                **(environment or {}),
                **(rank_environment or {}).get(rank, {}),
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(ranks),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                "OMP_NUM_THREADS": "1",
                "SCENARIO_FOLDER": str(self.folder),
                "SCENARIO_LEAVES_EARLY": None if rank == shows_its_end else "1",
            }
            environments.append({name: value for name, value in values.items() if value is not None})
            for stale in (self._value_file(rank), self._stderr_file(rank)):
                stale.unlink(missing_ok=True)
        words = [str(TESTS / "scenarios.py"), scenario]
        places = [(environment, self._stderr_file(rank)) for rank, environment in enumerate(environments)]
        ended = self._start(words, places, new=len(places) if self.server is None else int(fresh))
        return [self._result(rank, one, ranks) for rank, one in enumerate(ended)]

    def _start(self, words: Sequence[str], ranks: Sequence[tuple[Mapping[str, str], Path]], *, new: int) -> Ended:
        """Run the first ``new`` ranks in interpreters of their own and the others from the server, at once."""
        with ThreadPoolExecutor(1) as pool:
            others = pool.submit(self.server.launch, words, ranks[new:], LIMIT_S) if self.server else None
            ended = run_processes([sys.executable, *words], ranks[:new], LIMIT_S)
            return [*ended, *(others.result() if others else [])]

    def run_code(self, code: str) -> str:
        """What a process of its own that runs this Python code prints; it must end well."""
        assert self.server is not None
        script = self.folder / "code.py"
        script.write_text(code)
        printed = self.folder / "printed.txt"
        environment = {name: value for name, value in os.environ.items() if not name.startswith("SWITCHML_")}
        (ended,) = self.server.launch([str(script)], [(environment, printed)], LIMIT_S)
        assert ended is not None, f"it hung, and said {printed.read_text()}"
        assert ended[0] == 0, printed.read_text()
        return printed.read_text()

    def _result(self, rank: int, ended: tuple[int, float] | None, ranks: int) -> RankResult:
        if ended is None:
            said = "\n".join(self._stderr_file(one).read_text() for one in range(ranks))
            raise AssertionError(f"rank {rank} hung; the ranks said:\n{said}")
        value_file = self._value_file(rank)
        return RankResult(
            rank=rank,
            code=ended[0],
            stderr=self._stderr_file(rank).read_text(),
            value=json.loads(value_file.read_text()) if value_file.exists() else None,
            seconds=ended[1],
        )

    def _value_file(self, rank: int) -> Path:
        return self.folder / f"value.{rank}.json"

    def _stderr_file(self, rank: int) -> Path:
        return self.folder / f"stderr.{rank}.txt"


def values(results: Sequence[RankResult]) -> list[dict[str, Any]]:
    """What the ranks returned, all of which must have ended well."""
    assert [result.code for result in results] == [0] * len(results), [result.stderr for result in results]
    return [result.value for result in results]


def rank_that_shows_its_end(scenario: str, ranks: int, settings: Sequence[Mapping[str, str | None]]) -> int:
    """The rank whose interpreter is taken apart at the end, as scenarios.py says; the same in each run.

    It differs from scenario to scenario and with its settings, so that those that fail show it and those that wait.
    """
    asked = [f"{name}={value}" for one in settings for name, value in one.items() if name.startswith("SCENARIO_")]
    return zlib.crc32("\0".join([scenario, *sorted(asked)]).encode()) % ranks


def run_processes(command: Sequence[str], ranks: Sequence[tuple[Mapping[str, str], Path]], limit_s: float) -> Ended:
    """As ``RankServer.launch``, each rank in a process that is started anew."""
    started = time.monotonic()
    processes: list[subprocess.Popen[bytes]] = []
    ended: Ended = [None] * len(ranks)
    try:
        for environment, output in ranks:
            with output.open("wb") as stream:
                processes.append(subprocess.Popen(command, env=environment, stderr=stream, stdout=stream))
        for rank, process in enumerate(processes):
            process.wait(timeout=max(1.0, started + limit_s - time.monotonic()))
            ended[rank] = (process.returncode, time.monotonic() - started)
    except subprocess.TimeoutExpired:
        pass
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.wait()
    return ended


def on_hosts(names: Sequence[str]) -> dict[int, dict[str, str | None]]:
    """By rank, what makes it take itself for one of the host with this name."""
    return {rank: {"SWITCHML_HOST": name, "SWITCHML_HOST_REDUCTION": "on"} for rank, name in enumerate(names)}


def free_port() -> int:
    """A TCP port that nobody listens on, below those that the system gives to connections.

    Of those any program on the machine may get one before the ranks of a test listen on it.
    """
    first_given = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    for port in random.SystemRandom().sample(range(first_given // 2, first_given), 100):
        with suppress(OSError), socket.create_server(("", port)):
            return port
    raise AssertionError("no free port among 100")
