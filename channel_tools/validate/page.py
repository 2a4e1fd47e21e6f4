# SPDX-License-Identifier: BSD-3-Clause
"""The report as a web page: one HTML file that loads nothing, light and dark, with the tables.

All values come from elsewhere (packages, logs, the machine) and are escaped by the template; a content security policy
in the page forbids everything that is not in it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from channel_tools.system.counting import counted
from channel_tools.system.files import write_text_atomically
from channel_tools.system.pages import day, page_templates
from channel_tools.validate.report import ReportTable, doubts, report_tables

if TYPE_CHECKING:
    from collections.abc import Iterator

    from channel_tools.validate.model import ValidationReport

_GIB = 1 << 30
_TEMPLATES = page_templates(Path(__file__).parent / "templates")
_TEMPLATES.filters |= {"day": day}


@dataclass(frozen=True, kw_only=True, slots=True)
class CaseGroup:
    """The cases of one data type: what they came to, in words, and their rows of the table."""

    title: str
    summary: str
    failed: bool
    table: ReportTable


def write_page(report: ValidationReport, path: Path) -> None:
    """Write the report's page to ``path``; a reader sees the old page or the whole new one."""
    write_text_atomically(path, render_page(report))


def render_page(report: ValidationReport) -> str:
    """The page as HTML."""
    findings, checks, cases, *figures = report_tables(report)
    troubled = any(finding.level != "ok" for finding in report.findings)
    reasons = Counter({case.reason: 0 for case in report.result.cases if case.reason})
    for case in report.result.cases:
        if case.reason:
            reasons[case.reason] += case.calls
    return _TEMPLATES.get_template("report.html.jinja").render(
        report=report,
        summary=_summary(report),
        facts=_facts(report),
        doubts=doubts(report),
        reasons=[f"{reason} {calls}" for reason, calls in reasons.most_common()],
        checks=checks,
        figures=figures,
        findings=(findings, troubled),
        groups=tuple(_groups(report, cases)),
        packages=ReportTable(
            title="Packages of the environment",
            columns=("package", "version", "build"),
            rows=tuple((package.name, package.version, package.build) for package in report.environment.records),
        ),
    )


def _summary(report: ValidationReport) -> str:
    checks, failed = len(report.result.checks), len(report.failed_checks)
    return f"{failed} of {counted(checks, 'check')} failed" if failed else f"all {counted(checks, 'check')} passed"


def _facts(report: ValidationReport) -> dict[str, str]:
    host = report.host
    interfaces = [
        f"{finding.subject.removeprefix(_INTERFACE)}: {finding.found}"
        for finding in report.findings
        if finding.subject.startswith(_INTERFACE)
    ]
    return {
        "Ranks": f"{report.ranks}" + (f" on {counted(len(report.hosts), 'host')}" if len(report.hosts) > 1 else ""),
        "Method": report.method,
        **{key: value for key, value in sorted(report.result.details.items()) if value},
        "channel_tools": report.tool_version,
        "Host": host.name,
        "Processor": f"{host.cores} cores" + (f", {host.processor}" if host.processor else ""),
        "Memory": f"{host.memory_bytes / _GIB:.1f} GiB",
        "Load before": f"{host.load_average:.2f}",
        **({"Interfaces": "; ".join(interfaces)} if interfaces else {}),
        "System": f"{host.system}, {host.machine}",
        "Took": f"{report.seconds:.1f} s",
    }


_INTERFACE = "interface "


def _groups(report: ValidationReport, cases: ReportTable) -> Iterator[CaseGroup]:
    """The cases by data type; omitted ones are the last rows of the table."""
    named = [case.dtype for case in report.result.cases]
    named += ["omitted"] * len(report.result.omitted)
    for kind in dict.fromkeys(named):
        numbers = [number for number, name in enumerate(named) if name == kind]
        failed = sum(number in cases.failed_rows for number in numbers)
        yield CaseGroup(
            title=kind,
            summary=counted(len(numbers), "case") + (f", {failed or 'none'} failed" if kind != "omitted" else ""),
            failed=bool(failed),
            table=ReportTable(
                title=f"Cases: {kind}",
                columns=cases.columns,
                rows=tuple(cases.rows[number] for number in numbers),
                failed_rows=tuple(at for at, number in enumerate(numbers) if number in cases.failed_rows),
            ),
        )
