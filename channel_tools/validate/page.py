# SPDX-License-Identifier: BSD-3-Clause
"""The report as a web page: one HTML file that loads nothing, light and dark, with the tables and plots.

All values come from elsewhere (packages, logs, the machine) and are escaped by the template; a content security policy
in the page forbids everything that is not in it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from channel_tools.system.charts import Bar, BarGroup, Line, bar_chart, line_chart
from channel_tools.system.files import write_text_atomically
from channel_tools.system.pages import page_templates, size_in_words
from channel_tools.validate.report import ReportTable, drops_in_words, report_tables, spread_in_words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from markupsafe import Markup

    from channel_tools.validate.model import HistoryRow, ValidationReport

_GIB = 1 << 30
_TEMPLATES = page_templates(Path(__file__).parent / "templates")


def write_page(report: ValidationReport, path: Path) -> None:
    """Write the report's page to ``path``; a reader sees the old page or the whole new one."""
    write_text_atomically(path, render_page(report))


def render_page(report: ValidationReport) -> str:
    """The page as HTML."""
    return _TEMPLATES.get_template("report.html.jinja").render(
        report=report,
        summary=_summary(report),
        tables=(*report_tables(report), _run_table(report)),
        packages=_package_table(report),
        charts=tuple(_charts(report)),
    )


def _summary(report: ValidationReport) -> str:
    checks, failed = len(report.result.checks), len(report.failed_checks)
    said = f"all {checks} checks passed" if not failed else f"{failed} of {checks} checks failed"
    drops = drops_in_words(report)
    return f"{said}; {drops}" if drops else said


def _run_table(report: ValidationReport) -> ReportTable:
    host = report.host
    facts = {
        "started (UTC)": report.started,
        "seconds": f"{report.seconds:.1f}",
        "channel_tools": report.tool_version,
        "host": host.name,
        "system": f"{host.system}, {host.machine}",
        "processor": host.processor,
        "cores": str(host.cores),
        "memory": f"{host.memory_bytes / _GIB:.1f} GiB",
        "load average before": f"{host.load_average:.2f}",
        **dict(sorted(report.result.details.items())),
    }
    return ReportTable(title="The run", columns=("what", "found"), rows=tuple(facts.items()))


def _package_table(report: ValidationReport) -> ReportTable:
    return ReportTable(
        title="Packages of the environment",
        columns=("package", "version", "build"),
        rows=tuple((one.name, one.version, one.build) for one in report.environment.records),
    )


def _charts(report: ValidationReport) -> Iterator[Markup]:
    if report.result.bandwidth:
        yield _bandwidth_chart(report)
    for number, row in enumerate(report.history.rows if report.history else ()):
        if row.earlier:
            yield _history_chart(row, f"history-{number}")


def _bandwidth_chart(report: ValidationReport) -> Markup:
    groups = tuple(
        BarGroup(
            label=f"{row.dtype}, {size_in_words(row.size_bytes)}",
            bars=(
                Bar(
                    label=report.stack,
                    value=row.transport.median,
                    figure=f"{row.transport.median:.0f}",
                    look="own",
                    spread=row.transport,
                ),
                Bar(
                    label=report.result.baseline,
                    value=row.baseline.median,
                    figure=f"{row.baseline.median:.0f}",
                    look="other",
                    spread=row.baseline,
                ),
            ),
        )
        for row in report.result.bandwidth
    )
    lines = [
        f"{row.dtype} of {size_in_words(row.size_bytes)}: {report.stack} {spread_in_words(row.transport)}, "
        f"{report.result.baseline} {spread_in_words(row.baseline)}"
        for row in report.result.bandwidth
    ]
    return bar_chart("bandwidth", "Bandwidth, MB/s: median and quartiles", groups, description="; ".join(lines) + ".")


def _history_chart(row: HistoryRow, name: str) -> Markup:
    size = f"{row.dtype} of {size_in_words(row.size_bytes)}"
    figures = [*(one.transport_mb_s for one in row.earlier), row.now_mb_s]
    limit = "" if row.limit_mb_s is None else f", noise down to {row.limit_mb_s:.0f} (dashed)"
    listed = ", ".join(f"{figure:.0f}" for figure in figures)
    return line_chart(
        name,
        f"{size}: {row.verdict}",
        Line(figures=figures, unit="MB/s", limit=row.limit_mb_s),
        description=f"Bandwidth of {size} in MB/s, earlier runs and now: {listed}{limit}.",
    )
