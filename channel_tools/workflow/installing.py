# SPDX-License-Identifier: BSD-3-Clause
"""A stack installed from the channel, and validated there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from channel_tools.build.schedule import channels_of
from channel_tools.channel import open_channel
from channel_tools.environments import create_environment
from channel_tools.errors import UsageError
from channel_tools.matrix import find_stack, load_tree
from channel_tools.validate import ValidationRequest, validate_stack, write_report
from channel_tools.workflow.platforms import current_platform

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from channel_tools.environments import EnvironmentResult
    from channel_tools.progress import Progress
    from channel_tools.settings import Settings
    from channel_tools.validate import ValidationReport


@dataclass(frozen=True, kw_only=True, slots=True)
class InstallRequest:
    """A stack (None: the default one) and the channels it comes from (empty: the local channel and its foundation)."""

    stack: str | None = None
    channels: tuple[str, ...] = ()


def install_channels(settings: Settings, request: InstallRequest) -> tuple[str, ...]:
    """The channels of a request, in order of priority. Raises ChannelError when there is no local channel yet."""
    return request.channels or channels_of(open_channel(settings.channel))


def install_stack(
    settings: Settings, request: InstallRequest, prefix: Path, *, progress: Progress
) -> EnvironmentResult:
    """Install a stack's environment into ``prefix``, or update it there. Raises as create_environment."""
    return create_environment(
        prefix,
        find_stack(load_tree(settings.tree), request.stack).install,
        install_channels(settings, request),
        package_cache=settings.package_cache,
        subdir=current_platform(),
        progress=progress,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class ValidateOptions:
    """How a validation runs: see ValidationRequest."""

    ranks: int
    prefix: Path | None
    keep: bool
    timeout_s: float
    environ: Mapping[str, str]


def validate_installed(
    settings: Settings, request: InstallRequest, options: ValidateOptions, *, progress: Progress
) -> tuple[ValidationReport, Path]:
    """Validate a stack and write its report to ``output/report/<stack>.json``; returns both.

    The report may hold failed checks. Raises as validate_stack.
    """
    stack = find_stack(load_tree(settings.tree), request.stack)
    if not stack.validation:
        message = f"the stack {stack.name} has no validation: nothing in it carries an allreduce"
        raise UsageError(message, hint="its packages are tested by their recipes while they are built")
    method = {name: value for name, value in stack.validation.items() if name != "method"}
    report = validate_stack(
        ValidationRequest(
            stack=stack.name,
            method=str(stack.validation["method"]),
            options=method,
            specs=stack.install,
            channels=install_channels(settings, request),
            ranks=options.ranks,
            subdir=current_platform(),
            package_cache=settings.package_cache,
            work=settings.work,
            forbidden=(settings.tree.root, settings.output),
            prefix=options.prefix,
            keep=options.keep,
            timeout_s=options.timeout_s,
        ),
        environ=options.environ,
        progress=progress,
    )
    path = settings.reports / f"{stack.name}.json"
    write_report(report, path)
    return report, path
