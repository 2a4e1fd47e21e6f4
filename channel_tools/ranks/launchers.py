# SPDX-License-Identifier: BSD-3-Clause
"""The commands that start ranks: torchrun, mpiexec, srun.

If a launcher and the MPI library do not match, each process is silently a world of one rank (``srun --mpi=none``, the
mpiexec of another MPI). So each rank that mpiexec or srun starts first checks the number of ranks, in a line of shell
before the script, which also sets the rank's number under the names that torchrun uses.

Only rank 0 reads standard input. torchrun gives it to all ranks of a host, which would each take a part of it, and
Hydra gives the others one that never ends, so the line of shell gives those none.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rattler import Version

from channel_tools.ranks.hosts import LOCALHOST, Host
from channel_tools.system.errors import CommandError, UsageError
from channel_tools.system.processes import run_command

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from channel_tools.requests.names import LauncherName

_PMI_VARIABLES = {"cray_shasta": "PALS_RANKID", "pmi2": "PMI_RANK", "pmix": "PMIX_RANK"}
"""Slurm's plug-ins that set up an MPI library's world, and the variable that each sets for a rank."""
_LIST_TIMEOUT_S = 60.0
_FORK_RANKS = Path(__file__).with_name("fork_ranks.py")
DIED_UNDER_TORCHRUN = re.compile(r"failed \(exitcode: (-?\d+)\) local_rank: (\d+)")
"""How torchrun, and fork_ranks.py, say that a rank failed."""
_TORCHRUN = "torch.distributed.run"
_READ_BY_RANK_0 = '[ "$RANK" = 0 ] || exec < /dev/null; '
_BY_TORCHRUN = _READ_BY_RANK_0 + 'exec "${PYTHON_EXEC:-$0}" -u "$@"'
"""What torchrun runs as a rank, with its ``--no-python``; otherwise as it does itself without that."""
_OPENMPI = "openmpi"
_OPENMPI_OF_PMIX_ALONE = Version("5")


@dataclass(frozen=True, kw_only=True, slots=True)
class RankNames:
    """A launcher's variables for a rank's number, the number of ranks, and the rank's number on its host."""

    rank: str
    size: str
    local_rank: str


_HYDRA = RankNames(rank="$PMI_RANK", size="$PMI_SIZE", local_rank="${MPI_LOCALRANKID:-${PMI_LOCAL_RANK:-$PMI_RANK}}")
_OPEN_MPI = RankNames(
    rank="$OMPI_COMM_WORLD_RANK", size="$OMPI_COMM_WORLD_SIZE", local_rank="$OMPI_COMM_WORLD_LOCAL_RANK"
)
_SLURM = RankNames(rank="$SLURM_PROCID", size="$SLURM_NTASKS", local_rank="$SLURM_LOCALID")


@dataclass(frozen=True, kw_only=True, slots=True)
class HostCommand:
    """A command that starts ranks; if ``host`` is None, it reaches the hosts by itself."""

    host: Host | None
    words: tuple[str, ...]

    @property
    def is_local(self) -> bool:
        """Whether it runs on this machine."""
        return self.host is None or self.host.is_local


@dataclass(frozen=True, kw_only=True, slots=True)
class Start:
    """What the commands are made from: the environment, the ranks, the rendezvous address, the script."""

    prefix: Path
    variables: Mapping[str, str]
    installed: Mapping[str, str]
    hosts: Sequence[Host]
    ranks: int
    master: str
    port: int
    arguments: tuple[str, ...]
    """The launcher's arguments from the stack."""
    words: tuple[str, ...]

    @property
    def python(self) -> str:
        """The environment's Python."""
        return str(self.prefix / "bin" / "python")

    def program(self, name: str, hint: str) -> str:
        """A program of the activated environment. Raises CommandError if it has none."""
        path = shutil.which(name, path=self.variables.get("PATH", ""))
        if path is None:
            raise CommandError(f"the activated environment {self.prefix} has no {name}", hint=hint)
        return path


def rank_commands(launcher: LauncherName, start: Start, *, is_mpi: bool, name_hosts: bool) -> tuple[HostCommand, ...]:
    """The commands of a launcher; for ``is_mpi`` and ``name_hosts`` see srun_commands and mpiexec_commands."""
    if launcher == "torchrun":
        return torchrun_commands(start)
    if launcher == "srun":
        return srun_commands(start, is_mpi=is_mpi)
    return mpiexec_commands(start, name_hosts=name_hosts)


def forked_ranks(start: Start, *, trains: bool) -> tuple[HostCommand, ...]:
    """Starts ranks on this host like torchrun, but in one process that imports PyTorch once for all.

    If a rank ``trains``, also imports the modules of DistributedDataParallel, which takes as long again.
    """
    module = "torch._dynamo" if trains else "torch.distributed"
    return (HostCommand(host=None, words=(start.python, str(_FORK_RANKS), str(start.ranks), module, *start.words)),)


