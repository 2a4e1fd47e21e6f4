# SPDX-License-Identifier: BSD-3-Clause
"""Examines what would carry a stack's data on this machine, with or without an environment, and compares hosts."""

from __future__ import annotations

import asyncio
import shlex
from typing import TYPE_CHECKING

from channel_tools.channel import open_channel, published_packages
from channel_tools.channel.state import CHANNEL_RECORD
from channel_tools.conda.platforms import current_platform, machine_glibc
from channel_tools.conda.specs import spec_name
from channel_tools.doctor import Diagnosis, ExaminedStack, examine, subject_of
from channel_tools.doctor.hosts import compare_hosts
from channel_tools.doctor.loaded import (
    PROBE_LIMIT_S,
    find_loaded,
    find_loaded_by_ranks,
    has_torch,
    last_line,
    probe_words,
    read_answers,
)
from channel_tools.environments import (
    activated_environment,
    find_distributions,
    installed_builds,
    missing_distributions,
)
from channel_tools.environments.state import read_state
from channel_tools.matrix import find_stack, load_tree
from channel_tools.ranks.hosts import hosts_of_the_job, own_host_names, read_hosts, spread_ranks
from channel_tools.ranks.plan import find_placement, plan_ranks, this_host
from channel_tools.ranks.run import check_plan_reachable, running_ranks
from channel_tools.system.counting import counted
from channel_tools.system.errors import FoundationError, SolveError, UsageError
from channel_tools.system.files import absolute_path
from channel_tools.system.processes import Deadline
from channel_tools.system.settings import active_prefix
from channel_tools.system.work_folder import temporary_folder
from channel_tools.workflow.bases import require_runs
from channel_tools.workflow.launch import installed_stack, is_installed, method_of, method_options

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from channel_tools.matrix.model import LoadedTree, Stack
    from channel_tools.system.settings import Settings


def run_doctor(
    settings: Settings,
    stack_name: str | None,
    prefix: Path | None,
    hosts_file: Path | None,
    *,
    launch: bool = False,
    environ: Mapping[str, str],
) -> tuple[ExaminedStack, tuple[Diagnosis, ...]]:
    """The subject that was examined, and the findings.

    In an environment of another stack than ``stack_name``, that is the only finding.

    If ``stack_name`` is None, the stack is the one whose packages the environment has, else the default one. If
    ``prefix`` is None, it is the active environment, if any. ``hosts_file`` names hosts to compare with each other.
    With ``launch``, what is loaded is asked of one rank on each of these hosts, else of the job's.

    Raises as find_stack, activated_environment and read_hosts do, and UsageError for a stack without a fabric and for
    an environment of several stacks; with ``launch`` also as plan_ranks does.
    """
    chosen = prefix or active_prefix(environ)
    prefix = None if chosen is None else absolute_path(chosen)
    variables = environ if prefix is None else activated_environment(prefix, environ=environ, inherit=True)
    installed = {} if prefix is None else installed_builds(prefix)
    loaded = load_tree(settings.tree, settings.environ)
    of_prefix = installed_stack(loaded, installed, prefix) if stack_name is None and prefix is not None else None
    stack = of_prefix or find_stack(loaded, stack_name)
    subject = subject_of(
        stack.name,
        method_of(stack).backend(stack.validation) if stack.validation else "",
        stack.validation,
        stack.install,
        prefix=prefix,
        variables=variables,
        installed=installed,
    )
    if not subject.backend:
        message = f"the stack {stack.name} carries no data between ranks: stacks.yaml defines no fabric for it"
        raise UsageError(message, hint="name another stack: channel_tools list")
    if prefix is not None and (other := _other_stack(loaded, stack, installed, prefix)):
        problem = f"{prefix}: is an environment of the stack {other}, not of {stack.name}"
        fix = f"channel_tools doctor --stack {other} {shlex.quote(str(prefix))}"
        # what else it lacks of the stack would only say the same again
        return subject, (Diagnosis(subject="environment", level="fault", found=problem, fix=fix),)
    return subject, (
        *_machine(settings),
        *(_packages(settings, stack) if prefix is None else ()),
        *_environment(subject, is_known=stack_name is not None or of_prefix is not None),
        *examine(subject),
        *(_by_ranks(subject, stack, hosts_file, environ) if launch else find_loaded(subject)),
        *_between_hosts(subject, hosts_file),
    )


def _other_stack(loaded: LoadedTree, stack: Stack, installed: Mapping[str, str], prefix: Path) -> str:
    """The stack whose environment it is, if it lacks a package of ``stack``; "" if it is of none."""
    if is_installed(stack, installed):
        return ""
    other = installed_stack(loaded, installed, prefix)
    return "" if other is None else other.name


def _machine(settings: Settings) -> Iterator[Diagnosis]:
    """Whether what the local channel is built on runs on this machine; nothing where that is not known."""
    if not (settings.channel / CHANNEL_RECORD).is_file():
        return
    foundation = open_channel(settings.channel).foundation
    if (runs_on := foundation.runs_on([current_platform()])) is None:
        return
    found = f"{settings.channel}: base {foundation.base_in_words}; runs on {runs_on}"
    try:
        require_runs(foundation.release, glibc=machine_glibc())
    except FoundationError as err:
        fix = "use a machine with a newer glibc, or build another channel with an older --base"
        yield Diagnosis(subject="machine", level="fault", found=f"{found}: {err.message}", fix=fix)
    else:
        yield Diagnosis(subject="machine", level="ok", found=found)


