# SPDX-License-Identifier: BSD-3-Clause
"""``channel_tools foundation``: the channel made from wheels and Debian packages."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from channel_tools.cli import options
from channel_tools.cli.console import handled, print_json, print_line, print_table
from channel_tools.cli.options import asks
from channel_tools.cli.plan import unsatisfiable_in_short
from channel_tools.cli.progress import shown_progress
from channel_tools.requests.foundation import FoundationBuildRequest, LockRequest, LockUpdateRequest
from channel_tools.system.counting import counted

if TYPE_CHECKING:
    from channel_tools.system.settings import Settings
    from channel_tools.workflow.foundation_lock import LockChange

app = typer.Typer(
    no_args_is_help=True,
    help="The registry foundation, made from PyPI and Debian, and the lock of conda-forge as a foundation.",
)


@app.command("build")
@handled
@asks(FoundationBuildRequest)
def build(
    request: FoundationBuildRequest,
    *,
    root: options.Root = None,
    output: options.Output = None,
    as_json: options.Json = False,
) -> None:
    """Make or update the registry foundation; unchanged packages are kept."""
    from channel_tools.workflow.foundation import make_registry_foundation

    settings, dry_run = options.settings_from(root, output), request.dry_run
    with shown_progress() as progress:
        result = make_registry_foundation(settings, request, progress=progress)
    changes = {"made": result.made, "kept": result.kept, "removed": result.removed}
    if as_json:
        print_json({"schema": 1, "foundation": str(settings.foundation), "dry_run": dry_run, **changes})
        return
    for name in (*result.made, *(f"{name} (removed)" for name in result.removed)):
        print_line(name)
    would = "would be " if dry_run else ""
    counts = ", ".join(f"{len(names)} {would}{change}" for change, names in changes.items())
    print_line(f"{settings.foundation}: {counts}")


@app.command("list")
@handled
def list_packages(*, root: options.Root = None, output: options.Output = None, as_json: options.Json = False) -> None:
    """Show the packages of the foundation's table and what each was made from."""
    from channel_tools.workflow.foundation import foundation_rows

    rows = foundation_rows(options.settings_if_any(root, output))
    if as_json:
        print_json({"schema": 1, "packages": [asdict(row) for row in rows]})
        return
    print_table(
        ("package", "version", "build", "subdir", "kB", "made from"),
        [
            (
                row.name,
                row.version or "",
                row.build or row.state,
                row.subdir or "",
                "" if row.size_bytes is None else str(round(row.size_bytes / 1000)),
                " ".join(row.taken),
            )
            for row in rows
        ],
    )


@app.command("verify")
@handled
def verify(
    *,
    jobs: options.Jobs = None,
    root: options.Root = None,
    output: options.Output = None,
    as_json: options.Json = False,
) -> None:
    """Prove that the foundation is closed: every library is present, nothing points outside the prefix."""
    from channel_tools.system.errors import VerificationError
    from channel_tools.workflow.foundation import verify_registry_foundation

    settings = options.settings_from(root, output)
    with shown_progress() as progress:
        packages, findings = verify_registry_foundation(settings, jobs=jobs, progress=progress)
    if as_json:
        rows = [
            {"package": finding.package, "file": finding.file, "rule": finding.rule, "message": finding.found}
            for finding in findings
        ]
        print_json({"schema": 1, "packages": packages, "findings": rows})
    else:
        for finding in findings:
            print_line(str(finding))
        print_line(f"{settings.foundation}: {counted(packages, 'package')}, {counted(len(findings), 'finding')}")
    if findings:
        message = f"{settings.foundation}: {counted(len(findings), 'finding')}, the first: {findings[0]}"
        raise VerificationError(
            message, hint="correct the table's row or its repair step, then run: channel_tools foundation build"
        )


@app.command("lock")
@handled
@asks(LockRequest)
def lock(
    request: LockRequest, *, root: options.Root = None, output: options.Output = None, as_json: options.Json = False
) -> None:
    """Record in the tree what every environment has of conda-forge; what is recorded does not move."""
    _change(options.settings_from(root, output), request, as_json=as_json)


@app.command("update")
@handled
@asks(LockUpdateRequest)
def update_lock(
    request: LockUpdateRequest,
    *,
    root: options.Root = None,
    output: options.Output = None,
    as_json: options.Json = False,
) -> None:
    """Move the lock to what conda-forge has now, and show what that makes build again and why."""
    _change(options.settings_from(root, output), request, as_json=as_json)


def _change(settings: Settings, request: LockRequest, *, as_json: bool) -> None:
    from channel_tools.workflow.foundation_lock import change_lock

    _show_change(change_lock(settings, request), dry_run=request.dry_run, as_json=as_json)


def _show_change(change: LockChange, *, dry_run: bool, as_json: bool) -> None:
    if as_json:
        rebuilt = [{"package": package.folder_name, "reasons": list(package.reasons)} for package in change.rebuilt]
        moved = [asdict(package) for package in change.moved]
        unserved = [{"package": package.rendered.name, "reason": package.reason} for package in change.unserved]
        changes = {"moved": moved, "rebuilt": rebuilt, "unserved": unserved}
        print_json({"schema": 1, "lock": str(change.path), "dry_run": dry_run, **changes})
        return
    for moved_package in change.moved:
        before, after = (", ".join(versions) or "(none)" for versions in (moved_package.before, moved_package.after))
        print_line(f"{moved_package.name}: {before} -> {after}")
    for package in change.rebuilt:
        print_line(f"{package.folder_name}: would be built, because")
        for reason in package.reasons:
            print_line(f"  {reason}")
    if change.unserved:
        print_line(f"{counted(len(change.unserved), 'variant')} that conda-forge cannot serve after this:")
        for line in unsatisfiable_in_short(change.unserved):
            print_line(f"  {line}")
    would = "would have" if dry_run else "has"
    counts = (
        f"{counted(len(change.after.records), 'package')} in {counted(len(change.after.environments), 'environment')}"
    )
    moves = f"{counted(len(change.moved), 'name')} moved, {counted(len(change.rebuilt), 'package')} to build again"
    print_line(f"{change.path}: {would} {counts}; {moves}")
