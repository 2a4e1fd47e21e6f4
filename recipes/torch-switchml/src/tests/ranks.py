# SPDX-License-Identifier: BSD-3-Clause
"""Starts the ranks of a scenario as processes, as torchrun would, and gathers what they report."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parent

# No scenario takes near as long; one that does has hung, which is what is tested.
LIMIT_S = 120.0


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

    def run(
        self,
        scenario: str,
        *,
        ranks: int = 2,
        environment: Mapping[str, str] | None = None,
        rank_environment: Mapping[int, Mapping[str, str | None]] | None = None,
    ) -> list[RankResult]:
        """Run it to the end; more variables for all ranks or for one, None to leave one out."""
        port = free_port()
        processes = []
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
            }
            processes.append(self._start(rank, scenario, values))
        return self._gather(processes, time.monotonic())

    def _start(self, rank: int, scenario: str, values: Mapping[str, str | None]) -> subprocess.Popen[bytes]:
        for stale in (self._value_file(rank), self._stderr_file(rank)):
            stale.unlink(missing_ok=True)
        with self._stderr_file(rank).open("wb") as stderr:
            return subprocess.Popen(
                [sys.executable, TESTS / "scenarios.py", scenario],
                env={name: value for name, value in values.items() if value is not None},
                stderr=stderr,
                stdout=stderr,
            )

    def _gather(self, processes: Sequence[subprocess.Popen[bytes]], started: float) -> list[RankResult]:
        results = []
        try:
            for rank, process in enumerate(processes):
                process.wait(timeout=max(1.0, started + LIMIT_S - time.monotonic()))
                results.append(self._result(rank, process.returncode, time.monotonic() - started))
        except subprocess.TimeoutExpired:
            said = "\n".join(self._stderr_file(rank).read_text() for rank in range(len(processes)))
            raise AssertionError(f"rank {len(results)} hung; the ranks said:\n{said}") from None
        finally:
            for process in processes:
                if process.poll() is None:
                    process.kill()
                    process.wait()
        return results

    def _result(self, rank: int, code: int, seconds: float) -> RankResult:
        value_file = self._value_file(rank)
        return RankResult(
            rank=rank,
            code=code,
            stderr=self._stderr_file(rank).read_text(),
            value=json.loads(value_file.read_text()) if value_file.exists() else None,
            seconds=seconds,
        )

    def _value_file(self, rank: int) -> Path:
        return self.folder / f"value.{rank}.json"

    def _stderr_file(self, rank: int) -> Path:
        return self.folder / f"stderr.{rank}.txt"


def run_python(code: str) -> str:
    """What a process of its own says on stdout; not in the sources' folder, which would be imported from."""
    process = subprocess.run(
        [sys.executable, "-c", code], cwd=TESTS, check=False, capture_output=True, text=True, timeout=LIMIT_S
    )
    assert process.returncode == 0, process.stderr
    return process.stdout


def free_port() -> int:
    """A TCP port of the loopback address that nothing listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])
