# SPDX-License-Identifier: BSD-3-Clause
"""The method ``switchml``: gloo scripts whose allreduces a software switch must have carried.

Switch, controller and ranks share this host's loopback network. The transport's parameters are set for all ranks,
since the number of packets that the switch must have seen follows from them.

SwitchML's data port is fixed and the switch tells workers apart by source address, so each run takes a /24 of its own
of 127.0.0.0/8, at random, and looks whether the switch's port is free there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from channel_tools.system.errors import UsageError
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
)
from channel_tools.validate.switchml.checks import judge
from channel_tools.validate.switchml.plan import MAX_RANKS, make_plan, ranks_document, read_options
from channel_tools.validate.switchml.switch import choose_loopback_network, running_switch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from channel_tools.system.processes import Deadline
    from channel_tools.validate.method import MethodContext
    from channel_tools.validate.model import MethodResult
    from channel_tools.validate.switchml.plan import SwitchmlOptions
    from channel_tools.validate.switchml.switch import RunningSwitch

WORKER = WORKERS / "switchml_allreduce.py"


@dataclass(frozen=True, kw_only=True, slots=True)
class RankCounts:
    """Growth of the plugin's counters: jobs and elements by dtype, fallbacks by reason; zeros left out."""

    jobs: dict[str, int]
    elements: dict[str, int]
    fallbacks: dict[str, int]
    failed_jobs: int


@dataclass(frozen=True, kw_only=True, slots=True)
class CountedCase(RankCase):
    """With what the plugin counted for it."""

    counts: RankCounts


@dataclass(frozen=True, kw_only=True, slots=True)
class CountedPath(RankPath):
    """With what the plugin counted for it."""

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


class SwitchmlMethod:
    """Runs the standard plan of allreduces and judges it by the plugin's and the switch's counters."""

    def specs(self, specs: Sequence[str], *, stack: str, options: Mapping[str, object]) -> tuple[str, ...]:  # noqa: ARG002
        """See ValidationMethod.specs."""
        return tuple(specs)

    def check(self, *, stack: str, ranks: int, options: Mapping[str, object]) -> None:
        """Raise UsageError for more ranks than a switch serves and for a transport that needs more than loopback.

        Raise ConfigError for options that are none.
        """
        if not 1 <= ranks <= MAX_RANKS:
            message = f"{ranks} ranks: a SwitchML switch serves 1 to {MAX_RANKS}"
            raise UsageError(message, hint=f"give --ranks 2 to {MAX_RANKS}")
        if needs := read_options(stack, options).needs:
            message = f"the stack {stack} cannot be validated over this host's loopback network: it needs {needs}"
            raise UsageError(message, hint="install it where that is, and run switchml-bench there, once per rank")

    def run(self, context: MethodContext) -> MethodResult:
        """See ValidationMethod.run."""
        plan = make_plan(read_options(context.stack, context.options))
        network = choose_loopback_network()
        with running_switch(
            prefix=context.prefix,
            variables=context.variables,
            address=network.switch,
            folder=context.folder,
            deadline=context.deadline,
        ) as switch:
            context.progress.note(
                f"the switch serves at {switch.ready.data}, its controller at {switch.ready.controller}"
            )
            with context.progress.task(f"allreduces of {context.ranks} ranks", total=None):
                results = run_ranks(
                    prefix=context.prefix,
                    variables={**context.variables, **_rank_variables(plan.options, switch.ready.controller)},
                    ranks=context.ranks,
                    document=ranks_document(plan, local_addresses=network.workers(context.ranks)),
                    folder=context.folder,
                    switch=switch,
                    deadline=context.deadline,
                )
            stats = switch.stop()
        return judge(plan, results, stats, prefix=context.prefix)


def _rank_variables(options: SwitchmlOptions, controller: str) -> dict[str, str]:
    return {
        **rank_variables(),
        "SWITCHML_CONTROLLER": controller,
        "SWITCHML_HOST_REDUCTION": "off",  # each rank on the wire: those of one host alone would not use the switch
        "SWITCHML_NUM_THREADS": str(options.num_threads),
        "SWITCHML_PACKET_NUMEL": str(options.packet_numel),
        "SWITCHML_MAX_OUTSTANDING_PACKETS": str(options.max_outstanding_packets),
        "SWITCHML_CONNECT_TIMEOUT_MS": str(round(options.connect_timeout_s * 1000)),
        "SWITCHML_JOB_TIMEOUT_MS": str(round(options.job_timeout_s * 1000)),
    }


def run_ranks(
    *,
    prefix: Path,
    variables: Mapping[str, str],
    ranks: int,
    document: Mapping[str, object],
    folder: Path,
    switch: RunningSwitch,
    deadline: Deadline,
) -> tuple[RankResult, ...]:
    """Run the worker script as ``ranks`` processes and return their results by rank. Raises as run_job."""
    job = RankJob(
        name="the ranks' launcher",
        launcher=forked_ranks(prefix, ranks),
        worker=WORKER,
        variables=variables,
        ranks=ranks,
        document=document,
        folder=folder,
    )
    run_job(job, deadline=deadline, companions=[switch])
    return read_results(job, RankResult, hint="install a torch-switchml of this channel's version")
