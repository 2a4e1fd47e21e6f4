# SPDX-License-Identifier: BSD-3-Clause
"""Plans, from a stack's settings, how to run a user's script as its ranks, also as a job script."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from channel_tools.conda.specs import spec_name
from channel_tools.doctor.model import ROOT
from channel_tools.doctor.profile import NETWORK_OPTION, read_profile
from channel_tools.environments import check_environment, missing_specs
from channel_tools.matrix import find_stack, load_tree
from channel_tools.ranks.hosts import own_host_names, read_hosts, spread_ranks
from channel_tools.ranks.jobs import JobOptions, job_script
from channel_tools.ranks.plan import find_placement, plan_ranks
from channel_tools.ranks.watch import Watch, WatchOptions, watch_note, watched_words, with_recorder
from channel_tools.system.errors import UsageError
from channel_tools.system.files import absolute_path
from channel_tools.system.settings import active_prefix

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from channel_tools.matrix.model import LoadedTree, Stack
    from channel_tools.ranks.plan import RankPlan
    from channel_tools.requests.launch import ScriptRequest
    from channel_tools.requests.names import SchedulerName
    from channel_tools.system.progress import Progress
    from channel_tools.system.settings import Settings
    from channel_tools.validate.model import ValidationMethod


def plan_script(
    settings: Settings, request: ScriptRequest, *, environ: Mapping[str, str], watch_in: Path | None = None
) -> RankPlan:
    """The commands and variables; with ``watch_in``, the watch's folder, of ranks that are watched.

    Raises as plan_ranks does, and UsageError for a stack that has no ranks and for a script that cannot be watched.
    """
    prefix = chosen_prefix(request.prefix, environ)
    check_environment(prefix)
    stack = launchable_stack(settings, request.stack, prefix)
    wanted = {} if request.hosts_file is None else read_hosts(request.hosts_file)
    hosts = spread_ranks(wanted, request.ranks, own_names=own_host_names()) if wanted else ()
    placement = find_placement(prefix, request.ranks, hosts=hosts, environ=environ)
    method, options = launchable_method(stack, request), method_options(stack)
    start = method.start_settings(placement, stack=stack.name, options=options, switch=request.switch)
    words = request.words
    if watch_in is not None and request.watch is not None:
        words = watched_words(watch_in, request.watch, words)
    plan = plan_ranks(
        placement,
        start,
        stack=stack.name,
        words=words,
        folder=request.folder,
        launcher=request.launcher,
        network=request.network,
    )
    return plan if watch_in is None else with_recorder(plan)


def watch_of(request: ScriptRequest, plan: RankPlan, folder: Path, progress: Progress) -> Watch:
    """The watch of a request that has one, with a note on how it will look."""
    options = WatchOptions(seconds=float(request.watch or 0), ends=request.watch_end)
    progress.note(watch_note(plan.placement.prefix, seconds=options.seconds))
    return Watch(options=options, plan=plan, folder=folder, say=progress.note)


def check_script(request: ScriptRequest) -> None:
    """Raise UsageError if the script does not exist, unless other hosts are named: it may be only there."""
    script = request.words[0]
    if request.hosts_file is None and not script.startswith("-") and not (request.folder / script).is_file():
        message = f"{script}: no such file in {request.folder}"
        raise UsageError(message, hint="name the Python script to start, then its own arguments")


def write_job(settings: Settings, request: ScriptRequest, *, environ: Mapping[str, str], root: Path = ROOT) -> str:
    """The text of the request's job script; ``root`` has /sys. Raises as launchable_stack, read_profile, job_script."""
    if request.emit is None:
        raise ValueError("the request has no scheduler")
    prefix = absolute_path(chosen_prefix(request.prefix, environ))
    stack = launchable_stack(settings, request.stack, prefix)
    # the environment's own record says on the job's host, too, which stack it is
    named = () if request.stack is None and not settings.tree.has_recipes else ("--stack", stack.name)
    method = launchable_method(stack, request)
    launcher = () if request.launcher is None else ("--launcher", request.launcher)
    switch = ("--switch",) if request.switch else ()
    seconds = () if request.watch is None else ("--watch", str(request.watch))
    ends = ("--watch-end",) if request.watch_end else ()
    command = (
        sys.executable, "-P", "-m", "channel_tools", "launch", *root_words(settings), *named,
        "--ranks", str(request.ranks), "--prefix", str(prefix), *launcher, *switch, *seconds, *ends, *request.words,
    )  # fmt: skip
    options = JobOptions(
        scheduler=request.emit,
        name=stack.name,
        ranks=request.ranks,
        nodes=request.node_count,
        time=request.time_limit,
        gpus=method.uses_gpus(stack.validation),
        folder=request.folder,
    )
    more = network_options(prefix, request.emit, request.node_count, root=root)
    if request.network is not None:
        more = (f"--network={request.network}",)
    return job_script(options, command, submit_options=more)


