# SPDX-License-Identifier: BSD-3-Clause
"""``channel_tools build``: packages into the local channel."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from channel_tools.cli import options
from channel_tools.cli.console import print_json, print_note, print_table
from channel_tools.cli.grouped import grouped
from channel_tools.cli.handling import handled
from channel_tools.cli.plan import print_plan, reasons_in_short

if TYPE_CHECKING:
    from pathlib import Path

    from channel_tools.build.model import BuildResult
    from channel_tools.plan import Plan
    from channel_tools.settings import Settings
    from channel_tools.workflow.building import BuildOutcome
    from channel_tools.workflow.planning import PlanRequest

_MB = 1e6


@handled
@grouped(options.PlanOptions)
def build(
    given: options.PlanOptions,
    *,
    jobs: options.Jobs = None,
    engine: options.Engine = "rattler-build",
    update: options.Update = False,
    locked: options.Locked = None,
    offline: options.Offline = False,
    dry_run: options.DryRun = False,
    as_json: options.Json = False,
) -> None:
    """Build a stack into the local channel; what has not changed is skipped."""
    from channel_tools.cli.progress import shown_progress  # noqa: PLC0415
    from channel_tools.workflow.building import BuildOptions, build_stacks  # noqa: PLC0415
    from channel_tools.workflow.foundations import FoundationOptions  # noqa: PLC0415

    settings, request = given.settings, given.request
    if dry_run:
        _show_plan(settings, request, as_json=as_json)
        return
    cores = options.available_cores()
    with shown_progress() as progress:
        outcome = build_stacks(
            settings,
            request,
            options=BuildOptions(
                jobs=jobs or cores,
                cores=cores,
                environ=os.environ,
                engine=engine,
                foundation=FoundationOptions(update=update, locked=locked, offline=offline),
                offline=offline,
            ),
            progress=progress,
            on_plan=_announce,
            on_result=_report,
        )
    _print_outcome(outcome, settings.channel, as_json=as_json)


def _show_plan(settings: Settings, request: PlanRequest, *, as_json: bool) -> None:
    from channel_tools.plan import plan_to_json  # noqa: PLC0415
    from channel_tools.workflow.planning import plan_for  # noqa: PLC0415

    made = plan_for(settings, request)
    if as_json:
        print_json(plan_to_json(made))
    else:
        print_plan(made, why=True)


def _announce(plan: Plan) -> None:
    skipped = len(plan.packages) - len(plan.to_build)
    print_note(
        f"{len(plan.to_build)} to build, {skipped} in the channel already, {len(plan.unserved)} variants not servable"
    )
    for package in plan.to_build:
        print_note(f"  {package.folder_name}: {reasons_in_short(package)}")
    for reason in sorted({item.reason for item in plan.unserved}):
        names = {item.rendered.name: None for item in plan.unserved if item.reason == reason}
        print_note(f"  not servable: {', '.join(names)}: {reason}")


def _report(result: BuildResult) -> None:
    where = f" (log: {result.log})" if result.log is not None else ""
    print_note(f"{result.job.stem}: {result.status.replace('_', ' ')} after {result.seconds:.1f} s{where}")


def _print_outcome(outcome: BuildOutcome, channel: Path, *, as_json: bool) -> None:
    seconds = {result.job.file_name: result.seconds for result in outcome.results}
    paths = [(package, channel / package.subdir / package.file_name) for package in outcome.plan.packages]
    if as_json:
        made = [
            {
                "name": package.name,
                "path": str(path),
                "size_bytes": path.stat().st_size,
                "seconds": seconds.get(package.file_name),
            }
            for package, path in paths
        ]
        print_json({"schema": 1, "channel": str(channel), "packages": made})
        return
    rows = [
        (path.name, f"{path.stat().st_size / _MB:.2f} MB", _seconds_text(seconds.get(package.file_name)))
        for package, path in paths
    ]
    print_table(("package", "size", "built"), rows, title=f"In the channel {channel}:")


def _seconds_text(seconds: float | None) -> str:
    return "before" if seconds is None else f"in {seconds:.1f} s"
