# SPDX-License-Identifier: BSD-3-Clause
"""What would carry a stack's data on this machine, in an environment or without one, and beside other hosts."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from channel_tools.doctor import Finding, Subject, examine, subject_of
from channel_tools.doctor.hosts import compare_hosts
from channel_tools.environments import activated_environment, installed_builds
from channel_tools.launch.hosts import own_host_names, read_hosts, spread_ranks
from channel_tools.matrix import find_stack, load_tree
from channel_tools.system.errors import UsageError
from channel_tools.workflow.launch import ACTIVE_PREFIX_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from channel_tools.matrix.model import LoadedTree, Stack
    from channel_tools.system.settings import Settings


def run_doctor(
    settings: Settings,
    stack_name: str | None,
    prefix: Path | None,
    hosts_file: Path | None,
    *,
    environ: Mapping[str, str],
) -> tuple[Subject, tuple[Finding, ...]]:
    """What was looked at, and what was found.

    ``stack_name`` None: the stack whose packages the environment has, else the default one. ``prefix`` None: the active
    environment, if there is one. ``hosts_file`` names hosts to compare with each other. Raises as find_stack,
    activated_environment and read_hosts, and UsageError for a stack without a fabric.
    """
    active = environ.get(ACTIVE_PREFIX_VARIABLE, "")
    given = prefix or (Path(active) if active else None)
    prefix = None if given is None else given.absolute()
    variables = environ if prefix is None else activated_environment(prefix, environ=environ, inherit=True)
    installed = {} if prefix is None else installed_builds(prefix)
    stack = _chosen_stack(load_tree(settings.tree), stack_name, installed)
    subject = subject_of(
        stack.name, stack.validation, stack.install, prefix=prefix, variables=variables, installed=installed
    )
    if not subject.backend:
        message = f"the stack {stack.name} carries no data between ranks: nothing says what its fabric is"
        raise UsageError(message, hint="name another stack: channel_tools list")
    return subject, (*_environment(subject), *examine(subject), *_between_hosts(subject, hosts_file))


def _chosen_stack(loaded: LoadedTree, name: str | None, installed: Mapping[str, str]) -> Stack:
    if name is None:
        for stack in loaded.stacks.values():
            if stack.validation and all(_is_installed(spec, installed) for spec in stack.install):
                return stack
    return find_stack(loaded, name)


def _is_installed(spec: str, installed: Mapping[str, str]) -> bool:
    """Whether the package of a spec, ``NAME`` or ``NAME VERSION BUILD``, is there in such a build, of any version."""
    name, _, rest = spec.partition(" ")
    build = installed.get(name, "").partition(" ")[2]
    return bool(build) and fnmatchcase(build, rest.partition(" ")[2] or "*")


def _environment(subject: Subject) -> Iterator[Finding]:
    if subject.prefix is None:
        found = "none is active and none is named: its libraries are not looked at"
        fix = f"channel_tools doctor --stack {subject.stack} PREFIX"
        yield Finding(subject="environment", level="warning", found=found, fix=fix)
    else:
        found = f"{subject.prefix}: {len(subject.installed)} packages, taken for the stack {subject.stack}"
        yield Finding(subject="environment", level="ok", found=found)


def _between_hosts(subject: Subject, hosts_file: Path | None) -> Iterator[Finding]:
    if hosts_file is not None:
        wanted = read_hosts(hosts_file)
        hosts = spread_ranks(dict.fromkeys(wanted, 0), len(wanted), own_names=own_host_names())
        local = frozenset(host.name for host in hosts if host.is_local)
        yield from compare_hosts(tuple(wanted), local, subject)