def network_options(prefix: Path, scheduler: SchedulerName, nodes: int, *, root: Path = ROOT) -> tuple[str, ...]:
    """The scheduler's option for the alternative rendezvous that the profile of the environment wants, or none.

    ``root`` has /sys: asked for on a node of the fabric; elsewhere the scheduler would not know the option. Raises as
    read_profile does.
    """
    profile = read_profile(prefix)
    asks = profile is not None and profile.wants_alternative_rendezvous and profile.is_for(root)
    return (NETWORK_OPTION,) if asks and scheduler == "slurm" and nodes > 1 else ()


def root_words(settings: Settings) -> tuple[str, ...]:
    """The option that names the tree to the same program on another host; none for installed stacks, found there."""
    return ("--root", str(settings.tree.root)) if settings.tree.has_recipes else ()


def launchable_stack(settings: Settings, name: str | None, prefix: Path) -> Stack:
    """The stack of that name, else that of the environment.

    Raises UsageError for one without a ``validate`` block, which says how ranks start, and if it is not clear which
    stack the environment is of.
    """
    loaded = load_tree(settings.tree, settings.environ)
    stack = own_stack(loaded, prefix) if name is None else find_stack(loaded, name)
    if not stack.validation:
        message = (
            f"the stack {stack.name} has no validate block in stacks.yaml, which defines how its ranks are started"
        )
        raise UsageError(message, hint="start them with torchrun or mpiexec of the activated environment")
    return stack


def own_stack(loaded: LoadedTree, prefix: Path) -> Stack:
    """The stack that an environment was made for, by its packages. Raises UsageError unless it is exactly one."""
    from channel_tools.environments import installed_builds  # noqa: PLC0415 - as method_of

    if (stack := installed_stack(loaded, installed_builds(prefix), prefix)) is not None:
        return stack
    message = f"{prefix}: is an environment of no stack that carries data between ranks"
    known = ", ".join(name for name, stack in loaded.stacks.items() if stack.validation)
    hint = f"name one of {known} by --stack, or its environment by --prefix" if known else "channel_tools list"
    raise UsageError(message, hint=hint)


def installed_stack(loaded: LoadedTree, installed: Mapping[str, str], prefix: Path) -> Stack | None:
    """The validated stack of which every package is ``installed``; one whose packages are all another's is left out.

    None if there is none. Raises UsageError if there are several that differ in how they are run.
    """
    complete = [stack for stack in loaded.stacks.values() if stack.validation and is_installed(stack, installed)]
    names = {stack.name: {spec_name(spec) for spec in stack.install} for stack in complete}
    stacks = [stack for stack in complete if not any(names[stack.name] < names[other.name] for other in complete)]
    if len({repr(stack.validation) for stack in stacks}) > 1:
        shown = ", ".join(stack.name for stack in stacks)
        message = f"{prefix}: has the packages of several stacks: {shown}"
        raise UsageError(message, hint=f"say which: --stack {stacks[0].name}")
    return next(iter(stacks), None)


def is_installed(stack: Stack, installed: Mapping[str, str]) -> bool:
    """Whether packages that satisfy the stack's MatchSpecs are ``installed``, by name as ``VERSION BUILD``."""
    return not missing_specs(stack.install, installed)


def launchable_method(stack: Stack, request: ScriptRequest) -> ValidationMethod:
    """The stack's method. Raises UsageError if a software switch is requested and the stack has none."""
    method = method_of(stack)
    if request.switch and not method.has_switch:
        raise UsageError(f"--switch: the stack {stack.name} has no software switch", hint="leave --switch out")
    return method


def method_of(stack: Stack) -> ValidationMethod:
    """The method by which a stack is validated. Raises ConfigError for an unknown one."""
    from channel_tools.validate.runner import find_method  # noqa: PLC0415 - a quarter of a second

    return find_method(stack.name, str(stack.validation["method"]))


def method_options(stack: Stack) -> dict[str, object]:
    """The settings of the stack's validation method."""
    return {name: value for name, value in stack.validation.items() if name != "method"}


def chosen_prefix(chosen: Path | None, environ: Mapping[str, str]) -> Path:
    """The given environment, else the active one. Raises UsageError if there is neither."""
    prefix = chosen or active_prefix(environ)
    if prefix is None:
        message = "no environment is active and none is given"
        raise UsageError(message, hint="activate one, or give its folder; channel_tools env create makes one")
    return prefix