def _packages(settings: Settings, stack: Stack) -> Iterator[Diagnosis]:
    """Whether the stack's packages in the local channel run on this machine, as a client sees it before it installs.

    Nothing where they are not built yet, and for a channel whose other packages are at an address.
    """
    if not (settings.channel / CHANNEL_RECORD).is_file():
        return
    channel, platform = open_channel(settings.channel), current_platform()
    present = {package.row.name for package in published_packages(channel)}
    if channel.foundation.addresses or not stack.install or not {spec_name(spec) for spec in stack.install} <= present:
        return
    # slow to import, and only before an installation
    from channel_tools.conda.solving import detect_virtual_packages  # noqa: PLC0415
    from channel_tools.pins import solve_lock  # noqa: PLC0415

    machine = [f"{item.name.source}={item.version}={item.build_string}" for item in detect_virtual_packages()]
    solving = solve_lock(
        stack.name,
        stack.install,
        [str(channel.path)],
        [platform],
        virtual_packages={platform: machine},
        package_cache=settings.package_cache,
    )
    try:
        (solved,) = asyncio.run(solving).platforms
    except SolveError as err:
        fix = "use another machine, or build the stack in a channel with an older --base"
        yield Diagnosis(subject="packages", level="fault", found=f"{channel.path}: {err.message}", fix=fix)
        return
    found = f"{counted(len(solved.packages), 'package')} of {channel.path} for the stack run here"
    yield Diagnosis(subject="packages", level="ok", found=found)


def _environment(subject: ExaminedStack, *, is_known: bool) -> Iterator[Diagnosis]:
    """``is_known``: whether the environment is of the stack, or this was named; else it was taken as the default."""
    if subject.prefix is None:
        message = "none is active and none is given: its libraries are not examined"
        fix = f"channel_tools doctor --stack {subject.stack} PREFIX"
        yield Diagnosis(subject="environment", level="warning", found=message, fix=fix)
        return
    message = f"{subject.prefix}: {counted(len(subject.installed), 'package')}"
    if is_known:
        yield Diagnosis(subject="environment", level="ok", found=f"{message}, examined as the stack {subject.stack}")
    else:
        message = f"{message}, but those of no stack; examined as the default stack {subject.stack}"
        fix = f"channel_tools doctor --stack NAME {shlex.quote(str(subject.prefix))}"
        yield Diagnosis(subject="environment", level="warning", found=message, fix=fix)
    yield from _replaced_by_pip(subject.prefix)


def _replaced_by_pip(prefix: Path) -> Iterator[Diagnosis]:
    """Python packages that pip put over conda's, which know nothing of this environment's libraries, or removed."""
    records = read_state(prefix).records
    builds = {record.name.normalized: f"{record.version} {record.build}" for record in records}
    python, word = shlex.quote(str(prefix / "bin" / "python")), shlex.quote(str(prefix))
    again = f"channel_tools env add {word} --force-reinstall"
    rows = find_distributions(prefix, records)
    for row in rows:
        if row.is_of_pip and row.package is not None:
            found = f"pip put {row.name} {row.version} over {row.package} {builds[row.package]}"
            fix = f"{python} -m pip uninstall --yes {row.name} && {again} {row.package}"
            yield Diagnosis(subject=row.name, level="fault", found=found, fix=fix)
    for name, package in missing_distributions(prefix, records).items():
        if package not in {row.package for row in rows if row.is_of_pip}:
            found = f"not there any more, though {package} {builds[package]} brought it: pip or a user removed it"
            yield Diagnosis(subject=name, level="fault", found=found, fix=f"{again} {package}")


def _by_ranks(
    subject: ExaminedStack, stack: Stack, hosts_file: Path | None, environ: Mapping[str, str]
) -> Iterator[Diagnosis]:
    """What one rank on each host has loaded."""
    if subject.prefix is None:
        message = "--launch: no environment is active and none is given"
        raise UsageError(message, hint=f"channel_tools doctor --launch --stack {subject.stack} PREFIX")
    if not stack.validation:
        message = f"--launch: the stack {stack.name} has no validate block in stacks.yaml, which says how ranks start"
        raise UsageError(message, hint="leave --launch out")
    if not has_torch(subject.prefix):
        return
    if hosts_file is not None:
        names = read_hosts(hosts_file)
        hosts = spread_ranks(dict.fromkeys(names, 1), len(names), own_names=own_host_names())
    else:
        hosts = hosts_of_the_job(None, environ=environ) or (this_host(1),)
    # mpiexec would take a job's first hosts for few ranks; srun has one on each node
    are_named = hosts_file is not None or "SLURM_JOB_ID" not in environ
    placement = find_placement(subject.prefix, len(hosts), hosts=hosts, are_named=are_named, environ=environ)
    start = method_of(stack).start_settings(placement, stack=stack.name, options=method_options(stack))
    words = probe_words(subject.backend)
    plan = plan_ranks(placement, start, stack=stack.name, words=words, folder=subject.prefix)
    check_plan_reachable(plan)
    with temporary_folder() as folder:
        log = folder / "ranks.log"
        with running_ranks(plan, log=log) as ranks:
            code = ranks.wait((), Deadline.after(PROBE_LIMIT_S))
        printed = log.read_text(encoding="utf-8", errors="replace")
    answers = read_answers(printed)
    said = f"no end within {PROBE_LIMIT_S:g} s" if code is None else last_line(printed)
    yield from find_loaded_by_ranks(subject, answers, ranks=len(hosts), said=said)


def _between_hosts(subject: ExaminedStack, hosts_file: Path | None) -> Iterator[Diagnosis]:
    if hosts_file is not None:
        wanted = read_hosts(hosts_file)
        hosts = spread_ranks(dict.fromkeys(wanted, 0), len(wanted), own_names=own_host_names())
        local = frozenset(host.name for host in hosts if host.is_local)
        yield from compare_hosts(tuple(wanted), local, subject)
