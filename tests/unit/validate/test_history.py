# SPDX-License-Identifier: BSD-3-Clause
"""Kept reports."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from channel_tools.system.errors import ChannelError, ConfigError
from channel_tools.validate import report_document, write_report
from channel_tools.validate.history import kept_file, read_runs
from channel_tools.validate.model import ValidationReport
from tests.support.damage import DAMAGES, GROWTH_BYTES, damage, faults_of, peak_memory_bytes, places_of


def test_runs_are_kept_by_their_time_and_read_again(report: ValidationReport, tmp_path: Path) -> None:
    for second in (7, 5, 6):
        one = replace(report, started=f"2026-01-02T03:04:0{second}+00:00")
        write_report(one, kept_file(tmp_path, one))
    assert [run.started[17:19] for run in read_runs(tmp_path)] == ["05", "06", "07"]
    assert read_runs(tmp_path / "absent") == ()


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
        read_runs(tmp_path)


def test_a_report_of_another_schema_is_named(report: ValidationReport, tmp_path: Path) -> None:
    (tmp_path / "one.json").write_text(json.dumps({**report_document(report), "schema_version": 3}))
    with pytest.raises(ConfigError, match=r"one\.json: has schema_version 3; this program reads 1 to 2"):
        read_runs(tmp_path)


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
        shutil.rmtree(reports)
    assert failures == []
    assert peak_memory_bytes() - peak < GROWTH_BYTES


def test_a_link_out_of_the_reports_is_not_read(report: ValidationReport, tmp_path: Path) -> None:
    reports, outside = tmp_path / "reports", tmp_path / "other.json"
    reports.mkdir()
    write_report(report, outside)
    (reports / "one.json").symlink_to(outside)
    with pytest.raises(ChannelError, match=r"one\.json: is a symbolic link to .*, out of the folder"):
        read_runs(reports)
