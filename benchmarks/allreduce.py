# SPDX-License-Identifier: BSD-3-Clause
"""SwitchML's allreduce beside plain gloo's: the same ranks in one environment, a call of each in turn.

Ranks of one host share its loopback network with a software switch. Those of several hosts are in network namespaces,
joined by a bridge that the switch is at; that needs root, and is left out by name without. Loss is the switch's own: it
drops that share of the packets each way, while gloo's TCP loses nothing. Writes allreduce.json and .md.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import shlex
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from benchmarks.allreduce_report import Measured, write_report
from channel_tools.environments import activated_environment, create_environment
from channel_tools.ranks.launchers import HostCommand, torchrun_commands
from channel_tools.ranks.plan import local_plan, placement_here
from channel_tools.system.processes import Deadline
from channel_tools.system.progress import SilentProgress
from channel_tools.system.settings import find_cache
from channel_tools.validate.cases import Speed
from channel_tools.validate.judging import slowest_calls, spread_of
from channel_tools.validate.ranks import RankJob, rank_words, read_results, run_job, worker_variables
from channel_tools.validate.switchml.method import PROGRAM as SWITCH
from channel_tools.validate.switchml.method import (
    WORKER,
    RankResult,
    SwitchmlOptions,
    SwitchmlPlan,
    choose_loopback_network,
    ranks_document,
    running_switch,
)
from tests.support.programs import program
from tests.support.switch import SWITCH_ADDRESS, cluster_of, worker_interface

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from channel_tools.validate.model import Spread
    from channel_tools.validate.ranks import RankPath

SPECS = ("pytorch-switchml", "libswitchml * udp*", "switchml-switch")
SUBDIR = "linux-64"
LIMIT_S = 900.0
MASTER_PORT = 29500
"""PyTorch's own; nothing else listens in namespaces that are new."""
SIZES = ((1, 20, 200), (16 << 10, 10, 100), (1 << 18, 5, 40), (1 << 20, 3, 20), (4 << 20, 2, 10), (16 << 20, 1, 7))
"""Elements, calls that do not count, calls that do."""
LOSSY_SIZES = SIZES[3:5]


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """Ranks on hosts, as many on each, and the share of packets that the switch drops each way."""

    ranks: int
    hosts: int
    host_reduction: bool = True
    loss: float = 0.0

    @property
    def workers(self) -> int:
        """Those that the switch sees; ranks that are all on one host need none."""
        if not self.host_reduction:
            return self.ranks
        return self.hosts if self.hosts > 1 else 0

    @property
    def name(self) -> str:
        """In words."""
        hosts = "1 host" if self.hosts == 1 else f"{self.hosts} hosts"
        through_switch = ", each through the switch" if self.hosts == 1 and not self.host_reduction else ""
        return f"{self.ranks} ranks, {hosts}{through_switch}" + (f", {self.loss:.0%} loss" if self.loss else "")


