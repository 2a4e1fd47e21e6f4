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

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from channel_tools.ranks.hosts import address_towards
from channel_tools.ranks.launchers import forked_ranks
from channel_tools.ranks.plan import Account, StartSettings, local_plan, placement_here
from channel_tools.ranks.services import ServiceOptions, choose_port
from channel_tools.system.counting import counted
from channel_tools.system.errors import UsageError
from channel_tools.system.pages import size_in_words
from channel_tools.validate.judging import numbers_in_words
from channel_tools.validate.model import ValidationMethod
from channel_tools.validate.ranks import (
    WORKERS,
    RankJob,
    plan_on_hosts,
    rank_words,
    read_results,
    run_job,
    worker_variables,
)
from channel_tools.validate.shell_lines import last_line, torchrun_line
from channel_tools.validate.switchml.checks import RankResult, judge
from channel_tools.validate.switchml.plan import MAX_RANKS, make_plan, ranks_document, read_options
from channel_tools.validate.switchml.switch import DATA_PORT, PROGRAM, choose_loopback_network, running_switch

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from channel_tools.ranks.plan import Placement, RankPlan
    from channel_tools.system.yamlfile import YamlValue
    from channel_tools.validate.model import MethodContext, MethodResult
    from channel_tools.validate.switchml.plan import SwitchmlOptions, SwitchmlPlan

WORKER = WORKERS / "switchml_allreduce.py"
CONTROLLER, HOST_REDUCTION, ENABLE = "SWITCHML_CONTROLLER", "SWITCHML_HOST_REDUCTION", "SWITCHML_ENABLE"
NO_CONTROLLER = "none"
"""Names no host: what the ranks are given where they need the plugin and no switch."""
CONTROLLER_PORT = 50099
"""The controller port of a software switch for a user's script: libswitchml's default."""


_HINT = "install a torch-switchml of this channel's version"


