# SPDX-License-Identifier: BSD-3-Clause
"""The page holds everything itself, says nothing in pictures alone, and takes no word from outside for markup."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace

import pytest

from channel_tools.validate import report_tables
from channel_tools.validate.model import Check, Spread, ValidationReport
from channel_tools.validate.page import render_page
from channel_tools.validate.report import doubts
from tests.support.html_pages import read_page

HOSTILE = "</title></style><script>alert(1)</script><img src=x onerror='alert(2)'>\"&amp;"


def test_a_page_loads_nothing_and_runs_nothing(report: ValidationReport) -> None:
    page = read_page(render_page(report))
    assert not {"script", "link", "img", "iframe", "object", "form"} & set(page.tags)
    assert not {name for _tag, name, _value in page.attributes} & {"src", "srcset", "onclick", "style"}
    assert set(page.values("href")) == {"#content"}
    assert re.findall(r"url\(|@import|https?://", render_page(report)) == []
    assert any(value.startswith("default-src 'none'") for value in page.values("content"))


def test_tables_are_named_for_those_who_hear_them(report: ValidationReport) -> None:
    page = read_page(render_page(report))
    groups = len({case.dtype for case in report.result.cases}) + bool(report.result.omitted)
    assert page.tags["table"] == page.tags["caption"] == len(report_tables(report)) - 1 + groups + 1  # the packages
    headers = [name for tag, name, _value in page.attributes if tag == "th"]
    assert headers.count("scope") == headers.count("role") == page.tags["th"]
    ids = page.values("id")
    assert len(ids) == len(set(ids))
    assert {name for value in page.values("aria-labelledby") for name in value.split()} <= set(ids)
    assert ("html", "lang", "en") in page.attributes
    assert page.values("tabindex") == ["0"] * page.tags["table"]


def test_a_page_says_what_the_tables_say(report: ValidationReport) -> None:
    texts = set(read_page(render_page(report)).texts)
    for table in report_tables(report):
        assert {cell for row in table.rows for cell in row if cell} <= texts
    assert "all 15 checks passed" in texts


def test_words_from_outside_are_no_markup(report: ValidationReport) -> None:
    plain = read_page(render_page(report))
    check = Check(name=HOSTILE, passed=False, found=HOSTILE, expected=HOSTILE)
    (package,) = report.environment.records
    hostile = replace(
        report,
        stack=HOSTILE,
        method=HOSTILE,
        host=replace(report.host, name=HOSTILE, processor=HOSTILE),
        environment=replace(report.environment, records=(replace(package, name=HOSTILE, build=HOSTILE),)),
        result=replace(
            report.result,
            checks=(check, *report.result.checks[1:]),
            baseline=HOSTILE,
            details={**report.result.details, "torch": HOSTILE},
        ),
    )
    page = read_page(render_page(hostile))
    assert page.tags == plain.tags
    assert page.texts.count(HOSTILE) > 5


def test_a_failure_is_seen_at_once(report: ValidationReport) -> None:
    checks = (Check(name="one", passed=False, found="", expected=""), *report.result.checks[1:])
    page = read_page(render_page(replace(report, result=replace(report.result, checks=checks))))
    assert "verdict failed" in page.values("class")
    assert page.values("class").count("failed") == 1
    assert any(text.startswith("1 of 15 checks failed") for text in page.texts)


def test_a_page_says_what_the_data_went_over_and_why(report: ValidationReport) -> None:
    texts = " ".join(" ".join(read_page(render_page(report)).texts).split())
    reasons = Counter(case.reason for case in report.result.cases for _call in range(case.calls) if case.reason)
    assert reasons
    for reason, calls in reasons.items():
        assert f"{reason} {calls}" in texts


@pytest.mark.parametrize(("load", "said"), [(0.25, False), (1.5, True)])
def test_figures_of_a_busy_machine_are_marked_as_doubtful(report: ValidationReport, load: float, said: bool) -> None:  # noqa: FBT001
    page = read_page(render_page(replace(report, host=replace(report.host, load_average=load))))
    assert any("busy before the run" in text for text in page.texts) == said


def test_figures_with_a_wide_spread_are_marked_as_doubtful(report: ValidationReport) -> None:
    (row,) = report.result.bandwidth
    narrow = replace(
        row, transport=Spread(lower=90, median=100, upper=110), baseline=Spread(lower=9, median=10, upper=11)
    )
    wide = replace(narrow, baseline=Spread(lower=5, median=10, upper=11))
    found = [doubts(replace(report, result=replace(report.result, bandwidth=(one,)))) for one in (narrow, wide)]
    assert found[0] == []
    assert found[1] == ["The quartiles are more than 50% of the median apart for int32 of 4 MiB: take these as rough."]


def test_cases_are_folded_by_type_and_those_that_failed_are_open(report: ValidationReport) -> None:
    first, *others = report.result.cases
    failed = replace(first, problems=("wrong",))
    page = read_page(render_page(replace(report, result=replace(report.result, cases=(failed, *others)))))
    opened = [tag for tag, name, _value in page.attributes if (tag, name) == ("details", "open")]
    assert len(opened) == 2  # the failed case's, and a finding with a warning
    alike = sum(case.dtype == first.dtype for case in report.result.cases)
    assert f"{first.dtype}: {alike} cases, 1 failed" in page.texts
