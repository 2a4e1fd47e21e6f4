# SPDX-License-Identifier: BSD-3-Clause
"""Runs the tests' scripts under the environment's own mpiexec."""

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent

# No script takes near as long; one that does has hung, which is what is tested.
LIMIT_S = 300.0
# How others say which rank of how many a process is; a test says what there is of it.
_LAUNCHERS = ("PMI", "PMIX_", "OMPI_", "SLURM_", "TORCHELASTIC_", "WORLD_SIZE", "RANK", "TORCH_MPI_")


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    """How a command ended: its exit code, all that it printed, its seconds."""

    code: int
    said: str
    seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Launcher:
    """Starts a script of this folder, or code, with Python."""

    folder: Path

    def mpiexec(self, script: Path, *, ranks: int, environment: dict[str, str] | None = None) -> Ended:
        """Run it as ranks of MPI."""
        mpiexec = Path(sys.prefix, "bin", "mpiexec")
        return self.command([str(mpiexec), "-n", str(ranks), sys.executable, str(script)], environment)

    def code(self, code: str) -> Path:
        """A script of this code."""
        script = self.folder / "script.py"
        script.write_text(code)
        return script

    def command(self, command: list[str], environment: dict[str, str] | None = None) -> Ended:
        """Run any command."""
        usual = {name: value for name, value in os.environ.items() if not name.startswith(_LAUNCHERS)}
        added = {"OMP_NUM_THREADS": "1", "SCENARIO_FOLDER": str(self.folder), **(environment or {})}
        started = time.monotonic()
        done = subprocess.run(
            command,
            env=usual | added,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=LIMIT_S,
        )
        return Ended(code=done.returncode, said=done.stdout, seconds=time.monotonic() - started)


@pytest.fixture
def launcher(tmp_path: Path) -> Launcher:
    return Launcher(folder=tmp_path)
