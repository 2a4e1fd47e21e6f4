# SPDX-License-Identifier: BSD-3-Clause
"""``channel_tools audit``: checks whether packages work under any prefix and on any machine."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from channel_tools.cli import options
from channel_tools.cli.console import handled, print_json, print_line, print_table
from channel_tools.cli.progress import shown_progress
from channel_tools.system.counting import counted
from channel_tools.system.settings import available_cores

if TYPE_CHECKING:
    from channel_tools.audit.model import AuditReport, Finding

SCHEMA = 2

_Target = Annotated[
    Path, typer.Argument(help="A .conda file, a channel's folder, or an environment.", show_default=False)
]
_Beside = Annotated[
    list[Path] | None,
    typer.Option(
        "--channel",
        "-c",
        help="A channel's folder that has the run dependencies; may be repeated.",
        show_default="the package's own channel, else the local channel",
    ),
]


@handled
def audit(
    target: _Target,
    *,
    channels: _Beside = None,
    jobs: options.Jobs = None,
    root: options.Root = None,
    output: options.Output = None,
    as_json: options.Json = False,
) -> None:
    """Check that packages work under any prefix and on any machine: loader paths, build paths, links, versions."""
    from channel_tools.audit.model import Rule
    from channel_tools.system.errors import IntegrityError, VerificationError
    from channel_tools.workflow.audit import run_audit

    settings = options.settings_if_any(root, output)
    with shown_progress() as progress:
        report = run_audit(settings, target, channels or (), jobs=jobs or available_cores(), progress=progress)
    if as_json:
        print_json(report_json(report))
    else:
        _print_report(report)
    if findings := report.findings:
        message = f"{report.target}: {counted(len(findings), 'finding')}, the first: {findings[0]}"
        unreadable = any(finding.rule == Rule.PACKAGE for finding in findings)
        raise (IntegrityError if unreadable else VerificationError)(message, hint=findings[0].fix)


def report_json(report: AuditReport) -> dict[str, Any]:
    """The report as ``--json`` prints it."""
    packages = [
        {
            "package": audited.package,
            "subdir": audited.subdir,
            "files": audited.files,
            "elf_files": audited.elf_files,
            "seconds": round(audited.seconds, 3),
            "findings": [asdict(finding) for finding in audited.findings],
            "excused": [{**asdict(row.finding), "reason": row.reason} for row in audited.excused],
        }
        for audited in report.packages
    ]
    counts = {"findings": len(report.findings), "excused": len(report.excused)}
    return {"schema": SCHEMA, "kind": report.kind, "target": report.target, **counts, "packages": packages}


def _print_report(report: AuditReport) -> None:
    for finding in report.findings:
        print_line(f"{finding.package}: {_location(finding)}: {finding.rule}: {finding.found}")
        print_line(f"    expected: {finding.expected}")
        print_line(f"    to fix: {finding.fix}")
    for row in report.excused:
        print_line(
            f"{row.finding.package}: {_location(row.finding)}: {row.finding.rule}: declared: {row.finding.found}"
        )
        print_line(f"    reason: {row.reason}")
    rows = [
        (
            audited.package,
            str(audited.files),
            str(audited.elf_files),
            str(len(audited.findings)),
            str(len(audited.excused)),
        )
        for audited in report.packages
    ]
    print_table(("package", "files", "ELF", "findings", "declared"), rows)
    print_line(
        f"{report.target}: {counted(len(report.packages), 'package')}, {counted(len(report.findings), 'finding')}"
    )


def _location(finding: Finding) -> str:
    return " ".join(part for part in (finding.file, finding.where) if part) or "the package"
