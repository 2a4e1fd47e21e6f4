# SPDX-License-Identifier: BSD-3-Clause
"""Runs the tests' scripts under the environment's own mpiexec."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from rank_server import start_server

TESTS = Path(__file__).resolve().parent

# No script takes near as long; one that does has hung, which is what is tested.
LIMIT_S = 300.0
# Open MPI starts no more ranks than there are cores, and none as root, unless it is told.
ALLOWED = {
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
}
# How others say which rank of how many a process is; a test says what there is of it.
_LAUNCHERS = ("PMI", "PMIX_", "OMPI_", "SLURM_", "TORCHELASTIC_", "WORLD_SIZE", "RANK", "TORCH_MPI_")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--pytorch-tests", action="store_true", help="run PyTorch's own tests of process groups too")


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    """How a command ended: its exit code, all that it printed, its seconds."""

    code: int
    said: str
    seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Launcher:
    """Starts a script of this folder, or code, with Python: in a process that has imported PyTorch already."""

    folder: Path
    server: Path

    def mpiexec(self, script: Path, *, ranks: int) -> Ended:
        """Run it as ranks of MPI."""
        mpiexec = Path(sys.prefix, "bin", "mpiexec")
        return self._run([str(mpiexec), "-n", str(ranks), *self._rank(script)])

    def alone(self, script: Path) -> Ended:
        """Run it without a launcher."""
        return self._run(self._rank(script))

    def _rank(self, script: Path) -> list[str]:
        return [sys.executable, "-I", "-S", str(TESTS / "rank_server.py"), str(self.server), str(script)]

    def code(self, code: str) -> Path:
        """A script of this code."""
        script = self.folder / "script.py"
        script.write_text(code)
        return script

    def _run(self, command: list[str]) -> Ended:
        usual = {name: value for name, value in os.environ.items() if not name.startswith(_LAUNCHERS)}
        added = {"OMP_NUM_THREADS": "1", "SCENARIO_FOLDER": str(self.folder), **ALLOWED}
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


@pytest.fixture(scope="session")
def rank_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The address of the server that forks the ranks."""
    address = tmp_path_factory.mktemp("server") / "address"
    server = start_server(address)
    yield address
    assert server.stdin is not None
    server.stdin.close()
    assert server.wait(LIMIT_S) == 0


@pytest.fixture
def launcher(rank_server: Path, tmp_path: Path) -> Launcher:
    return Launcher(folder=tmp_path, server=rank_server)
