# SPDX-License-Identifier: BSD-3-Clause
"""Runs a validation from start to report: a new environment from the channel, a check of it, the method's run.

Each run has its own folder below ``work``, so that simultaneous validations do not collide. It is removed after a run
that was completed; after an interrupted one, the logs in it are kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import platform
import shlex
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, cast, get_args

from channel_tools import __version__
from channel_tools.conda.addresses import channel_address, local_path
from channel_tools.doctor import examine, subject_of
from channel_tools.environments import (
    ExistingEnvironmentError,
    activated_environment,
    create_environment,
    find_outside_paths,
    installed_builds,
    installed_environment,
    missing_specs,
)
from channel_tools.matrix.stacks import MethodName
from channel_tools.system.errors import ConfigError, UsageError, ValidationError
from channel_tools.system.processes import Deadline
from channel_tools.system.work_folder import make_work_folder, temporary_folder
from channel_tools.validate.local_scratch import copy_to_hosts, scratch_folder
from channel_tools.validate.model import Check, HostFacts, MethodContext, ValidationReport

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from channel_tools.environments import EnvironmentResult
    from channel_tools.ranks.hosts import RankHosts
    from channel_tools.system.progress import Progress
    from channel_tools.system.yamlfile import YamlValue
    from channel_tools.validate.model import ValidationMethod

DEFAULT_TIMEOUT_S = 600.0
_FINDINGS_SHOWN = 3
_ENVIRONMENT = "env"
_CPUINFO = Path("/proc/cpuinfo")


@dataclass(frozen=True, kw_only=True, slots=True)
class ValidationSetup:
    """What to validate and how.

    ``specs`` are the stack's install list, ``channels`` addresses or folders in order of priority, ``options`` the
    stack's ``validate`` block without ``method``. ``prefix`` None installs into the run's own folder and removes it
    afterwards unless ``keep``; with ``as_installed``, nothing is installed into it, and it must have the packages that
    ``specs`` name. ``forbidden`` are the paths that the environment must not name: the tree, the build folders (the
    virtual environment of this process is added). ``timeout_s`` limits the run after the installation.
    The ranks run on ``hosts``, None for this host's loopback network. ``local_scratch`` is a folder on the local disk
    of each host, into which a new environment is installed.
    """

    stack: str
    method: str
    options: Mapping[str, object]
    specs: tuple[str, ...]
    channels: tuple[str, ...]
    ranks: int
    subdir: str
    package_cache: Path
    work: Path
    forbidden: tuple[Path, ...]
    prefix: Path | None = None
    as_installed: bool = False
    keep: bool = False
    timeout_s: float = DEFAULT_TIMEOUT_S
    hosts: RankHosts | None = None
    local_scratch: Path | None = None


def validate_stack(
    setup: ValidationSetup,
    *,
    environ: Mapping[str, str],
    progress: Progress,
) -> ValidationReport:
    """Validate a stack; the report may have failed checks.

    Raises ConfigError and UsageError for a setup that cannot be run, the errors of
    create_environment, and ValidationError if the run is interrupted (a rank or the switch dies, time runs out).
    """
    method = check_request(setup)
    names = () if setup.hosts is None else setup.hosts.names
    started, clock, host = datetime.now(UTC), time.monotonic(), describe_host()
    with _run_folder(setup) as folder, _prefix(setup, folder) as prefix:
        specs = method.specs(setup.specs, stack=setup.stack, options=setup.options)
        environment = _environment(setup, specs, prefix, folder, progress)
        standing = _self_contained_check(setup, environment)
        variables = activated_environment(environment.prefix, environ=environ)
        subject = subject_of(
            setup.stack,
            find_method(setup.stack, setup.method).backend(setup.options),
            setup.options,
            setup.specs,
            prefix=environment.prefix,
            variables=variables,
            installed=installed_builds(environment.prefix),
            starts_switch=True,
        )
        findings = examine(subject)
        result = method.run(
            MethodContext(
                stack=setup.stack,
                prefix=environment.prefix,
                variables=variables,
                ranks=setup.ranks,
                options=setup.options,
                folder=folder,
                deadline=Deadline.after(setup.timeout_s),
                progress=progress,
                hosts=setup.hosts,
            )
        )
    return ValidationReport(
        stack=setup.stack,
        method=setup.method,
        ranks=setup.ranks,
        started=started.isoformat(timespec="seconds"),
        seconds=time.monotonic() - clock,
        tool_version=__version__,
        host=host,
        hosts=names,
        environment=environment,
        findings=findings,
        result=replace(result, checks=(standing, *result.checks)),
    )


def _environment(
    setup: ValidationSetup, specs: Sequence[str], prefix: Path, folder: Path, progress: Progress
) -> EnvironmentResult:
    """The environment to validate, on every host; installed into ``prefix``, where no other may be.

    One that has what the specs ask for stays as it is. Raises UsageError for any other that is there already.
    """
    if setup.as_installed:
        environment = _environment_with(specs, setup.stack, prefix)
    else:
        try:
            # the rest of a validation waits for processes, so that only the installation has an event loop
            environment = asyncio.run(_install(setup, specs, prefix, progress))
        except ExistingEnvironmentError as err:
            hint = (
                f"add it: channel_tools env add {shlex.quote(str(prefix))} --variant {setup.stack}; or validate what "
                "is there, which installs nothing: --as-installed"
            )
            raise UsageError(err.message, hint=hint) from None
    if setup.local_scratch is not None and setup.hosts is not None:
        with progress.task("copying the environment to the other nodes", total=None):
            copy_to_hosts(environment.prefix, setup.hosts, folder)
    return environment


async def _install(setup: ValidationSetup, specs: Sequence[str], prefix: Path, progress: Progress) -> EnvironmentResult:
    return await create_environment(
        prefix,
        specs,
        setup.channels,
        package_cache=setup.package_cache,
        subdir=setup.subdir,
        progress=progress,
    )


def _environment_with(specs: Sequence[str], stack: str, prefix: Path) -> EnvironmentResult:
    """The environment as it is. Raises UsageError if it lacks what ``specs`` ask for."""
    environment = installed_environment(prefix)
    if missing := missing_specs(specs, installed_builds(prefix)):
        message = f"{prefix}: lacks what a run of the stack {stack} needs: {', '.join(missing)}"
        hint = f"add it from the stack's channel: channel_tools env add {shlex.quote(str(prefix))} --variant {stack}"
        raise UsageError(message, hint=hint)
    return environment


def check_request(setup: ValidationSetup) -> ValidationMethod:
    """The method of a setup that can be run. Raises ConfigError and UsageError for any other."""
    method = find_method(setup.stack, setup.method)
    hosts = 1 if setup.hosts is None else len(setup.hosts.names)
    method.check(stack=setup.stack, ranks=setup.ranks, options=setup.options, hosts=hosts or 1)
    return method


@contextlib.contextmanager
def _run_folder(setup: ValidationSetup) -> Iterator[Path]:
    make_work_folder(setup.work)
    folder = Path(tempfile.mkdtemp(prefix=f"validate-{setup.stack}-", dir=setup.work)).absolute()
    try:
        yield folder
    except ValidationError:
        raise
    except BaseException:
        if not setup.keep:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    if not setup.keep:
        shutil.rmtree(folder)


@contextlib.contextmanager
def _prefix(setup: ValidationSetup, folder: Path) -> Iterator[Path]:
    """The environment's prefix; a new one that is not kept is removed, by the next run if this one is killed."""
    if setup.prefix is not None:
        yield setup.prefix
    elif setup.local_scratch is not None:
        with scratch_folder(setup.local_scratch, setup.hosts, keep=setup.keep) as scratch:
            yield scratch / _ENVIRONMENT
    elif setup.keep:
        yield folder / _ENVIRONMENT
    else:
        with temporary_folder(setup.work.absolute()) as own:
            yield own / _ENVIRONMENT


