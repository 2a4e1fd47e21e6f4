# SPDX-License-Identifier: BSD-3-Clause
"""The hosts of ranks: reads them from a file or the scheduler's job, assigns ranks, and checks that they answer.

Ranks are assigned to hosts in blocks, as Slurm and Hydra do by default: the first host has the lowest numbers.
"""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from channel_tools.environments import user_variables
from channel_tools.system.counting import counted
from channel_tools.system.errors import ConfigError, NetworkError, UsageError
from channel_tools.system.processes import run_command
from channel_tools.system.remote import run_on_hosts, ssh_command

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_LINE = re.compile(r"(?P<name>[A-Za-z0-9_.-]*[A-Za-z0-9])(?:\s+slots=(?P<slots>[0-9]{1,5})|:(?P<count>[0-9]{1,5}))?")
_BRACKETS = re.compile(r"\[(?P<name>[0-9a-fA-F:.]+)\](?::(?P<count>[0-9]{1,5}))?")
LOCALHOST = "127.0.0.1"
_LOCAL = frozenset({"localhost", LOCALHOST, "::1"})
_ANY_PORT = 9
_OF_SCHEDULERS = re.compile(r"(SLURM|PBS_).*|PATH")
_SLURM_NODE = re.compile(r"\bNodeName=(?P<name>\S+).*?\bNodeAddr=(?P<address>\S+)", re.DOTALL)


@dataclass(frozen=True, kw_only=True, slots=True)
class Host:
    """A machine and how many ranks it runs; ``is_local`` if it is this one.

    ``given_address`` is its address from the scheduler, "" if not known: then its name is used.
    """

    name: str
    ranks: int
    is_local: bool
    given_address: str = ""

    @property
    def address(self) -> str:
        """The address at which other hosts reach it: a name or a number."""
        return self.given_address or self.name


@dataclass(frozen=True, kw_only=True, slots=True)
class RankHosts:
    """The hosts of a scheduler's job, on which ranks run instead of on this host's loopback network.

    This process runs on the first of them, which the others reach at ``address``. ``variables`` are the launcher's: the
    user's, and the scheduler's for this job. ``is_slurm`` if ``srun`` reaches the others, else ssh does.
    """

    hosts: tuple[Host, ...]
    address: str
    variables: Mapping[str, str]
    is_slurm: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """Their names, the first host's first."""
        return tuple(host.name for host in self.hosts)

    @property
    def ranks_per_host(self) -> int:
        """The number of ranks of each host."""
        return self.hosts[0].ranks

    def shell_command(self, host: str, script: str) -> tuple[str, ...]:
        """The command that runs a line of shell on one of the hosts, in addition to the ranks."""
        if not self.is_slurm:
            return (*ssh_command(host), script)
        step = ("--overlap", "--nodes=1", "--ntasks=1", "--cpus-per-task=1", f"--nodelist={host}", "--input=none")
        return ("srun", *step, "sh", "-c", script)


def read_hosts(path: Path) -> dict[str, int]:
    """The number of ranks for each host in a hosts file, in its order; 0 if not stated.

    A line is ``NAME``, ``NAME:RANKS``, ``NAME slots=RANKS`` or ``[IPv6]:RANKS``, ``#`` starts a comment; a host on
    several lines gets a rank for each (PBS_NODEFILE). Raises ConfigError with the line, and for a file without hosts.
    """
    ranks_by_host: dict[str, int] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), start=1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        match = _BRACKETS.fullmatch(text) or _LINE.fullmatch(text)
        if match is None:
            message = f"found {text!r}, expected NAME, NAME:RANKS or NAME slots=RANKS"
            raise ConfigError(message, path=path, line=number, hint="write an IPv6 address in brackets: [fd00::5]:2")
        groups = match.groupdict()
        count = groups["count"] or groups.get("slots")
        if count is not None and int(count) == 0:
            raise ConfigError(f"{groups['name']}: 0 ranks", path=path, line=number, hint="leave the host out")
        name, rank_count = groups["name"], int(count or 0)
        ranks_by_host[name] = (ranks_by_host[name] or 1) + (rank_count or 1) if name in ranks_by_host else rank_count
    if not ranks_by_host:
        raise ConfigError("names no host", path=path, hint="write one host per line: NAME or NAME:RANKS")
    return ranks_by_host


