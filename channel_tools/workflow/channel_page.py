# SPDX-License-Identifier: BSD-3-Clause
"""Writes a channel's page, with what the local tree knows: stacks, how they were built and validated."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections import defaultdict
from typing import TYPE_CHECKING

from channel_tools.channel import channel_writer
from channel_tools.channel.results import read_builds
from channel_tools.channel.state import load_channel
from channel_tools.conda.addresses import channel_address, has_credentials, without_credentials
from channel_tools.matrix.site import upstream_trees
from channel_tools.matrix.stacks import read_every_stack
from channel_tools.page.content import web_link
from channel_tools.page.model import (
    INDEX_PAGE,
    PageChoices,
    ShownBandwidth,
    ShownCheck,
    ShownRun,
    ShownStack,
    TreeRecords,
)
from channel_tools.page.write import SETTINGS, PageReport, add_page, follow_page, remember_records
from channel_tools.publish.folder import FolderTarget
from channel_tools.publish.model import MAIN_LABEL, label_path
from channel_tools.publish.target import open_target
from channel_tools.system.beneath import Beneath
from channel_tools.system.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from channel_tools.channel import ChannelWriter
    from channel_tools.matrix.model import Stack
    from channel_tools.publish.target import Target
    from channel_tools.system.settings import Settings
    from channel_tools.validate.history import KeptBandwidth, KeptRun

_EMAIL = re.compile(r"[^\s@<>\"]+@[^\s@<>\"]+")
NOTHING = "none"
"""What takes away a sentence or contact that was given before."""


def write_channel_page(
    at: str,
    settings: Settings | None,
    *,
    label: str = MAIN_LABEL,
    choices: PageChoices | None = None,
    environ: Mapping[str, str],
) -> tuple[str, PageReport]:
    """Write the page of the channel in the folder ``at``; returns its first file and a report.

    ``label`` is one of the channels there. What ``choices`` leave out, and without ``settings`` the stacks, stay as
    they were given last. Raises ChannelError if there is no channel, it is in use, or another program's page is in the
    way; ConfigError for a stacks.yaml or a report that cannot be read; UsageError for an address that is not valid or
    has credentials.
    """
    choices = _checked(PageChoices() if choices is None else choices)
    target = open_target(at, environ=environ)
    if not isinstance(target, FolderTarget):
        message = f"{target.address}: its page cannot be written from this machine"
        raise UsageError(message, hint="run channel_tools channel page --at FOLDER on the server's machine")
    with _label_writer(target, label) as writer:
        loaded = load_channel(writer.channel)
        names = {name for state in loaded.states.values() for name in state.records.packages}
        known = None if settings is None else _tree_records(settings, names)
        return str(writer.channel.path / INDEX_PAGE), add_page(writer, choices, known=known)


def open_followed_target(address: str, *, environ: Mapping[str, str]) -> Target:
    """The target for an address, as open_target; the pages of a folder's channels follow each change."""
    return open_target(address, environ=environ, changed=follow_page)


@contextlib.contextmanager
def _label_writer(target: FolderTarget, label: str) -> Iterator[ChannelWriter]:
    """The label's channel with its lock held, for changes of its page only. Raises what open_channel does."""
    with channel_writer(target.open_label(label), clock=target.clock, wait_s=target.wait_s) as writer:
        yield writer


def remember_for_page(target: Target, label: str, settings: Settings, file_names: Collection[str]) -> None:
    """Before packages are published to a channel with a page: save what the tree knows about them for the page.

    Servers keep what their owner gave. Raises as write_channel_page does.
    """
    if not isinstance(target, FolderTarget):
        return
    if Beneath(root=target.root).at(label_path(label)).file_stat(SETTINGS) is not None:
        known = _tree_records(settings, file_names)
        with _label_writer(target, label) as writer:
            remember_records(writer, known)


def _checked(choices: PageChoices) -> PageChoices:
    removed = {name: "" for name in ("sentence", "contact") if getattr(choices, name) == NOTHING}
    choices = dataclasses.replace(choices, **removed)
    if choices.address is not None:
        choices = dataclasses.replace(choices, address=_shown_address(choices.address))
    if choices.contact and not _is_contact(choices.contact):
        message = f"--contact {choices.contact}: neither an e-mail nor a web address"
        raise UsageError(message, hint="write it as NAME@HOST or https://HOST/PATH")
    return choices


def _is_contact(text: str) -> bool:
    """Whether a text is an address that a page links to: an e-mail address, or a web address."""
    return text.isprintable() and (bool(_EMAIL.fullmatch(text)) or web_link(text) is not None)


def _shown_address(address: str) -> str:
    shown = channel_address(address)
    if has_credentials(shown):
        message = f"--address {without_credentials(shown)}: has credentials, which the page would show to all readers"
        raise UsageError(message, hint="leave them out; if the channel needs a token, conda's users add /t/TOKEN")
    return shown


def _tree_records(settings: Settings, file_names: Collection[str]) -> TreeRecords:
    """What the tree's output knows about the packages ``file_names``, and about all its stacks."""
    from channel_tools.validate.history import read_runs  # noqa: PLC0415 - a quarter of a second, for pages only

    runs: defaultdict[str, list[ShownRun]] = defaultdict(list)
    for run in read_runs(settings.reports):
        runs[run.stack].append(_shown_run(run))
    _files, every = read_every_stack(settings.tree, upstream_trees(settings.tree))
    stacks = [stack for stack in every.values() if stack.upstream is None]
    return TreeRecords(
        stacks=tuple(_shown_stack(stack, runs[stack.name]) for stack in stacks),
        builds={name: record for name, record in read_builds(settings.channel).items() if name in file_names},
    )


def _shown_stack(stack: Stack, runs: list[ShownRun]) -> ShownStack:
    from channel_tools.validate.runner import how_to_run  # noqa: PLC0415 - as in _read_runs

    needs = stack.validation.get("needs", "")
    return ShownStack(
        name=stack.name,
        description=stack.description,
        install=stack.install,
        packages=stack.packages,
        validated=bool(stack.validation),
        needs=", ".join(map(str, needs)) if isinstance(needs, list | tuple) else str(needs),
        how_to_run=how_to_run(stack.name, stack.validation),
        runs=tuple(runs),
    )


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
        packages=tuple(f"{package.name}-{package.version}-{package.build}" for package in run.environment.packages),
        sha256=tuple(package.sha256 for package in run.environment.packages),
        checks=tuple(
            ShownCheck(name=check.name, passed=check.passed, found=check.found, expected=check.expected)
            for check in run.checks
        ),
        bandwidth=_shown_bandwidth(run.bandwidth),
        carrier_here="" if run.on_this_host is None else run.on_this_host.carrier,
        bandwidth_here=() if run.on_this_host is None else _shown_bandwidth(run.on_this_host.bandwidth),
    )


def _shown_bandwidth(rows: Sequence[KeptBandwidth]) -> tuple[ShownBandwidth, ...]:
    return tuple(
        ShownBandwidth(
            dtype=row.dtype,
            size_bytes=row.size_bytes,
            transport_mb_s=row.transport_mb_s,
            baseline_mb_s=row.baseline_mb_s,
        )
        for row in rows
    )