def _self_contained_check(setup: ValidationSetup, environment: EnvironmentResult) -> Check:
    forbidden = [*setup.forbidden, *([Path(sys.prefix)] if sys.prefix != sys.base_prefix else [])]
    channels = {record.channel for record in environment.records if record.channel}
    sources = [*_local_folders((*setup.channels, *sorted(channels))), setup.package_cache]
    findings = find_outside_paths(environment.prefix, [path.absolute() for path in forbidden], recorded_sources=sources)
    texts = [f"{finding.file} {'links to' if finding.is_link else 'names'} {finding.names}" for finding in findings]
    more = f"; {len(texts) - _FINDINGS_SHOWN} more" if len(texts) > _FINDINGS_SHOWN else ""
    return Check(
        name="the environment names no build tree, clone or virtual environment",
        passed=not findings,
        found=("; ".join(texts[:_FINDINGS_SHOWN]) or "nothing") + more,
        expected="nothing",
    )


def _local_folders(channels: Sequence[str]) -> Iterator[Path]:
    for channel in channels:
        if (folder := local_path(channel_address(channel))) is not None:
            yield folder


def find_method(stack: str, name: str) -> ValidationMethod:
    """The method of that name: ``METHOD`` in the module ``method`` of its folder.

    Each is one way of starting ranks and counting what carried their data. Raises ConfigError naming the known ones.
    """
    names = get_args(MethodName)
    if name not in names:
        raise ConfigError(f"stack {stack}: validate: method: found {name!r}, expected one of {', '.join(names)}")
    return cast("ValidationMethod", importlib.import_module(f"channel_tools.validate.{name}.method").METHOD)


def how_to_run(stack: str, validation: Mapping[str, YamlValue]) -> tuple[str, ...]:
    """The lines of the method of a stack's ``validate`` block (ValidationMethod.how_to_run), none without such a block.

    Raises ConfigError for an unknown method.
    """
    return tuple(find_method(stack, str(validation["method"])).how_to_run(validation)) if validation else ()


def describe_host() -> HostFacts:
    """This machine; ``processor`` is "" if the system does not say."""
    return HostFacts(
        name=platform.node(),
        system=f"{platform.system()} {platform.release()}",
        machine=platform.machine(),
        processor=_processor(_CPUINFO.read_text(encoding="utf-8") if _CPUINFO.is_file() else ""),
        cores=len(os.sched_getaffinity(0)),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        load_average=round(os.getloadavg()[0], 2),
    )


def _processor(cpuinfo: str) -> str:
    for line in cpuinfo.splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return ""
