# SPDX-License-Identifier: BSD-3-Clause
"""A tree with a stack of MPI, an environment whose mpiexec, srun and ssh are short scripts, and a script to start."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.command_line import run_tool
from tests.support.toy_tree import write_toy_tree

_STACKS = """\
default_stack: toy
stacks:
  toy:
    description: one small package
    variants: [toy.yaml]
    packages: [toy]
    install: [toy]
    validate: {method: distributed, backend: mpi, launcher: mpiexec, environment: {FI_PROVIDER: tcp, KVS: lo}}
  silent:
    description: nothing to start
    packages: [toy]
    install: [toy]
"""
# starts the ranks and, as Hydra and srun do, ends all of them where one fails; the input of the others never ends
_STARTER = """\
#!{python} -IS
import os, signal, subprocess, sys, time
{names}
words = sys.argv[1:]
if "--mpi=list" in words:
    sys.stderr.write("MPI plugin types are...\\n\\tnone\\n" + os.environ.get("TEST_PMI", "\\tpmi2\\n"))
    sys.exit()
place = words.index("sh")
count = int(os.environ.get("TEST_STARTS") or option(words[:place]))
ranks = [
    subprocess.Popen(
        words[place:], env=os.environ | variables(rank, count), stdin=None if reads(rank) else subprocess.PIPE
    )
    for rank in range(count)
]
signal.signal(signal.SIGTERM, lambda *_: [rank.kill() for rank in ranks] and os._exit(1))
while ranks:
    process, status = os.wait()
    ranks = [rank for rank in ranks if rank.pid != process]
    if status:
        for rank in ranks:
            rank.kill()
        sys.exit(os.waitstatus_to_exitcode(status) % 256)
"""
_MPIEXEC = """
def option(words): return words[words.index("-n") + 1]
def reads(rank): return rank == 0
def variables(rank, count): return {"PMI_RANK": str(rank), "PMI_SIZE": str(count), "MPI_LOCALRANKID": str(rank)}
"""
_SRUN = """
def option(words): return next(word for word in words if word.startswith("--ntasks=")).partition("=")[2]
def reads(rank): return rank == 0 or "--input=0" not in words
def variables(rank, count):
    pmi = {"PMI_RANK": str(rank)} if "--mpi=pmi2" in words and not os.environ.get("TEST_NO_PMI") else {}
    return {"SLURM_PROCID": str(rank), "SLURM_NTASKS": str(count), "SLURM_LOCALID": str(rank), **pmi}
"""
_SSH = """\
#!/bin/sh
while [ "$1" != -- ]; do host=$1; shift; done
shift
[ "$host" = far ] && { echo "ssh: connect to host far port 22: No route to host" >&2; exit 255; }
echo "$host" >> "$TEST_LOG"
eval "$@"
"""
_SCONTROL = "#!/bin/sh\necho $(hostname)\n"
# torchrun's words, as far as this script understands them; it starts its ranks and says how one failed
_TORCHRUN = """\
import os, subprocess, sys
given = dict(word[2:].split("=") for word in sys.argv[1:] if word.startswith("--") and "=" in word)
words = sys.argv[sys.argv.index("--no-python") + 1 :]
each, nodes, node = (int(given.get(name, 1)) for name in ("nproc-per-node", "nnodes", "node-rank"))
first = node * each if "node-rank" in given else 0
ranks = [
    subprocess.Popen(words, env=os.environ | {
        "RANK": str(first + local), "WORLD_SIZE": str(each * nodes), "LOCAL_RANK": str(local)})
    for local in range(each)
]
for _ in ranks:
    process, status = os.wait()
    if status:
        local, code = [rank.pid for rank in ranks].index(process), os.waitstatus_to_exitcode(status)
        print(f"E1122 failed (exitcode: {code}) local_rank: {local} (pid: {process})", file=sys.stderr)
        os._exit(1)
"""
SCRIPT = """\
import os, signal, sys, time
names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR")
os.write(1, (" ".join([*map(os.environ.get, names), *sys.argv[1:]]) + "\\n").encode())  # in one piece, beside others
if os.environ["RANK"] == "1" and sys.argv[1:2] == ["exit"]:
    sys.exit(int(sys.argv[2]))
if os.environ["RANK"] == "1" and sys.argv[1:2] == ["kill"]:
    os.kill(os.getpid(), signal.SIGKILL)
if sys.argv[1:2] in (["kill"], ["wait"]):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(600)
"""


@dataclass(frozen=True, kw_only=True)
class Site:
    """Where the command runs: a tree, an environment, other programs' stand-ins, and a log of the hosts reached."""

    folder: Path
    environ: dict[str, str]

    @property
    def script(self) -> Path:
        return self.folder / "train.py"

    def words(self, *words: str) -> list[str]:
        prefix = str(self.folder / "env")
        return ["launch", "--root", str(self.folder / "tree"), "--prefix", prefix, *words]

    def launch(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return run_tool(*self.words(*words), cwd=self.folder, environ={**self.environ, **variables})

    def start(self, *words: str, stderr: int = subprocess.DEVNULL) -> subprocess.Popen[str]:
        """The command beside the test, which reads what its ranks print."""
        command = [sys.executable, "-m", "channel_tools", *self.words(*words)]
        env = {**os.environ, **self.environ}
        return subprocess.Popen(command, cwd=self.folder, env=env, stdout=subprocess.PIPE, stderr=stderr, text=True)


def _program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text.replace("{python}", sys.executable))
    path.chmod(0o755)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return make_site(tmp_path)


def make_site(tmp_path: Path) -> Site:
    """Everything below the folder."""
    write_toy_tree(tmp_path / "tree")
    (tmp_path / "tree/variants/stacks.yaml").write_text(_STACKS)
    (tmp_path / "env/conda-meta").mkdir(parents=True)
    (tmp_path / "env/conda-meta/toy-1.0-0.json").write_text("{}")
    (tmp_path / "train.py").write_text(SCRIPT)
    modules = tmp_path / "modules"
    _program(tmp_path / "env/bin/mpiexec", _STARTER.replace("{names}", _MPIEXEC))
    _program(tmp_path / "env/bin/python", f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    _program(tmp_path / "bin/srun", _STARTER.replace("{names}", _SRUN))
    _program(tmp_path / "bin/scontrol", _SCONTROL)
    _program(tmp_path / "bin/ssh", _SSH)
    _program(modules / "torch/__init__.py", "")
    _program(modules / "torch/distributed/__init__.py", "")
    _program(modules / "torch/distributed/run.py", _TORCHRUN)
    environ = {
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": str(modules),
        "TEST_LOG": str(tmp_path / "reached"),
        "CONDA_PREFIX": "/another",
        "OMP_NUM_THREADS": "3",
    }
    return Site(folder=tmp_path, environ=environ)