SETTINGS = (
    Setting(ranks=2, hosts=1),
    Setting(ranks=4, hosts=1),
    Setting(ranks=2, hosts=1, host_reduction=False),
    Setting(ranks=4, hosts=1, host_reduction=False),
    Setting(ranks=2, hosts=2),
    Setting(ranks=4, hosts=2),
    Setting(ranks=2, hosts=2, loss=0.01),
    Setting(ranks=2, hosts=2, loss=0.05),
    Setting(ranks=4, hosts=2, loss=0.01),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Setup:
    """Where the ranks and the switch of one setting run."""

    switch_address: str
    before_switch: tuple[str, ...]
    local_addresses: tuple[str, ...]
    launcher: tuple[str, ...]
    """The command up to the script; empty for the environment's torchrun."""
    variables: dict[str, str]


@contextlib.contextmanager
def setup_of(setting: Setting, prefix: Path) -> Iterator[Setup]:
    """Loopback for one host, else namespaces; raises pytest's skip where those are not to be had."""
    if setting.hosts == 1:
        network = choose_loopback_network()
        yield Setup(
            switch_address=network.switch,
            before_switch=(),
            local_addresses=network.workers(setting.ranks),
            launcher=(),
            variables={},
        )
        return
    with cluster_of(setting.hosts) as cluster:
        per_host = setting.ranks // setting.hosts
        yield Setup(
            switch_address=SWITCH_ADDRESS,
            before_switch=tuple(cluster.inside(cluster.switch)),
            local_addresses=tuple(f"10.83.0.{rank // per_host + 1}" for rank in range(setting.ranks)),
            launcher=("sh", "-c", torchrun_on_hosts(prefix, cluster.workers, per_host), "sh"),
            variables={"PATH": f"{Path(program('ip')).parent}:{os.environ['PATH']}"},
        )


def torchrun_on_hosts(prefix: Path, namespaces: Sequence[str], per_host: int) -> str:
    """A shell's words that run its arguments as ranks in all namespaces, and end well if all do."""
    lines = []
    for number, namespace in enumerate(namespaces):
        lines.append(
            f"GLOO_SOCKET_IFNAME={worker_interface(number)} {program('ip')} netns exec {namespace} "
            f"{prefix}/bin/python -m torch.distributed.run --nnodes={len(namespaces)} --node-rank={number} "
            f'--nproc-per-node={per_host} --master-addr=10.83.0.1 --master-port={MASTER_PORT} "$@" & p{number}=$!'
        )
    return "\n".join([*lines, "trap 'kill $(jobs -p)' TERM", *(f"wait $p{n} || exit" for n in range(len(namespaces)))])


def measure(setting: Setting, prefix: Path, sizes: Sequence[tuple[int, int, int]], folder: Path) -> list[Measured]:
    """Every size in one launch of the ranks."""
    speeds = tuple(
        Speed(dtype="float32", numel=numel, warmups=warmups, repetitions=repetitions)
        for numel, warmups, repetitions in sizes
    )
    plan = SwitchmlPlan(options=SwitchmlOptions(), cases=(), speeds=speeds)
    environment = activated_environment(prefix, environ=os.environ)
    deadline = Deadline.after(LIMIT_S)
    with setup_of(setting, prefix) as setup:
        options = ("--drop-rate", str(setting.loss), "--drop-result-rate", str(setting.loss)) if setting.loss else ()
        switch_prefix = folder / "switch"
        write_switch_starter(switch_prefix, [*setup.before_switch, prefix / "bin" / SWITCH, *options])
        with running_switch(
            prefix=switch_prefix,
            variables=environment,
            address=setup.switch_address,
            folder=folder,
            deadline=deadline,
        ) as switch:
            variables = {
                **environment,
                **worker_variables(folder),
                "SWITCHML_CONTROLLER": switch.ready.controller,
                "SWITCHML_HOST_REDUCTION": "on" if setting.host_reduction else "off",
            }
            here = placement_here(prefix, setting.ranks, variables={**variables, **setup.variables})
            words = rank_words(WORKER, folder)
            own = (HostCommand(host=None, words=(*setup.launcher, *words)),)
            commands = own if setup.launcher else torchrun_commands(here.start(words))
            job = RankJob(
                name="ranks",
                plan=local_plan(here, commands, stack="switchml", launcher="torchrun", folder=folder),
                ranks=setting.ranks,
                document=ranks_document(plan, local_addresses=setup.local_addresses),
                folder=folder,
            )
            run_job(job, deadline=deadline, companions=[switch])
            results = read_results(job, RankResult, hint="build the channel of this tree")
            stats = switch.stop()
    if stats.num_workers != setting.workers:
        sys.exit(f"{setting.name}: the switch saw {stats.num_workers} workers, expected {setting.workers}")
    return [
        Measured(
            setting=setting.name,
            size_bytes=speed.size_bytes,
            switchml_s=seconds_of([result.speeds[index].paths.default for result in results]),
            gloo_s=seconds_of([result.speeds[index].paths.plain for result in results]),
            load=os.getloadavg()[0],
        )
        for index, speed in enumerate(speeds)
    ]


def write_switch_starter(prefix: Path, command: Sequence[str | Path]) -> None:
    """Put a script that runs this command, and the arguments it gets, where ``prefix`` has the switch's program."""
    starter = prefix / "bin" / SWITCH
    starter.parent.mkdir(parents=True)
    starter.write_text(f'#!/bin/sh\nexec {shlex.join(map(str, command))} "$@"\n')
    starter.chmod(0o755)


def seconds_of(ranks: Sequence[RankPath]) -> Spread:
    """Median and quartiles of the calls, each as long as its slowest rank took; every result was right."""
    if any(rank.mismatches for rank in ranks):
        sys.exit("wrong sums: nothing was measured")
    return spread_of(slowest_calls(ranks))


def install(prefix: Path, channel: Path, specs: Sequence[str]) -> Path:
    """An environment of packages from a channel folder; gives its prefix."""
    return asyncio.run(
        create_environment(
            prefix,
            specs,
            [channel.resolve().as_uri()],
            package_cache=find_cache(os.environ) / "packages",
            subdir=SUBDIR,
            progress=SilentProgress(),
            replace=lambda _changes: True,  # one of an earlier run
        )
    ).prefix


def main() -> int:
    """Measure every setting, or those whose names hold a word given."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*", help="only settings whose names hold one of these")
    parser.add_argument("--channel", type=Path, default=Path("output/channel"))
    parser.add_argument("--prefix", type=Path, help="an environment that is there, instead of one from the channel")
    parser.add_argument("--output", type=Path, default=Path("output/bench"))
    arguments = parser.parse_args()
    rows: list[Measured] = []
    with tempfile.TemporaryDirectory(prefix="channel-tools-bench-") as holder:
        prefix = arguments.prefix or install(Path(holder) / "env", arguments.channel, SPECS)
        for number, setting in enumerate(SETTINGS):
            if arguments.words and not any(word in setting.name for word in arguments.words):
                continue
            folder = Path(holder) / str(number)
            folder.mkdir()
            try:
                rows += measure(setting, prefix, LOSSY_SIZES if setting.loss else SIZES, folder)
            except pytest.skip.Exception as reason:
                print(f"{setting.name}: left out: {reason}", file=sys.stderr)
    arguments.output.mkdir(parents=True, exist_ok=True)
    print(write_report(rows, arguments.output))
    return 0


if __name__ == "__main__":
    sys.exit(main())
