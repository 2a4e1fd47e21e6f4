# SPDX-License-Identifier: BSD-3-Clause
"""The method ``switchml``: gloo scripts whose allreduces a software switch must have carried.

Switch, controller and ranks use this host's loopback network. The transport's parameters are set for all ranks, since
they determine the number of packets that the switch must have received.

SwitchML's data port is fixed and the switch distinguishes workers by source address, so each run uses its own random
/24 of 127.0.0.0/8, and checks that the switch's port is free there.

On the hosts of a scheduler's job, the ranks run like a user's: those of a host add in shared memory and are one worker,
and the switch, on the first host, uses free ports, since other jobs may run there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from channel_tools.system.counting import counted
from channel_tools.system.errors import UsageError
from channel_tools.validate.distributed.services import choose_port
from channel_tools.validate.model import ValidationMethod
from channel_tools.validate.ranks import (
    WORKERS,
    RankCase,
    RankFacts,
    RankJob,
    RankPath,
    RankSpeed,
    forked_ranks,
    rank_variables,
    read_results,
    run_job,
    without_loopback,
)
from channel_tools.validate.switchml.checks import judge
from channel_tools.validate.switchml.plan import MAX_RANKS, make_plan, ranks_document, read_options
from channel_tools.validate.switchml.switch import DATA_PORT, choose_loopback_network, running_switch

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from channel_tools.validate.model import MethodContext, MethodResult
    from channel_tools.validate.switchml.plan import SwitchmlOptions

WORKER = WORKERS / "switchml_allreduce.py"


@dataclass(frozen=True, kw_only=True, slots=True)
class RankCounts:
    """Increases of the plugin's counters: jobs and elements by dtype, fallbacks by reason, without zeros."""

    jobs: dict[str, int]
    elements: dict[str, int]
    fallbacks: dict[str, int]
    failed_jobs: int


@dataclass(frozen=True, kw_only=True, slots=True)
class CountedCase(RankCase):
    """A case of one rank, with what the plugin counted for it."""

    counts: RankCounts


@dataclass(frozen=True, kw_only=True, slots=True)
class CountedPath(RankPath):
    """A measurement of one rank, with what the plugin counted for it."""

    counts: RankCounts


@dataclass(frozen=True, kw_only=True, slots=True)
class PluginLibrary:
    """The transport library that the plugin loaded."""

    path: str
    version: str
    transport: str


@dataclass(frozen=True, kw_only=True, slots=True)
class DelegatedTotals:
    """Completed jobs of one dtype."""

    jobs: int
    elements: int
    bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class PluginStats:
    """The plugin's own report at the end of a rank."""

    active: bool
    version: str
    library: PluginLibrary | None
    delegated: dict[str, DelegatedTotals]
    fallbacks: dict[str, int]
    failed_jobs: int


@dataclass(frozen=True, kw_only=True, slots=True)
class RankResult(RankFacts):
    """Everything that one rank wrote."""

    cases: tuple[CountedCase, ...]
    speeds: tuple[RankSpeed[CountedPath], ...]
    stats: PluginStats


class SwitchmlMethod(ValidationMethod):
    """Runs the standard plan of allreduces and checks it by the plugin's and the switch's counters."""

    def backend(self, options: Mapping[str, object]) -> str:  # noqa: ARG002
        """See ValidationMethod.backend."""
        return "switchml"

    def check(self, *, stack: str, ranks: int, options: Mapping[str, object], hosts: int = 1) -> None:
        """Raise UsageError for more workers than a switch serves and for a transport that needs special hardware.

        Raise ConfigError for invalid options.
        """
        workers = ranks if hosts == 1 else hosts
        if not 1 <= workers <= MAX_RANKS:
            what, option = ("ranks", "--ranks") if hosts == 1 else ("hosts", "--nodes")
            message = f"{workers} {what}: a SwitchML switch serves 1 to {MAX_RANKS}"
            raise UsageError(message, hint=f"give {option} 2 to {MAX_RANKS}")
        if needs := read_options(stack, options).needs:
            message = f"the stack {stack} cannot be validated over this host's loopback network: it needs {needs}"
            raise UsageError(message, hint="install it on such a machine, and run switchml-bench there, once per rank")

    def run(self, context: MethodContext) -> MethodResult:
        """See ValidationMethod.run."""
        ranks_per_worker = 1 if context.hosts is None else context.hosts.ranks_per_host
        plan = make_plan(read_options(context.stack, context.options), ranks_per_worker=ranks_per_worker)
        place = _place(context, trains=plan.trains)
        with running_switch(
            prefix=context.prefix,
            variables=context.variables,
            address=place.switch,
            data_port=place.data_port,
            folder=context.folder,
            deadline=context.deadline,
        ) as switch:
            context.progress.note(
                f"the switch serves at {switch.ready.data}, its controller at {switch.ready.controller}"
            )
            job = RankJob(
                name="the ranks' launcher",
                launcher=place.launcher,
                worker=WORKER,
                variables={**place.variables, **_rank_variables(plan.options, switch.ready.controller)},
                ranks=context.ranks,
                document=ranks_document(
                    plan, local_addresses=place.local_addresses, is_on_hosts=context.hosts is not None
                ),
                folder=context.folder,
            )
            with context.progress.task(f"allreduces of {counted(context.ranks, 'rank')}", total=None):
                run_job(job, deadline=context.deadline, companions=[switch])
            results = read_results(job, RankResult, hint="install a torch-switchml of this channel's version")
            stats = switch.stop()
        hosts = () if context.hosts is None else context.hosts.names
        return judge(plan, results, stats, prefix=context.prefix, hosts=hosts)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Place:
    """Addresses of the switch, how ranks are started, and their ``local_addresses``, if they need any."""

    switch: str
    data_port: int
    launcher: tuple[str | Path, ...]
    variables: Mapping[str, str]
    local_addresses: tuple[str, ...]


def _place(context: MethodContext, *, trains: bool) -> _Place:
    hosts = context.hosts
    if hosts is None:
        network = choose_loopback_network()
        return _Place(
            switch=network.switch,
            data_port=DATA_PORT,
            launcher=forked_ranks(context.prefix, context.ranks, trains=trains),
            # each rank is a worker: ranks of a single host would otherwise not use the switch
            variables={**context.variables, **rank_variables(), "SWITCHML_HOST_REDUCTION": "off"},
            local_addresses=network.workers(context.ranks),
        )
    own = {**without_loopback(rank_variables()), "SWITCHML_WORKER_PORT": str(choose_port())}
    return _Place(
        switch=hosts.address,
        data_port=0,
        launcher=hosts.command(context.prefix, context.ranks),
        variables={**hosts.variables, **own},
        local_addresses=(),
    )


def _rank_variables(options: SwitchmlOptions, controller: str) -> dict[str, str]:
    return {
        "SWITCHML_CONTROLLER": controller,
        "SWITCHML_NUM_THREADS": str(options.num_threads),
        "SWITCHML_PACKET_NUMEL": str(options.packet_numel),
        "SWITCHML_MAX_OUTSTANDING_PACKETS": str(options.max_outstanding_packets),
        "SWITCHML_CONNECT_TIMEOUT_MS": str(round(options.connect_timeout_s * 1000)),
        "SWITCHML_JOB_TIMEOUT_MS": str(round(options.job_timeout_s * 1000)),
    }
