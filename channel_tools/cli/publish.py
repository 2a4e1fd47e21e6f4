# SPDX-License-Identifier: BSD-3-Clause
"""``channel_tools publish`` and ``promote``: from the local channel to the targets that people install from."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from channel_tools.cli import options
from channel_tools.cli.console import handled, print_json, print_line, print_note, print_table
from channel_tools.cli.progress import shown_progress
from channel_tools.requests.plan import StackPackages
from channel_tools.requests.publish import PublishRequest
from channel_tools.system.counting import counted

if TYPE_CHECKING:
    from channel_tools.publish.bucket import Replica
    from channel_tools.publish.model import PublishPlan, PublishReport
    from channel_tools.workflow.publish import Published

Label = Annotated[str, typer.Option("--label", help="The label to publish under; main is the target's own address.")]


@handled
@options.asks(PublishRequest)
def publish(
    request: PublishRequest, *, root: options.Root = None, output: options.Output = None, as_json: options.Json = False
) -> None:
    """Publish package files, or a stack from the local channel; readers see the whole set or none of it."""
    from channel_tools.workflow.publish import copy_to_bucket, publish_packages

    needs_no_tree = request.files or request.source is not None
    settings = options.settings_if_any(root, output) if needs_no_tree else options.settings_from(root, output)
    if request.is_copy:
        with shown_progress() as progress:
            replica = copy_to_bucket(settings, request, environ=os.environ, progress=progress)
        _show_replica(replica, dry_run=request.dry_run, as_json=as_json)
        return
    with shown_progress() as progress:
        published = publish_packages(settings, request, environ=os.environ, progress=progress, on_plan=_announce)
    if published.report is None:
        _show_plan(published.plan, published.address, as_json=as_json)
    else:
        _show_report(published.report, as_json=as_json)


def _announce(published: Published) -> None:
    plan = published.plan
    print_note(f"{published.address}, label {plan.label}: {_summary(plan)}")
    for file in plan.upload:
        print_note(f"  {file.key} {_size(file.size_bytes)}")


@handled
def promote(
    source: Annotated[str, typer.Argument(metavar="FROM", help="The label that has the packages.")],
    label: Annotated[str, typer.Argument(metavar="TO", help="The label to add them to.")],
    *,
    target: options.At,
    stack: Annotated[
        str | None,
        typer.Option("--variant", "-V", help="Only the packages of this stack.", show_default="all that FROM lists"),
    ] = None,
    packages: Annotated[
        list[str] | None,
        typer.Option("--package", "-p", help="Only this package and what it needs; may be repeated."),
    ] = None,
    dry_run: options.DryRun = False,
    root: options.Root = None,
    output: options.Output = None,
    as_json: options.Json = False,
) -> None:
    """List published packages under another label as well: the same bytes, nothing is built."""
    from channel_tools.publish.maintenance import promoted_keys
    from channel_tools.publish.target import maintained
    from channel_tools.workflow.channel_page import open_followed_target
    from channel_tools.workflow.publish import package_set

    channel = open_followed_target(target, environ=os.environ)
    if stack is not None:
        wanted = StackPackages(stack=stack, packages=tuple(packages or ()))
        chosen = package_set(options.settings_from(root, output), wanted, note=print_note)
        keys = tuple(str(file.key) for file in chosen.files)
    else:
        keys = promoted_keys(maintained(channel), source, packages or ())
    if dry_run:
        _show_keys(keys, channel.address, source, label, as_json=as_json)
        return
    with shown_progress() as progress:
        report = channel.promote(keys, source=source, label=label, progress=progress)
    _show_report(report, as_json=as_json)


def _show_keys(keys: tuple[str, ...], address: str, source: str, label: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"schema": 1, "target": address, "from": source, "to": label, "files": list(keys)})
        return
    for key in keys:
        print_line(key)
    print_line(f"{address}: {counted(len(keys), 'package')} of {source} would be listed under {label}")


def _show_plan(plan: PublishPlan, address: str, *, as_json: bool) -> None:
    actions = (("upload", plan.upload), ("link", plan.link), ("present", plan.present))
    if as_json:
        rows = [
            {"file": str(file.key), "size_bytes": file.size_bytes, "sha256": file.sha256, "action": action}
            for action, files in actions
            for file in files
        ]
        print_json(
            {"schema": 1, "target": address, "label": plan.label, "upload_bytes": plan.upload_bytes, "files": rows}
        )
        return
    table = [(str(file.key), _size(file.size_bytes), action) for action, files in actions for file in files]
    print_table(("file", "size", "action"), table)
    print_line(f"{address}, label {plan.label}: {_summary(plan)}")


def _show_report(report: PublishReport, *, as_json: bool) -> None:
    if as_json:
        print_json({"schema": 1, **asdict(report), "seconds": round(report.seconds, 3)})
        return
    print_line(
        f"{report.address}: {len(report.uploaded)} uploaded, {len(report.linked)} linked in {report.seconds:.1f} s"
    )


def _show_replica(replica: Replica, *, dry_run: bool, as_json: bool) -> None:
    if as_json:
        print_json({"schema": 1, **asdict(replica), "dry_run": dry_run})
        return
    if dry_run:
        for action, names in (("send", replica.sent), ("remove", replica.removed)):
            for name in names:
                print_line(f"{action} {name}")
    would = "would be " if dry_run else ""
    later = f"; {counted(len(replica.waiting), 'file')} to be removed by a copy after a day" if replica.waiting else ""
    print_line(
        f"{replica.address}: {counted(len(replica.sent), 'file')} ({_size(replica.sent_bytes)}) {would}sent, "
        f"{len(replica.removed)} {would}removed{later}"
    )


def _summary(plan: PublishPlan) -> str:
    return (
        f"{len(plan.upload)} to upload ({_size(plan.upload_bytes)}), {len(plan.link)} to link from other labels, "
        f"{len(plan.present)} already there"
    )


def _size(size_bytes: int) -> str:
    from channel_tools.system.progress import format_amount

    return format_amount(size_bytes, "bytes")
