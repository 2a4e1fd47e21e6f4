# SPDX-License-Identifier: BSD-3-Clause
"""The report as JSON and as tables for people.

The JSON is versioned (docs/reference/validation-report.md): changing the meaning of a key or removing it raises the
number, new keys do not. Tables are columns and rows of text; the command line formats them.

The validations of several variants of a stack, and the error that stands for all of them.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from channel_tools.system.counting import counted
from channel_tools.system.errors import ValidationError
from channel_tools.system.files import write_text_atomically
from channel_tools.system.pages import size_in_words
from channel_tools.validate.model import SCHEMA_VERSION

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from channel_tools.system.errors import ChannelToolsError
    from channel_tools.validate.model import BandwidthRow, CaseResult, Spread, ValidationReport

_BUSY = 0.5
"""The load per core before a run above which its figures are in doubt."""
_WIDE = 0.5
"""The distance of the quartiles, as a share of the median, above which a figure is in doubt."""
_SHOWN_SIZE_BYTES = 4 << 20
"""The one line shows the measured size closest to this one; stacks with a small ``max_numel`` do not measure it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReportTable:
    """A table for people; ``failed_rows`` are the indices of rows that show a failure."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    failed_rows: tuple[int, ...] = ()


def _numbers(are_failed: Iterable[bool]) -> tuple[int, ...]:
    return tuple(number for number, is_failed in enumerate(are_failed) if is_failed)


def report_document(report: ValidationReport) -> dict[str, object]:
    """The report as JSON values, in the order of the reference."""
    result = report.result
    return {
        "schema_version": SCHEMA_VERSION,
        "stack": report.stack,
        "method": report.method,
        "passed": report.passed,
        "ranks": report.ranks,
        "started": report.started,
        "seconds": round(report.seconds, 3),
        "tool_version": report.tool_version,
        "host": asdict(report.host),
        "runs_on": report.runs_on,
        "hosts": list(report.hosts),
        "environment": {
            "packages": [
                {
                    "name": package.name,
                    "version": package.version,
                    "build": package.build,
                    "sha256": package.sha256,
                }
                for package in report.environment.records
            ],
            "seconds": round(report.environment.seconds, 3),
            "size_bytes": report.environment.size_bytes,
        },
        "details": dict(sorted(result.details.items())),
        "findings": [asdict(finding) for finding in report.findings],
        "checks": [asdict(check) for check in result.checks],
        "transports": [asdict(totals) for totals in result.transports],
        "cases": [{**asdict(case), "passed": case.passed} for case in result.cases],
        "omitted": [asdict(case) for case in result.omitted],
        "baseline": result.baseline,
        "bandwidth": [_bandwidth_document(row) for row in result.bandwidth],
        "on_this_host": None
        if result.on_this_host is None
        else {
            "carrier": result.on_this_host.carrier,
            "bandwidth": [_bandwidth_document(row) for row in result.on_this_host.bandwidth],
        },
        "nccl_tests": [asdict(row) for row in result.nccl_tests],
    }


def _bandwidth_document(row: BandwidthRow) -> dict[str, object]:
    return {
        "dtype": row.dtype,
        "numel": row.numel,
        "size_bytes": row.size_bytes,
        "repetitions": row.repetitions,
        "transport_mb_s": row.transport.median,
        "transport_quartiles_mb_s": [row.transport.lower, row.transport.upper],
        "baseline_mb_s": row.baseline.median,
        "baseline_quartiles_mb_s": [row.baseline.lower, row.baseline.upper],
        "ratio": row.ratio,
    }


def write_report(report: ValidationReport, path: Path) -> None:
    """Write the report's JSON to ``path``; a reader sees the old report or the whole new one."""
    write_text_atomically(path, json.dumps(report_document(report), indent=2, ensure_ascii=False) + "\n")


def report_tables(report: ValidationReport) -> tuple[ReportTable, ...]:
    """Tables of doctor's findings, checks, cases, transports, bandwidths, and nccl-tests' if there are any."""
    return (
        _finding_table(report),
        _check_table(report),
        _case_table(report),
        _transport_table(report),
        *bandwidth_tables(report),
        *((_nccl_tests_table(report),) if report.result.nccl_tests else ()),
    )


