# SPDX-License-Identifier: BSD-3-Clause
"""``channel_tools publish`` and ``promote``: from the local channel to where people install from."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from channel_tools.cli import options
from channel_tools.cli.console import print_json, print_line, print_note, print_table
from channel_tools.cli.handling import handled

if TYPE_CHECKING:
    from channel_tools.publish import PublishPlan, PublishReport

Label = Annotated[str, typer.Option("--label", help="Under which label: main is the target's own address.")]


@handled
def publish(
    *,
    target: options.To,
    stack: options.Stack = None,
    every_stack: options.Every = False,
    packages: options.Packages = None,
    label: Label = "main",
    dry_run: options.DryRun = False,
    root: options.Root = None,
    output: options.Output = None,
    as_json: options.Json = False,
) -> None:
    """Publish a stack from the local channel; readers see the whole set or nothing of it."""
    from channel_tools.cli.progress import shown_progress  # noqa: PLC0415
    from channel_tools.publish.open import open_target  # noqa: PLC0415
    from channel_tools.workflow.planning import PlanRequest  # noqa: PLC0415
    from channel_tools.workflow.publishing import package_set  # noqa: PLC0415

    request = PlanRequest(stack=stack, every_stack=every_stack, packages=tuple(packages or ()))
    place = open_target(target, environ=os.environ)
    plan = place.plan(package_set(options.settings_from(root, output), request), label=label)
    if dry_run:
        _show_plan(plan, place.address, as_json=as_json)
        return
    print_note(f"{place.address}, label {label}: {_summary(plan)}")
    for file in plan.upload:
        print_note(f"  {file.key} {_size(file.size_bytes)}")
    with shown_progress() as progress:
        report = place.publish(plan, progress=progress)
    _show_report(report, as_json=as_json)


@handled
def promote(
    source: Annotated[str, typer.Argument(metavar="FROM", help="The label that has the packages.")],
    label: Annotated[str, typer.Argument(metavar="TO", help="The label that shall have them, too.")],
    *,
    target: options.At,
    stack: options.Stack = None,
    every_stack: options.Every = False,
    packages: options.Packages = None,
    dry_run: options.DryRun = False,
    root: options.Root = None,
    output: options.Output = None,
    as_json: options.Json = False,
) -> None:
    """Show a published stack under another label as well: the same bytes, nothing is built."""
    from channel_tools.cli.progress import shown_progress  # noqa: PLC0415
    from channel_tools.publish.open import open_target  # noqa: PLC0415
    from channel_tools.workflow.planning import PlanRequest  # noqa: PLC0415
    from channel_tools.workflow.publishing import package_set  # noqa: PLC0415

    request = PlanRequest(stack=stack, every_stack=every_stack, packages=tuple(packages or ()))
    chosen = package_set(options.settings_from(root, output), request)
    place = open_target(target, environ=os.environ)
    if dry_run:
        _show_plan(place.plan(chosen, label=label), place.address, as_json=as_json)
        return
    with shown_progress() as progress:
        report = place.promote(tuple(file.key for file in chosen.files), source=source, label=label, progress=progress)
    _show_report(report, as_json=as_json)


def _show_plan(plan: PublishPlan, address: str, *, as_json: bool) -> None:
    actions = (("upload", plan.upload), ("link", plan.link), ("present", plan.present))
    if as_json:
        rows = [
            {"file": file.key, "size_bytes": file.size_bytes, "sha256": file.sha256, "action": action}
            for action, files in actions
            for file in files
        ]
        print_json(
            {"schema": 1, "target": address, "label": plan.label, "upload_bytes": plan.upload_bytes, "files": rows}
        )
        return
    table = [(file.key, _size(file.size_bytes), action) for action, files in actions for file in files]
    print_table(("file", "size", "action"), table)
    print_line(f"{address}, label {plan.label}: {_summary(plan)}")


def _show_report(report: PublishReport, *, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "schema": 1,
                "address": report.address,
                "label": report.label,
                "uploaded": list(report.uploaded),
                "linked": list(report.linked),
                "seconds": round(report.seconds, 3),
            }
        )
        return
    print_line(
        f"{report.address}: {len(report.uploaded)} uploaded, {len(report.linked)} linked in {report.seconds:.1f} s"
    )


def _summary(plan: PublishPlan) -> str:
    return (
        f"{len(plan.upload)} to upload ({_size(plan.upload_bytes)}), {len(plan.link)} to link from other labels, "
        f"{len(plan.present)} there already"
    )


def _size(size_bytes: int) -> str:
    from channel_tools.cli.progress import format_amount  # noqa: PLC0415

    return format_amount(size_bytes, "bytes")