def torchrun_commands(start: Start) -> tuple[HostCommand, ...]:
    """One torchrun, or on several hosts one on each, which meet at the first."""
    if len(start.hosts) == 1:
        alone = ("--standalone", f"--local-addr={LOCALHOST}", f"--nproc-per-node={start.ranks}")
        words = (start.python, "-m", _TORCHRUN, *alone, *start.arguments, *_under_torchrun(start))
        return (HostCommand(host=start.hosts[0], words=words),)
    if len({host.ranks for host in start.hosts}) > 1:
        message = f"torchrun starts the same number of ranks on each host; {start.ranks} does not fit {_rows(start)}"
        raise UsageError(message, hint="give a --ranks that is a multiple of the number of hosts")
    return tuple(
        HostCommand(
            host=host,
            words=(
                start.python, "-m", _TORCHRUN, f"--nnodes={len(start.hosts)}", f"--node-rank={number}",
                f"--nproc-per-node={host.ranks}", f"--master-addr={start.master}", f"--master-port={start.port}",
                *start.arguments, *_under_torchrun(start),
            ),
        )
        for number, host in enumerate(start.hosts)
    )  # fmt: skip


def _under_torchrun(start: Start) -> tuple[str, ...]:
    return ("--no-python", "sh", "-c", _BY_TORCHRUN, start.python, *start.words)


def _rows(start: Start) -> str:
    return ", ".join(f"{host.name}:{host.ranks}" for host in start.hosts)


def mpiexec_commands(start: Start, *, name_hosts: bool) -> tuple[HostCommand, ...]:
    """The mpiexec of the environment, or the site's; without ``name_hosts``, it knows the hosts by itself."""
    program = start.program(
        "mpiexec", "install an MPI into it, or load the site's (its modules put mpiexec on the PATH)"
    )
    is_open_mpi = _OPENMPI in start.installed
    names, option = (_OPEN_MPI, "--host") if is_open_mpi else (_HYDRA, "-hosts")
    hosts = (option, _rows(start).replace(", ", ",")) if name_hosts else ()
    words = (program, *start.arguments, *hosts, "-n", str(start.ranks), *_guarded(start, names))
    return (HostCommand(host=None, words=words),)


def srun_commands(start: Start, *, is_mpi: bool) -> tuple[HostCommand, ...]:
    """One job step of the Slurm job that this runs in; it ends if one rank fails."""
    program = start.program("srun", "run it inside a Slurm job, or choose --launcher mpiexec")
    kind = _pmi_kind(program, start) if is_mpi else "none"
    check = f'[ -n "${_PMI_VARIABLES[kind]}" ]' if is_mpi else "true"
    words = (
        # variables that `sbatch --export` held back from the job, srun would hold back from the ranks, too
        program, f"--mpi={kind}", f"--ntasks={start.ranks}", "--kill-on-bad-exit=1", "--export=ALL", "--input=0",
        *start.arguments, *_guarded(start, _SLURM, check=check),
    )  # fmt: skip
    return (HostCommand(host=None, words=words),)


def _pmi_kind(program: str, start: Start) -> str:
    """The plug-in that sets up MPI's world. Raises UsageError if there is none: each rank would be its own world."""
    requested = start.variables.get("SLURM_MPI_TYPE", "")
    listed = run_command([program, "--mpi=list"], env=start.variables, timeout_s=_LIST_TIMEOUT_S)
    known = re.findall(r"^\s*([a-z0-9_]+)\s*$", listed.stdout + listed.stderr, re.MULTILINE)
    usable = [kind for kind in pmi_kinds(start.installed) if kind in known]
    if requested and requested not in usable:
        message = f"SLURM_MPI_TYPE is {requested}: each of the {start.ranks} ranks would be an MPI world of its own"
        raise UsageError(message, hint=f"set it to one of: {', '.join(usable) or 'none here'}; or --launcher mpiexec")
    if not usable:
        message = f"this Slurm has no plug-in for the environment's MPI (it has {', '.join(known) or 'none'})"
        raise UsageError(message, hint="choose --launcher mpiexec, or have Slurm's pmi2 plug-in installed")
    return requested or usable[0]


def pmi_kinds(installed: Mapping[str, str]) -> tuple[str, ...]:
    """The plug-ins that the environment's MPI supports, best first; with others, each rank silently runs alone.

    ``installed`` are the environment's packages by name, each as ``VERSION BUILD``.
    """
    if _OPENMPI in installed:
        return (
            ("pmix", "pmi2") if Version(installed[_OPENMPI].partition(" ")[0]) < _OPENMPI_OF_PMIX_ALONE else ("pmix",)
        )
    return ("cray_shasta", "pmi2") if "external" in installed.get("mpich", "") else ("pmi2",)


def _guarded(start: Start, names: RankNames, *, check: str = "true") -> tuple[str, ...]:
    """The script under a shell that rejects a world of another size and sets the rank's number."""
    refusal = f"expected {start.ranks} ranks, this one is of ${{size:-1}}: launcher and MPI do not belong together"
    script = (
        f'size="{names.size}"; [ "${{size:-1}}" = {start.ranks} ] && {check} || {{ echo "{refusal}" >&2; exit 1; }}; '
        f'export RANK="{names.rank}" WORLD_SIZE="$size" LOCAL_RANK="{names.local_rank}"; '
        f'{_READ_BY_RANK_0}exec "$@"'
    )
    return ("sh", "-c", script, "sh", start.python, *start.words)


def pick_launcher(
    requested: LauncherName | None, stack: LauncherName, environ: Mapping[str, str], *, hosts: bool
) -> LauncherName:
    """The requested launcher; else srun inside a Slurm job, unless hosts are named; else the stack's own."""
    if requested is not None:
        return requested
    return "srun" if environ.get("SLURM_JOB_ID") and not hosts else stack


def meeting_point(hosts: Sequence[Host]) -> str:
    """The address at which ranks meet: the first host, or loopback if that is the only one and this machine."""
    return LOCALHOST if len(hosts) == 1 and hosts[0].is_local else hosts[0].address