def result_line(report: ValidationReport, report_file: Path) -> str:
    """The result in one line: ``PASSED 16/16, carried by mpi, 4 MiB 0.99 x gloo, report: FILE``.

    Where the bandwidths are not those of a user's ranks on this host, theirs come first. The carrier is named only if
    every check passed, since the checks are what proves it; otherwise the first failed check is named.
    """
    result = report.result
    checks, failed = len(result.checks), report.failed_checks
    parts = [f"{'FAILED' if failed else 'PASSED'} {checks - len(failed)}/{checks}"]
    if failed:
        parts[0] += f": {failed[0].name}"
    if not result.cases:
        parts.append("no allreduce was run" + (f": {result.omitted[0].reason}" if result.omitted else ""))
    elif not failed:
        parts.append(f"carried by {result.transports[0].name}")
    if result.bandwidth:
        nearest = _nearest(result.bandwidth)
        rate = f"{nearest.ratio:.2f} x {result.baseline}"
        if result.on_this_host is not None:
            here = _nearest(result.on_this_host.bandwidth)
            rate = f"{_rate_here(result.on_this_host.carrier, here, result.baseline)}, {rate} through the switch"
        parts.append(f"{size_in_words(nearest.size_bytes)} {rate}")
    if result.nccl_tests:
        fastest = max(result.nccl_tests, key=lambda row: row.busbw_gb_s)
        parts.append(f"nccl-tests {fastest.busbw_gb_s:g} GB/s at {size_in_words(fastest.size_bytes)}")
    return ", ".join((*parts, f"report: {report_file}"))


def _rate_here(carrier: str, row: BandwidthRow, baseline: str) -> str:
    return f"{baseline} with nothing set" if carrier == baseline else f"{row.ratio:.2f} x {baseline} in {carrier}"


def _nearest(rows: Sequence[BandwidthRow]) -> BandwidthRow:
    return min(rows, key=lambda row: abs(math.log2(row.size_bytes / _SHOWN_SIZE_BYTES)))


def doubts(report: ValidationReport) -> list[str]:
    """Why the bandwidths may be those of a busy machine rather than of the stack, each in a sentence."""
    sentences = []
    load, cores = report.host.load_average, report.host.cores
    if load > _BUSY * cores:
        sentences.append(f"The machine was busy before the run: a load of {load:.2f} on {cores} cores.")
    here = report.result.on_this_host
    wide = [
        f"{row.dtype} of {size_in_words(row.size_bytes)}"
        for row in (*report.result.bandwidth, *(here.bandwidth if here else ()))
        if any(spread.upper - spread.lower > _WIDE * spread.median for spread in (row.transport, row.baseline))
    ]
    if wide:
        sizes = ", ".join(wide)
        sentences.append(
            f"The quartiles are more than {_WIDE:.0%} of the median apart for {sizes}: take these as rough."
        )
    return sentences


def raise_for_failures(report: ValidationReport, *, report_file: Path) -> None:
    """Raise ValidationError naming the failed checks, if any."""
    failed = report.failed_checks
    if not failed:
        return
    lines = [f"{check.name}: found {check.found}; expected {check.expected}" for check in failed]
    message = (
        f"stack {report.stack}: {len(failed)} of {counted(len(report.result.checks), 'check')} failed\n"
        + "\n".join(lines)
    )
    raise ValidationError(message, hint=f"the whole report is {report_file}")


def _finding_table(report: ValidationReport) -> ReportTable:
    return ReportTable(
        title="Findings of doctor before the run",
        columns=("examined", "", "found", "to fix it"),
        rows=tuple((finding.subject, finding.level, finding.found, finding.fix) for finding in report.findings),
    )


def _check_table(report: ValidationReport) -> ReportTable:
    return ReportTable(
        title=f"Checks of {report.stack} with {counted(report.ranks, 'rank')}"
        + (f" on {counted(len(report.hosts), 'host')}" if report.hosts else ""),
        columns=("check", "result", "found", "expected"),
        failed_rows=_numbers(not check.passed for check in report.result.checks),
        rows=tuple(
            (check.name, "ok" if check.passed else "FAILED", check.found, check.expected)
            for check in report.result.checks
        ),
    )


def _case_table(report: ValidationReport) -> ReportTable:
    return ReportTable(
        title="Allreduces",
        columns=("case", "elements", "calls", "carried by", "largest error", "ms", "result"),
        failed_rows=_numbers(not case.passed for case in report.result.cases),
        rows=tuple(
            (
                case.name,
                str(case.numel),
                str(case.calls),
                case.route if not case.reason else f"{case.route} ({case.reason})",
                _error_in_words(case),
                f"{case.seconds * 1000:.0f}",
                _problems_in_words(case),
            )
            for case in report.result.cases
        )
        + tuple((case.name, "", "", f"omitted: {case.reason}", "", "", "") for case in report.result.omitted),
    )


