# SPDX-License-Identifier: BSD-3-Clause
"""A channel's page, with what the tree at hand knows: its stacks, how they were built and validated, and logs."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from channel_tools.channel import channel_writer, open_channel
from channel_tools.channel.results import read_builds
from channel_tools.channel.state import subdirs_of
from channel_tools.conda.addresses import channel_address, has_credentials, without_credentials
from channel_tools.conda.package import PACKAGE_SUFFIX
from channel_tools.matrix.load import read_stacks
from channel_tools.page import (
    PageReport,
    ShownBandwidth,
    ShownCheck,
    ShownRun,
    ShownStack,
    TreeRecords,
    add_page,
    has_page,
    remember_records,
)
from channel_tools.publish.folder import FolderTarget
from channel_tools.system.errors import UsageError
from channel_tools.validate.history import read_run

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from channel_tools.matrix.model import Stack
    from channel_tools.publish.target import Target
    from channel_tools.system.settings import Settings
    from channel_tools.validate.history import KeptRun


def write_channel_page(
    folder: Path, settings: Settings | None, *, address: str | None, title: str | None, with_logs: bool | None
) -> PageReport:
    """Write the page of the channel at ``folder``; without ``settings``, the stacks shown are those of the last time.

    Raises ChannelError where there is no channel, it is in use, or a page of somebody else is in the way; ConfigError
    for a stacks.yaml or a report that cannot be read, UsageError for an address that is none or has credentials.
    """
    if address is not None:
        address = _shown_address(address)
    channel = open_channel(folder)
    known = None if settings is None else _tree_records(settings, _package_names(channel.path))
    with channel_writer(channel) as writer:
        return add_page(writer, title=title, address=address, with_logs=with_logs, known=known)


def remember_for_page(target: Target, label: str, settings: Settings, file_names: Collection[str]) -> None:
    """Before packages are published into a folder whose channel has a page: keep what the tree knows of them.

    Other places have no page yet, or keep what their own owner said. Raises as write_channel_page.
    """
    folder = target.label_folder(label) if isinstance(target, FolderTarget) else None
    if folder is not None and has_page(folder):
        with channel_writer(open_channel(folder)) as writer:
            remember_records(writer, _tree_records(settings, file_names))


def _package_names(channel: Path) -> set[str]:
    return {path.name for subdir in subdirs_of(channel) for path in (channel / subdir).glob(f"*{PACKAGE_SUFFIX}")}


def _shown_address(address: str) -> str:
    shown = channel_address(address)
    if has_credentials(shown):
        message = (
            f"--address {without_credentials(shown)}: it has credentials, which the page would show to all readers"
        )
        raise UsageError(message, hint="leave them out; where the channel needs a token, conda's users add /t/TOKEN")
    return shown


def _tree_records(settings: Settings, file_names: Collection[str]) -> TreeRecords:
    """What the tree's output knows of the packages ``file_names``, and of all its stacks."""
    runs = _read_runs(settings.reports)
    stacks = read_stacks(settings.tree.stacks_file).stacks.values()
    logs = {name: settings.logs / f"{name.removesuffix(PACKAGE_SUFFIX)}.log" for name in file_names}
    return TreeRecords(
        stacks=tuple(_shown_stack(stack, runs[stack.name]) for stack in stacks),
        builds={name: record for name, record in read_builds(settings.channel).items() if name in file_names},
        logs={name: path for name, path in logs.items() if path.is_file()},
    )


def _shown_stack(stack: Stack, runs: list[ShownRun]) -> ShownStack:
    needs = stack.validation.get("needs", "")
    return ShownStack(
        name=stack.name,
        description=stack.description,
        install=stack.install,
        validated=bool(stack.validation),
        needs=", ".join(map(str, needs)) if isinstance(needs, list | tuple) else str(needs),
        runs=tuple(runs),
    )


def _read_runs(reports: Path) -> defaultdict[str, list[ShownRun]]:
    """The runs of each stack that there are reports of. Raises ConfigError for a file that is no report."""
    found: defaultdict[str, list[ShownRun]] = defaultdict(list)
    for path in sorted([*reports.glob("*.json"), *reports.glob("history/*/*.json")]):
        run = read_run(path)
        found[run.stack].append(_shown_run(run))
    return found


def _shown_run(run: KeptRun) -> ShownRun:
    versions = {package.name: package.version for package in run.environment.packages}
    return ShownRun(
        started=run.started,
        seconds=run.seconds,
        passed=run.passed,
        ranks=run.ranks,
        hosts=len(run.hosts) or 1,
        processor=run.host.processor,
        cores=run.host.cores,
        python=versions.get("python", ""),
        pytorch=versions.get("pytorch", ""),
        baseline=run.baseline,
        packages=tuple(f"{one.name}-{one.version}-{one.build}" for one in run.environment.packages),
        checks=tuple(
            ShownCheck(name=one.name, passed=one.passed, found=one.found, expected=one.expected) for one in run.checks
        ),
        bandwidth=tuple(
            ShownBandwidth(
                dtype=one.dtype,
                size_bytes=one.size_bytes,
                transport_mb_s=one.transport_mb_s,
                baseline_mb_s=one.baseline_mb_s,
            )
            for one in run.bandwidth
        ),
    )
