# SPDX-License-Identifier: BSD-3-Clause
"""``channel_tools yank``, ``hotfix`` and ``retain``: maintaining what is published."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from channel_tools.cli import options  # noqa: TC001 - typer reads the annotations
from channel_tools.cli.console import handled, print_json, print_line, print_note, print_table
from channel_tools.system.errors import UsageError

if TYPE_CHECKING:
    from channel_tools.channel.maintenance import RetentionPlan
    from channel_tools.publish.maintenance import Changed
    from channel_tools.publish.target import MaintainedTarget

Label = Annotated[str | None, typer.Option("--label", help="Only this label.", show_default="every label")]
_DAY_S = 24 * 3600.0
_HOUR_S = 3600.0


@handled
def yank(
    spec: Annotated[str, typer.Argument(metavar="SPEC", help="A MatchSpec (libswitchml=1.0.0=udp*) or a file name.")],
    *,
    target: options.At,
    reason: Annotated[str, typer.Option(help="The reason, kept in the channel's records.", show_default=False)] = "",
    undo: Annotated[bool, typer.Option("--undo", help="Make them visible to new solves again.")] = False,
    label: Label = None,
    dry_run: options.DryRun = False,
    as_json: options.Json = False,
) -> None:
    """Yank packages: new solves do not see them, lock files still install them."""
    from channel_tools.publish import maintenance

    if bool(reason) == undo:
        raise UsageError(
            "--reason is required, except with --undo, which takes none", hint='add --reason "what is wrong with them"'
        )
    channel = _open(target)
    changed = maintenance.yank(channel, spec, label=label, reason=None if undo else reason, dry_run=dry_run)
    if not changed:
        state = "listed already" if undo else "yanked already; the reason that was given first is kept"
        print_note(f"all packages that match {spec!r} are {state}")
    _show_changed(changed, "restored" if undo else "yanked", channel.address, dry_run=dry_run, as_json=as_json)


@handled
def hotfix(
    file: Annotated[Path, typer.Argument(metavar="FILE|DIR", help="A patch_instructions.json, or a folder of them.")],
    *,
    target: options.At,
    subdir: Annotated[
        str | None, typer.Option(help="The subdir that FILE applies to.", show_default="the one that has its packages")
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace earlier patches of the subdir.")] = False,
    label: Label = None,
    dry_run: options.DryRun = False,
    as_json: options.Json = False,
) -> None:
    """Patch the records of published packages by conda's patch_instructions.json; package files are not changed."""
    from channel_tools.publish import maintenance

    channel = _open(target)
    changed = maintenance.hotfix(channel, file, subdir=subdir, label=label, replace=replace, dry_run=dry_run)
    _show_changed(changed, "patched", channel.address, dry_run=dry_run, as_json=as_json)


@handled
def retain(
    *,
    target: options.At,
    keep: Annotated[int | None, typer.Option(min=1, help="Keep the newest N versions of each name.")] = None,
    older_than: Annotated[
        float | None, typer.Option(min=0, metavar="DAYS", help="Delete only what was published more than DAYS ago.")
    ] = None,
    locks: Annotated[
        list[Path] | None,
        typer.Option(
            "--lock",
            metavar="FILE",
            help="Keep the packages of this lock, environment.yml or list of MatchSpecs; may be repeated.",
        ),
    ] = None,
    grace: Annotated[
        float, typer.Option(min=0, metavar="HOURS", help="How long files are kept after they were hidden.")
    ] = 24.0,
    remove: Annotated[
        list[str] | None,
        typer.Option(
            "--remove",
            metavar="SPEC",
            help="Remove what this MatchSpec or file name names from the --label, old or not; may be repeated.",
        ),
    ] = None,
    label: Label = None,
    dry_run: options.DryRun = False,
    as_json: options.Json = False,
) -> None:
    """Hide old packages and delete those hidden long enough, never what a lock or another package needs."""
    from channel_tools.channel.maintenance import Retention
    from channel_tools.pins.names import read_locked_names
    from channel_tools.publish import maintenance

    if not remove and keep is None and older_than is None:
        raise UsageError(
            "retain: give --keep N or --older-than DAYS",
            hint="or both; --dry-run shows what would be hidden or deleted",
        )
    if remove and (keep is not None or older_than is not None or label is None):
        raise UsageError(
            "retain: --remove goes with --label, and without --keep and --older-than",
            hint="name the label to remove from, for example --label testing",
        )
    locked = read_locked_names(locks or ())
    rule = Retention(
        keep=keep or 1,
        older_than_s=(older_than or 0.0) * _DAY_S,
        locked_files=locked.files,
        locked_hashes=locked.hashes,
        grace_s=grace * _HOUR_S,
    )
    channel = _open(target)
    plans = maintenance.retain(
        channel, rule, label=label, dry_run=dry_run, locked_specs=locked.specs, remove=remove or ()
    )
    _show_retention(plans, channel.address, dry_run=dry_run, as_json=as_json)


def _open(address: str) -> MaintainedTarget:
    from channel_tools.publish.target import maintained
    from channel_tools.workflow.channel_page import open_followed_target

    return maintained(open_followed_target(address, environ=os.environ))


def _show_changed(changed: list[Changed], action: str, address: str, *, dry_run: bool, as_json: bool) -> None:
    if as_json:
        rows = [{"label": item.label, "file": item.key} for item in changed]
        print_json({"schema": 1, "target": address, "dry_run": dry_run, action: rows})
        return
    for item in changed:
        print_line(f"{item.label}: {item.key}")
    print_line(f"{address}: {len(changed)} {'would be ' if dry_run else ''}{action}")


def _show_retention(plans: dict[str, RetentionPlan], address: str, *, dry_run: bool, as_json: bool) -> None:
    if as_json:
        rows = {
            label: {"retired": list(plan.retire), "deleted": list(plan.delete), "kept": plan.keep}
            for label, plan in plans.items()
        }
        print_json({"schema": 1, "target": address, "dry_run": dry_run, "labels": rows})
        return
    table = [(label, key, fate) for label, plan in plans.items() for key, fate in _fates(plan)]
    if table:
        print_table(("label", "file", "what"), table)
    retired = sum(len(plan.retire) for plan in plans.values())
    deleted = sum(len(plan.delete) for plan in plans.values())
    would = "would be " if dry_run else ""
    print_line(f"{address}: {retired} {would}hidden, {deleted} {would}deleted")


def _fates(plan: RetentionPlan) -> list[tuple[str, str]]:
    gone = [(key, "delete") for key in plan.delete]
    hidden = [(key, "hide, delete after the grace time") for key in plan.retire if key not in plan.delete]
    return sorted([*gone, *hidden, *((key, f"keep: {reason}") for key, reason in plan.keep.items())])