def _problems_in_words(case: CaseResult) -> str:
    if not case.problems:
        return "ok"
    more = f" (and {len(case.problems) - 1} more)" if len(case.problems) > 1 else ""
    return case.problems[0] + more


def _error_in_words(case: CaseResult) -> str:
    if case.error_measure == "exact":
        return "exact" if not case.mismatches else f"{case.mismatches} wrong"
    return f"{case.max_error:.1e} per {case.error_measure}"


def _transport_table(report: ValidationReport) -> ReportTable:
    return ReportTable(
        title="What carried the data",
        columns=("transport", "jobs", "elements", "MB", "counted by"),
        rows=tuple(
            (
                totals.name,
                "" if totals.jobs is None else str(totals.jobs),
                str(totals.elements),
                f"{totals.bytes / 1e6:.1f}",
                totals.counted_by,
            )
            for totals in report.result.transports
        ),
    )


def bandwidth_tables(report: ValidationReport) -> tuple[ReportTable, ...]:
    """The rates of each type and size, the stack's and the baseline's, and their ratio; also those of users' ranks."""
    here = report.result.on_this_host
    if here is None:
        return (_bandwidth_table("Bandwidth", report.result.bandwidth, report.result.baseline),)
    return (
        _bandwidth_table("Bandwidth through the switch", report.result.bandwidth, report.result.baseline),
        _bandwidth_table(
            f"Bandwidth with nothing set, by {here.carrier}",
            here.bandwidth,
            report.result.baseline,
        ),
    )


def _bandwidth_table(title: str, rows: Sequence[BandwidthRow], baseline: str) -> ReportTable:
    return ReportTable(
        title=f"{title}, MB of tensor per second and rank: median call (quartiles)",
        columns=("type", "size", "calls", "stack", baseline, "ratio"),
        rows=tuple(
            (
                row.dtype,
                size_in_words(row.size_bytes),
                str(row.repetitions),
                spread_in_words(row.transport),
                spread_in_words(row.baseline),
                f"{row.ratio:.2f}",
            )
            for row in rows
        ),
    )


def _nccl_tests_table(report: ValidationReport) -> ReportTable:
    rows = report.result.nccl_tests
    return ReportTable(
        title="Bus bandwidth by nccl-tests, GB per second",
        columns=("type", "op", "size", "", "µs", "busbw", "wrong"),
        rows=tuple(
            (
                row.dtype,
                row.op,
                size_in_words(row.size_bytes),
                row.place,
                f"{row.microseconds:g}",
                f"{row.busbw_gb_s:g}",
                "not counted" if row.wrong is None else str(row.wrong),
            )
            for row in rows
        ),
        failed_rows=_numbers(bool(row.wrong) for row in rows),
    )


def spread_in_words(spread: Spread) -> str:
    """``1200 (1100 to 1250)``."""
    return f"{spread.median:.0f} ({spread.lower:.0f} to {spread.upper:.0f})"


class VariantOutcome(IntEnum):
    """The outcome of a variant's validation, the worst last."""

    PASSED = 0
    FAILED = 1
    NOT_VALIDATED = 2

    @property
    def words(self) -> str:
        """The outcome as words for a table."""
        return self.name.replace("_", " ") if self else "ok"


@dataclass(frozen=True, kw_only=True, slots=True)
class VariantResult:
    """The validation of the variant for a Python and a PyTorch: its report, its path, and the error if it failed.

    There is no report if the run was not completed.
    """

    python: str | None = None
    pytorch: str | None = None
    report: ValidationReport | None = None
    path: Path | None = None
    error: ChannelToolsError | None = None

    @property
    def name(self) -> str:
        """The versions of the variant, as words."""
        versions = {"pytorch": self.pytorch, "python": self.python}
        return ", ".join(f"{key} {version}" for key, version in versions.items() if version) or "the only variant"

    @property
    def verdict(self) -> VariantOutcome:
        """The outcome of the validation."""
        if self.error is None:
            return VariantOutcome.PASSED
        return VariantOutcome.NOT_VALIDATED if self.report is None else VariantOutcome.FAILED


def raise_worst(results: Sequence[VariantResult]) -> None:
    """Raise the error of the worst variant, with the errors of all that did not pass."""
    worst_first = sorted(results, key=lambda result: -result.verdict)
    errors = [(result.name, result.error) for result in worst_first if result.error is not None]
    if not errors:
        return
    worst = errors[0][1]
    if len(results) > 1:
        lines = "\n".join(f"{name}: {error}" for name, error in errors)
        worst = worst.with_message(f"{len(errors)} of {counted(len(results), 'variant')} did not pass\n{lines}")
    raise worst
