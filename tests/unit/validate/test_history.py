# SPDX-License-Identifier: BSD-3-Clause
"""A drop is found in noise, and noise is not taken for one: series of runs whose noise comes from fixed seeds."""

from __future__ import annotations

import json
import math
import random
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from channel_tools.system.errors import ChannelError, ConfigError, ValidationError
from channel_tools.validate import report_document, report_tables, write_report
from channel_tools.validate.history import (
    _STUDENT_T,
    FALSE_ALARM_RATE,
    FEWEST_RUNS,
    MOST_RUNS,
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
SERIES = 100


def seeded(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311 - noise, no secrets


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


def noisy_run(
    report: ValidationReport, source: random.Random, *, noise: float, factor: float = 1.0
) -> ValidationReport:
    """A run whose machine is now faster, now slower, and whose two ways have noise of their own."""

    def figures() -> list[float]:
        return [1000 * math.exp(source.gauss(0, noise)) for _size in SIZES]

    machine = math.exp(source.gauss(0, noise))
    return run_of(report, [factor * machine * one for one in figures()], [machine * one for one in figures()])


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
    """A little noise, the same in every test."""
    source = seeded(20_181)
    return kept(noisy_run(report, source, noise=0.01) for _run in range(runs))


@pytest.mark.parametrize("noise", [0.03, 0.1])
def test_noise_is_no_drop(report: ValidationReport, noise: float) -> None:
    for seed in range(SERIES):
        source = seeded(seed)
        runs = kept(noisy_run(report, source, noise=noise) for _run in range(FEWEST_RUNS + seed % 16))
        assert Verdict.DROP not in verdicts(noisy_run(report, source, noise=noise), runs), seed


def test_a_drop_of_30_percent_is_found_in_noise(report: ValidationReport) -> None:
    for seed in range(SERIES):
        source = seeded(seed)
        runs = kept(noisy_run(report, source, noise=0.03) for _run in range(MOST_RUNS))
        assert Verdict.DROP in verdicts(noisy_run(report, source, noise=0.03, factor=0.7), runs), seed


def test_a_slower_machine_is_no_drop_of_the_stack(report: ValidationReport) -> None:
    assert verdicts(run_of(report, [700] * 3, [700] * 3), steady(report)) == [Verdict.MACHINE] * 3


def test_a_faster_baseline_is_no_drop(report: ValidationReport) -> None:
    assert verdicts(run_of(report, [1000] * 3, [1500] * 3), steady(report)) == [Verdict.USUAL] * 3


def test_less_than_five_percent_is_no_drop(report: ValidationReport) -> None:
    alike = kept([run_of(report, [1000] * 3, [1000] * 3)] * 10)
    assert verdicts(run_of(report, [960] * 3, [1000] * 3), alike) == [Verdict.USUAL] * 3
    assert verdicts(run_of(report, [940] * 3, [1000] * 3), alike) == [Verdict.DROP] * 3


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
    with pytest.raises(ValidationError, match=r"float32 of 65536 bytes: 700 MB/s, usual 1004") as caught:
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


@pytest.mark.parametrize("earlier", [FEWEST_RUNS, 12, MOST_RUNS])
def test_the_quantiles_are_students(earlier: int) -> None:
    """By the tail's integral, which the substitution t = tan(a) makes finite."""
    freedom, steps = earlier - 1, 20_000
    quantile = _STUDENT_T[earlier - FEWEST_RUNS]
    scale = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(freedom * math.pi)
    width = (math.pi / 2 - math.atan(quantile)) / steps
    angles = (math.atan(quantile) + (step + 0.5) * width for step in range(steps))
    tail = sum((1 + math.tan(a) ** 2 / freedom) ** (-(freedom + 1) / 2) / math.cos(a) ** 2 for a in angles)
    assert scale * tail * width == pytest.approx(FALSE_ALARM_RATE, rel=1e-3)
    assert len(_STUDENT_T) == MOST_RUNS - FEWEST_RUNS + 1