class SwitchmlMethod(ValidationMethod):
    """Runs the standard plan of allreduces and checks it by the plugin's and the switch's counters.

    On one host the ranks of a user reduce in its memory, which proves nothing of the transport: they are measured after
    that by themselves.
    """

    has_switch = True

    def backend(self, options: Mapping[str, object]) -> str:  # noqa: ARG002
        """See ValidationMethod.backend."""
        return "switchml"

    def check(self, *, stack: str, ranks: int, options: Mapping[str, object], hosts: int = 1) -> None:
        """Raise UsageError for more workers than a switch serves and for a transport that needs special hardware.

        Raise ConfigError for invalid options.
        """
        workers = ranks if hosts == 1 else hosts
        if not 1 <= workers <= MAX_RANKS:
            noun, option = ("ranks", "--ranks") if hosts == 1 else ("hosts", "--nodes")
            message = f"{workers} {noun}: a SwitchML switch serves 1 to {MAX_RANKS}"
            raise UsageError(message, hint=f"give {option} 2 to {MAX_RANKS}")
        if needs := read_options(stack, options).needs:
            message = f"the stack {stack} cannot be validated over this host's loopback network: it needs {needs}"
            hint = read_options(stack, options).instead
            raise UsageError(
                message, hint=hint or "install it on such a machine, and run switchml-bench there, once per rank"
            )

    def start_settings(
        self,
        placement: Placement,
        *,
        stack: str,
        options: Mapping[str, object],  # noqa: ARG002
        switch: bool = False,
    ) -> StartSettings:
        """See ValidationMethod.start_settings.

        Ranks of one host reduce in its memory and need no switch; on several hosts a software switch is started, unless
        the controller of another is named. Raises UsageError for a transport that has no software switch where one is
        needed, and for variables that contradict ``switch``.
        """
        return replace(_start_settings(placement, stack, switch=switch), account=ACCOUNT)

    def how_to_run(self, options: Mapping[str, YamlValue]) -> Iterator[str]:  # noqa: ARG002
        """See ValidationMethod.how_to_run."""
        yield f"{PROGRAM} --address HOST --controller-port {CONTROLLER_PORT} &   # or the controller of your switch"
        yield f"export {CONTROLLER}=HOST:{CONTROLLER_PORT}   # on every host"
        yield torchrun_line()
        yield last_line("torch_switchml", 'stats()["delegated"]')

    def run(self, context: MethodContext) -> MethodResult:
        """See ValidationMethod.run."""
        hosts = context.hosts
        plan = make_plan(
            read_options(context.stack, context.options), ranks_per_worker=1 if hosts is None else hosts.ranks_per_host
        )
        network = choose_loopback_network()
        with running_switch(
            prefix=context.prefix,
            variables=context.variables,
            address=network.switch if hosts is None else hosts.address,
            data_port=DATA_PORT if hosts is None else 0,
            folder=context.folder,
            deadline=context.deadline,
        ) as switch:
            context.progress.note(
                f"the switch serves at {switch.ready.data}, its controller at {switch.ready.controller}"
            )
            job = RankJob(
                name="the ranks' launcher",
                plan=self._plan_of_ranks(context, plan, switch.ready.controller),
                ranks=context.ranks,
                document=ranks_document(
                    plan,
                    local_addresses=() if hosts is not None else network.workers(context.ranks),
                    is_on_hosts=hosts is not None,
                ),
                folder=context.folder,
            )
            with context.progress.task(f"allreduces of {counted(context.ranks, 'rank')}", total=None):
                run_job(job, deadline=context.deadline, companions=[switch])
            results = read_results(job, RankResult, hint=_HINT)
            stats = switch.stop()
        names = () if hosts is None else hosts.names
        here = None if hosts is not None or context.ranks == 1 else (plan.speeds_here, self._run_here(context, plan))
        return judge(plan, results, stats, prefix=context.prefix, hosts=names, here=here)

    def _run_here(self, context: MethodContext, plan: SwitchmlPlan) -> Sequence[RankResult]:
        """Measure as users run it on this host, who set nothing; what the ranks write."""
        folder = context.folder / "here"
        folder.mkdir()
        job = RankJob(
            name="the launcher of ranks with nothing set",
            plan=self._plan_on_this_host(context, folder, {}, trains=False),
            ranks=context.ranks,
            document=ranks_document(replace(plan, cases=(), speeds=plan.speeds_here)),
            folder=folder,
        )
        with context.progress.task(f"allreduces of {counted(context.ranks, 'rank')} with nothing set", total=None):
            run_job(job, deadline=context.deadline)
        return read_results(job, RankResult, hint=_HINT)

    def _plan_of_ranks(self, context: MethodContext, plan: SwitchmlPlan, controller: str) -> RankPlan:
        own = _rank_variables(plan.options, controller)
        if context.hosts is not None:
            own["SWITCHML_WORKER_PORT"] = str(choose_port())
            return plan_on_hosts(self, context, context.hosts, words=rank_words(WORKER, context.folder), own=own)
        # each rank is a worker: ranks of a single host would otherwise not use the switch
        return self._plan_on_this_host(context, context.folder, {HOST_REDUCTION: "off", **own}, trains=plan.trains)

    def _plan_on_this_host(
        self, context: MethodContext, folder: Path, own: Mapping[str, str], *, trains: bool
    ) -> RankPlan:
        variables = {**context.variables, **worker_variables(folder), **own}
        placement = placement_here(context.prefix, context.ranks, variables=variables)
        commands = forked_ranks(placement.start(rank_words(WORKER, folder)), trains=trains)
        return local_plan(placement, commands, stack=context.stack, launcher=commands[0].words[1], folder=folder)


METHOD = SwitchmlMethod()


def summary(report: Mapping[str, Any] | None) -> str:
    """What carried a user's script, from the plugin's report on rank 0; None if the plugin has left none."""
    if report is None:
        return f"gloo carried this job, or nothing had to be: SwitchML opened no session on rank 0 ({ENABLE}=0?)"
    jobs = sum(row["jobs"] for row in report["delegated"].values())
    size = size_in_words(sum(row["bytes"] for row in report["delegated"].values()))
    left = {reason.replace("_", " "): count for reason, count in report["fallbacks"].items() if count}
    rest = f"; gloo carried {counted(sum(left.values()), 'allreduce')} ({numbers_in_words(left)})" if left else ""
    if report["failure"]:
        rest += f"; SwitchML's session failed: {report['failure']}"
    if not jobs:
        return f"SwitchML carried nothing{rest}"
    transport = (report["library"] or {}).get("transport", "")
    if report["host"] is not None and report["host"]["workers"] == 0:
        carrier = "the memory of this host carried"
    elif transport == "dummy":
        carrier = "nothing carried, the transport dummy multiplied"
    else:
        carrier = f"SwitchML ({transport}, controller {report['controller']}) carried"
    return f"{carrier} {counted(jobs, 'allreduce')} of rank 0, {size}{rest}"


