# SPDX-License-Identifier: BSD-3-Clause
"""Kept reports, and what has become slower than they were."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from channel_tools.system.errors import ChannelError, ConfigError, ValidationError
from channel_tools.validate import report_document, report_tables, write_report
from channel_tools.validate.history import (
    FEWEST_RUNS,
    KeptRun,
    compare_with_history,
    kept_file,
    raise_for_drops,
    read_history,
    read_runs,
)
from channel_tools.validate.judging import spread_of
from channel_tools.validate.model import BandwidthRow, ValidationReport, Verdict
from tests.support.damage import DAMAGES, GROWTH_BYTES, damage, faults_of, peak_memory_bytes, places_of

FOLDER = Path("history")
RUN = TypeAdapter(KeptRun)
SIZES = (64 << 10, 4 << 20, 64 << 20)


def run_of(report: ValidationReport, transport: Sequence[float], baseline: Sequence[float]) -> ValidationReport:
    """The report with such bandwidths, one per size."""
    rows = tuple(
        BandwidthRow(
            dtype="float32",
            numel=size // 4,
            size_bytes=size,
            repetitions=5,
            transport=spread_of([own] * 5),
            baseline=spread_of([other] * 5),
        )
        for size, own, other in zip(SIZES, transport, baseline, strict=True)
    )
    return replace(report, result=replace(report.result, bandwidth=rows))


def kept(reports: Iterable[ValidationReport]) -> tuple[KeptRun, ...]:
    """The reports as they are read again; what a history says nothing of is most of a report, and left out."""
    short = (
        replace(report, result=replace(report.result, checks=(), transports=(), cases=(), omitted=()))
        for report in reports
    )
    return tuple(RUN.validate_python(report_document(report)) for report in short)


def verdicts(report: ValidationReport, runs: Sequence[KeptRun]) -> list[Verdict]:
    return [row.verdict for row in compare_with_history(report, runs, FOLDER).rows]


def steady(report: ValidationReport, *, runs: int = 10) -> tuple[KeptRun, ...]:
    """Most runs have 1000 MB/s; every third is an outlier, which a median leaves out."""
    return kept(run_of(report, [100 if number % 3 == 1 else 1000] * 3, [1000] * 3) for number in range(runs))


@pytest.mark.parametrize(
    ("transport", "baseline", "verdict"),
    [
        pytest.param(801, 1000, Verdict.USUAL, id="less than a fifth"),
        pytest.param(799, 1000, Verdict.DROP, id="a fifth"),
        pytest.param(700, 700, Verdict.MACHINE, id="slower machine"),
        pytest.param(1000, 1500, Verdict.USUAL, id="faster baseline"),
    ],
)
def test_a_size_has_dropped_where_it_is_a_fifth_slower_and_the_baseline_is_not(
    report: ValidationReport, transport: float, baseline: float, verdict: Verdict
) -> None:
    for runs in (FEWEST_RUNS, 10):
        run = run_of(report, [transport] * 3, [baseline] * 3)
        assert verdicts(run, steady(report, runs=runs)) == [verdict] * 3


def test_few_runs_say_nothing(report: ValidationReport) -> None:
    assert verdicts(run_of(report, [1] * 3, [1000] * 3), steady(report, runs=FEWEST_RUNS - 1)) == [Verdict.TOO_FEW] * 3


@pytest.mark.parametrize(
    "other",
    [
        {"ranks": 4},
        {"method": "distributed"},
        {"stack": "rdma"},
        {"host": {"cores": 64, "machine": "x86_64", "processor": "A CPU"}},
        {"passed": False},
        {"baseline": "mpi"},
    ],
    ids=["ranks", "method", "stack", "host", "failed", "baseline"],
)
def test_only_what_is_alike_is_compared(report: ValidationReport, other: dict[str, object]) -> None:
    runs = [RUN.validate_python({**RUN.dump_python(run), **other}) for run in steady(report)]
    comparison = compare_with_history(run_of(report, [700] * 3, [1000] * 3), runs, FOLDER)
    assert (comparison.earlier_runs, comparison.incomparable_runs) == (0, 10)
    assert {row.verdict for row in comparison.rows} == {Verdict.TOO_FEW}


def test_a_drop_is_told_with_what_has_changed(report: ValidationReport) -> None:
    (package,) = report.environment.records
    newer = replace(report.environment, records=(replace(package, version="2.14.0"),))
    slower = replace(run_of(report, [700] * 3, [1000] * 3), environment=newer)
    told = replace(slower, history=compare_with_history(slower, steady(report), FOLDER))
    assert told.history is not None
    (changed,) = told.history.changed_packages
    assert (changed.name, changed.before, changed.now) == ("pytorch", "2.13.0 cpu_h1_0", "2.14.0 cpu_h1_0")
    assert report_tables(told)[-1].rows[0][-1] == "DROP"
    with pytest.raises(
        ValidationError, match=r"float32 of 65536 bytes: 700 MB/s, usual 1000, at least 800 expected"
    ) as caught:
        raise_for_drops(told)
    assert caught.value.exit_code == 10
    raise_for_drops(slower)


def test_runs_are_kept_by_their_time_and_read_again(report: ValidationReport, tmp_path: Path) -> None:
    for second in (7, 5, 6):
        one = replace(report, started=f"2026-01-02T03:04:0{second}+00:00")
        write_report(one, kept_file(tmp_path, one))
    assert [run.started[17:19] for run in read_history(tmp_path)] == ["05", "06", "07"]
    assert read_history(tmp_path / "absent") == ()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", r"one\.json: not a report of a validation: the file: Invalid JSON"),
        ('{"schema_version": 1}', r"one\.json: not a report of a validation: stack: Field required"),
    ],
)
def test_what_is_no_report_is_named(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "one.json").write_text(content)
    with pytest.raises(ConfigError, match=message):
        read_history(tmp_path)


def test_a_report_of_another_schema_is_named(report: ValidationReport, tmp_path: Path) -> None:
    (tmp_path / "one.json").write_text(json.dumps({**report_document(report), "schema_version": 2}))
    with pytest.raises(ConfigError, match=r"one\.json: has schema_version 2; this program reads 1"):
        read_history(tmp_path)


@pytest.mark.parametrize("kind", DAMAGES)
def test_damage_in_the_place_of_a_report_is_one_error_or_leaves_it_out(
    report: ValidationReport, tmp_path: Path, kind: str
) -> None:
    whole, reports, outside = tmp_path / "whole", tmp_path / "reports", tmp_path / "outside"
    for folder in (whole, whole / "history" / "udp", outside):
        folder.mkdir(parents=True)
        write_report(report, kept_file(folder, report))
    assert len(read_runs(whole)) == 2
    peak, failures = peak_memory_bytes(), []
    for place in places_of(whole):
        shutil.copytree(whole, reports)
        damage(reports, place, kind, outside)
        failures += faults_of(lambda: read_runs(reports), f"page, {place}")
        failures += faults_of(lambda: read_history(reports / "history" / "udp"), f"validate, {place}")
        shutil.rmtree(reports)
    assert failures == []
    assert peak_memory_bytes() - peak < GROWTH_BYTES


def test_a_link_out_of_the_reports_is_not_read(report: ValidationReport, tmp_path: Path) -> None:
    reports, outside = tmp_path / "reports", tmp_path / "other.json"
    reports.mkdir()
    write_report(report, outside)
    (reports / "one.json").symlink_to(outside)
    for read in (read_runs, read_history):
        with pytest.raises(ChannelError, match=r"one\.json: is a symbolic link to .*, out of the folder"):
            read(reports)
