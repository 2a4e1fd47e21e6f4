# SPDX-License-Identifier: BSD-3-Clause
"""The method ``switchml``: gloo scripts whose allreduces a software switch must have carried.

Switch, controller and ranks share this host's loopback network. The transport's parameters are set for all ranks,
since the number of packets that the switch must have seen follows from them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from channel_tools.errors import UsageError
from channel_tools.validate.launch import rank_variables
from channel_tools.validate.loopback import choose_loopback_network
from channel_tools.validate.ranks import run_ranks
from channel_tools.validate.switch import running_switch
from channel_tools.validate.switchml_checks import judge
from channel_tools.validate.switchml_plan import MAX_RANKS, make_plan, ranks_document, read_options

if TYPE_CHECKING:
    from collections.abc import Mapping

    from channel_tools.validate.context import MethodContext
    from channel_tools.validate.model import MethodResult
    from channel_tools.validate.switchml_plan import SwitchmlOptions


class SwitchmlMethod:
    """Runs the standard plan of allreduces and judges it by the plugin's and the switch's counters."""

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
        "SWITCHML_NUM_THREADS": str(options.num_threads),
        "SWITCHML_PACKET_NUMEL": str(options.packet_numel),
        "SWITCHML_MAX_OUTSTANDING_PACKETS": str(options.max_outstanding_packets),
        "SWITCHML_CONNECT_TIMEOUT_MS": str(round(options.connect_timeout_s * 1000)),
        "SWITCHML_JOB_TIMEOUT_MS": str(round(options.job_timeout_s * 1000)),
    }