ACCOUNT = Account(variable="SWITCHML_STATS_FILE", summary=summary)


def _start_settings(placement: Placement, stack: str, *, switch: bool) -> StartSettings:
    if switch:
        _refuse_contradictions(placement)
        return _with_switch(placement, stack)
    if _variable(placement, CONTROLLER):
        return StartSettings()
    if _transport(placement) == "dummy":
        return StartSettings(variables={CONTROLLER: NO_CONTROLLER})
    if not _is_one_host(placement):
        return _with_switch(placement, stack)
    if _is_off(_variable(placement, HOST_REDUCTION)):
        message = f"{HOST_REDUCTION} is off: each rank would go through a switch, and {CONTROLLER} names none"
        raise UsageError(message, hint=f"unset {HOST_REDUCTION}, or try a software switch: --switch")
    # a group of one rank would open a session, to reduce nothing
    return StartSettings(variables={} if placement.ranks == 1 else {CONTROLLER: NO_CONTROLLER})


def _variable(placement: Placement, name: str) -> str:
    """The variable as the user, or else the activation of the environment, has set it; "" if neither has."""
    return placement.environ.get(name) or placement.variables.get(name, "")


def _is_one_host(placement: Placement) -> bool:
    return len(placement.hosts) == 1 or all(host.is_local for host in placement.hosts)


def _is_off(value: str) -> bool:
    """Whether the plugin reads the value of a switch as off (torch_switchml/settings.py)."""
    return value.strip().lower() in {"0", "off", "false", "no"}


def _transport(placement: Placement) -> str:
    return placement.installed.get("libswitchml", " udp_").partition(" ")[2].partition("_h")[0]


def _refuse_contradictions(placement: Placement) -> None:
    """Raise UsageError for a variable with which the ranks would not use the switch that is started for them."""
    reduction = _variable(placement, HOST_REDUCTION)
    for name, contradicts, consequence in (
        (CONTROLLER, bool(_variable(placement, CONTROLLER)), "names another switch"),
        (HOST_REDUCTION, bool(reduction) and not _is_off(reduction), "keeps the ranks of a host from using one"),
        (ENABLE, _is_off(_variable(placement, ENABLE)), "switches the plugin off"),
    ):
        if contradicts:
            message = f"--switch starts a software switch, but {name}={_variable(placement, name)} {consequence}"
            raise UsageError(message, hint=f"unset {name}, or leave --switch out")


def _with_switch(placement: Placement, stack: str) -> StartSettings:
    """A software switch beside the ranks, which learn its controller. Raises UsageError if the transport has none."""
    if (transport := _transport(placement)) != "udp":
        message = f"stack {stack}: no software switch can be started for libswitchml's {transport}"
        raise UsageError(message, hint=f"set {CONTROLLER} to host:port of your switch's controller")
    remote = [host for host in placement.hosts if not host.is_local]
    address = address_towards(remote[0].address) if remote else choose_loopback_network().switch
    variables = {CONTROLLER: f"{address}:{CONTROLLER_PORT}"}
    if _is_one_host(placement):  # its ranks would reduce in its memory and bypass the switch
        variables[HOST_REDUCTION] = "off"
    if not remote:
        variables["SWITCHML_WORKER_PORT"] = str(choose_port())
    service = ServiceOptions(
        command=(PROGRAM, "--address", address, "--controller-port", str(CONTROLLER_PORT)),
        ready_line=re.compile(r'"event": *"ready"'),
    )
    return StartSettings(variables=variables, services=(service,))


def _rank_variables(options: SwitchmlOptions, controller: str) -> dict[str, str]:
    return {
        CONTROLLER: controller,
        "SWITCHML_NUM_THREADS": str(options.num_threads),
        "SWITCHML_PACKET_NUMEL": str(options.packet_numel),
        "SWITCHML_MAX_OUTSTANDING_PACKETS": str(options.max_outstanding_packets),
        "SWITCHML_CONNECT_TIMEOUT_MS": str(round(options.connect_timeout_s * 1000)),
        "SWITCHML_JOB_TIMEOUT_MS": str(round(options.job_timeout_s * 1000)),
    }