def spread_ranks(slots: Mapping[str, int], ranks: int, *, own_names: frozenset[str]) -> tuple[Host, ...]:
    """Assign ``ranks`` to the hosts: the stated number on each, or the same number on each if none is stated.

    Hosts that get none are left out. Raises UsageError if they do not have room for all.
    """
    if not any(slots.values()):
        each, more = divmod(ranks, len(slots))
        counts = {name: each + (1 if position < more else 0) for position, name in enumerate(slots)}
    else:
        remaining, counts = ranks, {}
        for name, room in slots.items():
            counts[name] = min(remaining, room or 1)
            remaining -= counts[name]
        if remaining:
            message = f"the hosts have room for {counted(ranks - remaining, 'rank')}, but {ranks} are requested"
            raise UsageError(message, hint="give the hosts more ranks (NAME:RANKS), or a smaller --ranks")
    return tuple(
        Host(name=name, ranks=count, is_local=name in _LOCAL | own_names) for name, count in counts.items() if count
    )


def hosts_of_the_job(ranks: int | None, *, environ: Mapping[str, str]) -> tuple[Host, ...]:
    """The hosts of the Slurm or PBS job that this runs in, with their share of the ranks; none outside a job.

    ``ranks`` None: one on each.

    Raises UsageError as spread_ranks does, CommandError if Slurm does not report the job's nodes.
    """
    own = own_host_names()
    if environ.get("SLURM_JOB_ID"):
        nodes = environ.get("SLURM_JOB_NODELIST", "")
        names = run_command(["scontrol", "show", "hostnames", nodes], env=environ).stdout.split()
        stated = run_command(["scontrol", "show", "node", nodes], env=environ, check=False).stdout
        addresses = {match["name"]: match["address"] for match in _SLURM_NODE.finditer(stated)}
        own_names_in_job = own | {environ.get("SLURMD_NODENAME", "")}
        hosts = spread_ranks(dict.fromkeys(names, 0), ranks or len(names), own_names=own_names_in_job)
        return tuple(replace(host, given_address=addresses.get(host.name, "")) for host in hosts)
    if file := environ.get("PBS_NODEFILE"):
        slots = read_hosts(Path(file))
        return spread_ranks(slots if ranks else dict.fromkeys(slots, 1), ranks or len(slots), own_names=own)
    return ()


def hosts_of_this_job(nodes: int, ranks_per_node: int, environ: Mapping[str, str]) -> RankHosts | None:
    """The hosts of the job that this runs in; None for a job of one node, for which the loopback network suffices.

    Raises UsageError outside a job and in one with another number of nodes, NetworkError for a node without a route.
    """
    hosts = hosts_of_the_job(nodes * ranks_per_node, environ=environ)
    if not hosts:
        message = "--on job: this is not running in a job of Slurm or PBS (no SLURM_JOB_ID, no PBS_NODEFILE)"
        raise UsageError(message, hint="submit one: --on slurm or --on pbs")
    if len(hosts) != nodes:
        names = ", ".join(host.name for host in hosts)
        message = f"the job has {counted(len(hosts), 'node')} ({names}), expected {nodes}"
        raise UsageError(
            message, hint=f"give --nodes {len(hosts)}, or request {counted(nodes, 'node')} from the scheduler"
        )
    if nodes == 1:
        return None
    return RankHosts(
        hosts=hosts,
        address=address_towards(hosts[1].address),
        is_slurm="SLURM_JOB_ID" in environ,
        variables={
            **user_variables(environ),
            **{name: value for name, value in environ.items() if _OF_SCHEDULERS.fullmatch(name)},
        },
    )


def own_host_names() -> frozenset[str]:
    """The names of this machine, without using a name server."""
    name = socket.gethostname()
    return frozenset({name, name.partition(".")[0]})


def check_reachable(hosts: Sequence[Host], *, env: Mapping[str, str]) -> None:
    """Raise NetworkError naming each host on which ssh cannot start a command, with ssh's message."""
    remote = [host.name for host in hosts if not host.is_local]
    answers = run_on_hosts({name: [*ssh_command(name), "true"] for name in remote}, env=env)
    failures = [f"{name}: {answer.error}" for name, answer in answers.items() if answer.error]
    if failures:
        message = "cannot start ranks on " + "; ".join(failures)
        raise NetworkError(message, hint="make `ssh HOST true` work without a password, or correct the hosts file")


def address_towards(host: str) -> str:
    """This machine's address for packets to ``host``; sends nothing. Raises NetworkError for an unknown host."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, _ANY_PORT, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])
    except OSError as err:
        message = f"{host}: no route to it from this machine: {err.strerror}"
        raise NetworkError(message, hint="correct the hosts file, or set SWITCHML_CONTROLLER to a switch") from None
