# SPDX-License-Identifier: BSD-3-Clause
"""Carries one job out: reads and audits what was sent, publishes it, and writes how that ended.

It takes the processor for seconds and so runs in a process of its own, which may be killed at any moment: the job can
then be done again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from channel_tools.channel.patches import INSTRUCTIONS_FILE, read_patch
from channel_tools.channel.retention import Retention
from channel_tools.errors import ChannelError, ChannelToolsError
from channel_tools.files import write_bytes_atomically
from channel_tools.progress import SilentProgress
from channel_tools.publish.folder import FolderTarget
from channel_tools.publish.labels import label_path
from channel_tools.publish.model import PackageFile, PackageSet
from channel_tools.publish.wire import (
    ErrorAnswer,
    HotfixRequest,
    PromoteRequest,
    ReportAnswer,
    RetainRequest,
    SetRequest,
    YankRequest,
    encode,
)
from channel_tools.serve.uploads.auditing import audit_uploaded, check_digests
from channel_tools.serve.uploads.store import State, drop_files

if TYPE_CHECKING:
    from pathlib import Path

    from channel_tools.channel.patches import Patch
    from channel_tools.publish.model import PublishReport
    from channel_tools.serve.uploads.store import Job

_WRITER_WAIT_S = 600.0


def package_set(job: Job, request: SetRequest) -> PackageSet:
    """The set of a request, with its files where the job keeps them."""
    files = tuple(
        PackageFile(
            subdir=file.subdir,
            file_name=file.file_name,
            path=job.file(file),
            sha256=file.sha256,
            size_bytes=file.size_bytes,
            foundation=file.foundation,
        )
        for file in request.files
    )
    return PackageSet(name=request.name, files=files, foundation=request.foundation)


def carry_out(root: Path, job: Job) -> None:
    """Do the job and write its end into its state; only for who holds its lock."""
    job.set_state(State(state="running"))
    try:
        job.set_state(State(state="done", report=_report(root, job)))
        drop_files(job)
    except ChannelToolsError as err:
        error = ErrorAnswer(kind=type(err).__name__, message=job.without_paths(str(err), root), hint=err.hint)
        job.set_state(State(state="failed", error=error))


def _report(root: Path, job: Job) -> ReportAnswer:
    target = FolderTarget(root=root / job.channel, wait_s=_WRITER_WAIT_S)
    match job.request:
        case SetRequest() as request:
            return _publish(target, job, request)
        case PromoteRequest(source=source, label=label, keys=keys):
            return _answered(target.promote(keys, source=source, label=label, progress=SilentProgress()))
        case YankRequest(label=label, keys=keys, reason=None):
            target.restore(keys, label=label)
        case YankRequest(label=label, keys=keys, reason=str(reason)):
            target.yank(keys, label=label, reason=reason)
        case HotfixRequest(label=label, replace=replace):
            target.hotfix(_patches(job.folder, job.request), label=label, replace=replace)
        case RetainRequest() as request:
            return _retain(target, request)
    return ReportAnswer()


def _patches(folder: Path, request: HotfixRequest) -> dict[str, Patch]:
    """The patches of a request, read and checked as from files of people."""
    patches = {}
    for subdir, instructions in request.patches.items():
        file = folder / f"{subdir}-{INSTRUCTIONS_FILE}"
        write_bytes_atomically(file, encode(instructions))
        patches[subdir] = read_patch(file)
    return patches


def _retain(target: FolderTarget, request: RetainRequest) -> ReportAnswer:
    rule = Retention(
        keep=request.keep,
        older_than_s=request.older_than_s,
        locked_files=frozenset(request.locked_files),
        locked_hashes=frozenset(request.locked_hashes),
        grace_s=request.grace_s,
    )
    plan = target.retain(rule, label=request.label, dry_run=request.dry_run)
    return ReportAnswer(retired=plan.retire, deleted=plan.delete, kept=plan.kept)


def _publish(target: FolderTarget, job: Job, request: SetRequest) -> ReportAnswer:
    plan = target.plan(package_set(job, request), label=request.label)
    if missing := [file.key for file in plan.upload if not file.path.is_file()]:
        message = f"{len(missing)} files of the set were not sent, the first: {missing[0]}"
        raise ChannelError(message, hint="send them, then commit the set again")
    new = [file.path for file in plan.upload]
    notes = audit_uploaded(new, request.foundation, _places(target, request.label))
    check_digests([file.path for file in plan.upload if not file.foundation])
    return _answered(target.publish(plan, progress=SilentProgress()), notes)


def _places(target: FolderTarget, label: str) -> list[Path]:
    """The channels whose packages stand beside those of a set: that of its label and, where there is none, main's."""
    places = [target.root / label_path(label), target.root]
    return [place for place in places if place.exists()][:1]


def _answered(report: PublishReport, notes: tuple[str, ...] = ()) -> ReportAnswer:
    return ReportAnswer(uploaded=report.uploaded, linked=report.linked, notes=notes)
