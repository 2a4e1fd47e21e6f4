# SPDX-License-Identifier: BSD-3-Clause
"""A Slurm of two nodes on this machine, from Debian's packages: the real daemons, on loopback, as the user who tests.

Jobs get nothing from the environment but what sbatch sends, so each client command is a script that names the
configuration itself; ``Slurm.bin`` goes on the PATH of what shall find them.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import random
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.ports import free_port
from tests.support.processes import TEST_TIMEOUT_S, wait_for
from tests.support.programs import program
from tests.support.switch import SWITCH_ADDRESS, Cluster, worker_address

_CLIENTS = ("sacct", "sbatch", "scancel", "scontrol", "sinfo", "squeue", "srun")
_CONFIGURATION = """\
ClusterName=test
SlurmctldHost={host}({address})
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/none
CredType=cred/none
PluginDir={plugins}
{listens}StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SlurmdParameters=config_overrides
SlurmdTimeout=10
MessageTimeout=90
BatchStartTimeout=900
KillWait=5
MailProg=/bin/true
TaskProlog={folder}/task-prolog
MinJobAge=43200
FirstJobId={first_job}
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0
"""
# the nodes have more cores and memory than the machine, so that jobs may ask for what they would ask for elsewhere
_NODE = "NodeName={name} NodeHostname={host} NodeAddr={address} Port={port} CPUs=8 RealMemory=64000\n"
# the nodes are one machine, whose ranks SwitchML would take for one host's
_TASK_PROLOG = """\
#!/bin/sh
echo "export SWITCHML_HOST=$SLURMD_NODENAME"
"""
_PARTITION = "PartitionName=main Nodes={nodes} Default=YES State=UP DefMemPerCPU=500\n"


@dataclass(frozen=True, kw_only=True, slots=True)
class Slurm:
    """A running Slurm: its client commands, its folder of state and logs, the names of its nodes."""

    bin: Path
    folder: Path
    nodes: tuple[str, ...]
    daemons: Mapping[str, Sequence[str | Path]]
    """The commands of the nodes' daemons."""
    controller: Sequence[str | Path]
    """The command of the controller."""
    returned: list[subprocess.Popen[bytes]] = field(default_factory=list)
    """Controllers after the first."""
    before: tuple[str, ...] = ()
    """What comes in front of a command that is to reach the controller."""

    def run(self, client: str, *words: str) -> str:
        """What a client command prints; raises CalledProcessError when it fails."""
        command: list[str | Path] = [*self.before, self.bin / client, *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    def jobs(self) -> dict[str, str]:
        """The comments of jobs that wait or run, by their ids."""
        lines = self.run("squeue", "--noheader", "--format=%i %k").splitlines()
        return dict(line.split(maxsplit=1) for line in lines)

    def is_running(self, job: str) -> bool:
        """Whether the job has begun and not ended."""
        return self.run("squeue", "--noheader", "--jobs", job, "--format=%T").strip() == "RUNNING"

    def kill_node(self, name: str) -> None:
        """Kill the node's daemon, and not the jobs there."""
        os.kill(int((self.folder / f"slurmd.{name}.pid").read_text()), signal.SIGKILL)

    def kill_controller(self) -> None:
        """Kill the controller once it has written down which jobs there are: some seconds after another comes up."""
        state, now_s = self.folder / "state" / "job_state", time.time()
        self.run("sbatch", "--hold", "--output=/dev/null", "--job-name=held", "--wrap=true")
        wait_for(lambda: state.is_file() and state.stat().st_mtime > now_s)
        os.kill(int((self.folder / "slurmctld.pid").read_text()), signal.SIGKILL)

    def return_controller(self) -> None:
        """The controller again, until the Slurm ends, without the job that kill_controller submitted."""
        null = subprocess.DEVNULL
        self.returned.append(subprocess.Popen(self.controller, cwd=self.folder, stdin=null, stdout=null, stderr=null))
        cancel: list[str | Path] = [*self.before, self.bin / "scancel", "--name=held"]
        wait_for(lambda: subprocess.run(cancel, capture_output=True, check=False).returncode == 0)

    @contextlib.contextmanager
    def returned_node(self, name: str) -> Iterator[None]:
        """The daemon of a node that was killed, again."""
        with _daemon(self.daemons[name], self.folder):
            yield

    def state_of(self, name: str) -> str:
        """The node's state, as ``idle`` or ``down*``."""
        return self.run("sinfo", "--noheader", f"--nodes={name}", "--format=%T").strip()


@contextlib.contextmanager
def running_slurm(
    *, nodes: tuple[str, ...] = ("n1", "n2"), cluster: Cluster | None = None, disk: Path | None = None
) -> Iterator[Slurm]:
    """A Slurm for as long as the block runs; its jobs end with it. Skips the test where Debian's cannot be had.

    With a ``cluster`` each node is in the namespace of a worker of it, with an address of its own, and the controller
    in that of its switch. ``disk`` is a folder in which each node sees a file system of its own, others see none.
    """
    controller = Path(program("slurmctld"))
    root = controller.parents[2]
    with tempfile.TemporaryDirectory(prefix="slurm-") as place:
        folder = Path(place)
        configuration = _configure(folder, root, nodes, cluster)
        daemon: list[str | Path] = ["-D", "-f", configuration]
        stepd = controller.with_name("slurmstepd-wlm")
        slurmd = controller.with_name("slurmd-wlm")
        before = () if cluster is None else tuple(cluster.inside(cluster.switch))
        places = [()] * len(nodes) if cluster is None else [cluster.inside(worker) for worker in cluster.workers]
        mounted = () if disk is None else _with_disk(disk)
        daemons = {
            name: [*inside, *mounted, slurmd, *daemon, "-N", name, "-d", stepd]
            for name, inside in zip(nodes, places, strict=True)
        }
        clients = _clients(folder, root, configuration)
        first: list[str | Path] = [*before, controller, *daemon]
        slurm = Slurm(bin=clients, folder=folder, nodes=nodes, daemons=daemons, controller=first, before=before)
        with contextlib.ExitStack() as ended:
            ended.callback(_end_returned, slurm)
            for command in (first, *daemons.values()):
                ended.enter_context(_daemon(command, folder))
            ended.callback(_end_jobs, slurm)
            _await_nodes(slurm)
            yield slurm


def _with_disk(disk: Path) -> tuple[str | Path, ...]:
    """What to put before a command so that it has a file system of its own at ``disk``; skips where it may not."""
    if os.geteuid() != 0:
        pytest.skip("a mount that only a node sees needs root")
    return ("unshare", "--mount", "sh", "-c", f'{program("mount")} -t tmpfs none "$0" && exec "$@"', disk)


def _configure(folder: Path, root: Path, nodes: tuple[str, ...], cluster: Cluster | None) -> Path:
    host = socket.gethostname().partition(".")[0]
    (plugins,) = root.glob("usr/lib/*-linux-gnu/slurm-wlm")
    user = pwd.getpwuid(os.getuid()).pw_name
    address = "127.0.0.1" if cluster is None else SWITCH_ADDRESS
    # where it shares the machine's interfaces, on its own address alone
    listens = "CommunicationParameters=NoInAddrAny\n" if cluster is None else ""
    text = _CONFIGURATION.format(
        host=host,
        address=address,
        port=free_port(),
        user=user,
        plugins=plugins,
        folder=folder,
        listens=listens,
        # by which ranks choose the port where they meet, on this machine those of other tests, too
        first_job=random.SystemRandom().randrange(1, 1_000_000),
    )
    for number, name in enumerate(nodes):
        address = "127.0.0.1" if cluster is None else worker_address(number)
        text += _NODE.format(name=name, host=host, address=address, port=free_port())
    configuration = folder / "slurm.conf"
    configuration.write_text(text + _PARTITION.format(nodes=",".join(nodes)), encoding="utf-8")
    # nothing here uses cgroups, but a slurmd that is to find out their version ends where none are mounted
    (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n", encoding="utf-8")
    prolog = folder / "task-prolog"
    prolog.write_text(_TASK_PROLOG if cluster is None else "#!/bin/sh\n", encoding="utf-8")
    prolog.chmod(0o755)
    for name in ("state", *(f"spool.{node}" for node in nodes)):
        (folder / name).mkdir()
    return configuration


def _clients(folder: Path, root: Path, configuration: Path) -> Path:
    bin_folder = folder / "bin"
    bin_folder.mkdir()
    for name in _CLIENTS:
        script = bin_folder / name
        script.write_text(f'#!/bin/sh\nSLURM_CONF={configuration} exec {root}/usr/bin/{name} "$@"\n')
        script.chmod(0o755)
    return bin_folder


@contextlib.contextmanager
def _daemon(command: Sequence[str | Path], folder: Path) -> Iterator[None]:
    """``folder`` gets the memory image of a daemon that crashes."""
    null = subprocess.DEVNULL
    with subprocess.Popen(command, cwd=folder, stdin=null, stdout=null, stderr=null) as process:
        try:
            yield
        finally:
            process.terminate()


def _await_nodes(slurm: Slurm) -> None:
    deadline = time.monotonic() + TEST_TIMEOUT_S
    states: list[str] = []
    while states != ["idle"] * len(slurm.nodes):
        if time.monotonic() > deadline:
            logs = "\n".join(path.read_text(errors="replace")[-2000:] for path in slurm.folder.glob("*.log"))
            raise AssertionError(f"Slurm's nodes are {states}\n{logs}")
        time.sleep(0.05)
        with contextlib.suppress(subprocess.CalledProcessError):  # the controller does not listen yet
            states = slurm.run("sinfo", "--noheader", "--Node", "--format=%T").split()


def _end_returned(slurm: Slurm) -> None:
    for controller in slurm.returned:
        controller.terminate()
        controller.wait()


def _end_jobs(slurm: Slurm) -> None:
    for job in slurm.jobs():
        for arguments in (("--signal=KILL", "--full"), ()):
            try:
                slurm.run("scancel", *arguments, job)
            except subprocess.CalledProcessError:  # scancel refuses a job that has ended meanwhile
                if slurm.is_running(job):
                    raise
    deadline = time.monotonic() + TEST_TIMEOUT_S
    while slurm.jobs() and time.monotonic() < deadline:
        time.sleep(0.05)
