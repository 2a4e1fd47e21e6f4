# SPDX-License-Identifier: BSD-3-Clause
"""``golden/report.json`` is what report_document makes of a fixed report."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from channel_tools.conda.specs import InvalidSpecError
from channel_tools.system.errors import SolveError, ValidationError
from channel_tools.validate import (
    bandwidth_tables,
    raise_for_failures,
    report_document,
    report_tables,
    result_line,
    write_report,
)
from channel_tools.validate.distributed.method import judge_distributed
from channel_tools.validate.model import (
    BusBandwidth,
    OmittedCase,
    RatesOnThisHost,
    ValidationReport,
)
from channel_tools.validate.nccl.method import without_allreduces
from channel_tools.validate.report import VariantOutcome, VariantResult, raise_worst
from channel_tools.validate.switchml.method import judge
from tests.support.golden import assert_golden
from tests.unit.validate.distributed.fakes import perfect_ranks, toy_plan, write_libraries
from tests.unit.validate.fakes import perfect_results, perfect_stats, small_plan
from tests.unit.validate.reports import PREFIX

GOLDEN = Path(__file__).parent / "golden" / "report.json"


@pytest.fixture
def failing(report: ValidationReport) -> ValidationReport:
    plan = small_plan()
    stats = replace(perfect_stats(plan), slots_completed=7)
    return replace(report, result=judge(plan, perfect_results(plan, PREFIX), stats, prefix=PREFIX))


def test_document_is_as_the_golden_file(report: ValidationReport) -> None:
    assert_golden(GOLDEN, json.dumps(report_document(report), indent=2) + "\n")


def test_file_holds_the_document(report: ValidationReport, tmp_path: Path) -> None:
    path = tmp_path / "report" / "udp.json"
    write_report(report, path)
    assert path.read_text(encoding="utf-8") == GOLDEN.read_text(encoding="utf-8")
    assert [one.name for one in path.parent.iterdir()] == ["udp.json"]


def test_a_good_report_raises_nothing(report: ValidationReport) -> None:
    assert report.passed
    raise_for_failures(report, report_file=Path("udp.json"))


def test_a_failed_check_is_exit_code_10(failing: ValidationReport) -> None:
    assert not failing.passed
    assert report_document(failing)["passed"] is False
    expected = r"(?s)stack udp: 1 of 15 checks failed.*every slot of every job: found 7; expected 16425"
    with pytest.raises(ValidationError, match=expected) as caught:
        raise_for_failures(failing, report_file=Path("udp.json"))
    assert caught.value.exit_code == 10
    assert caught.value.hint == "the whole report is udp.json"


def test_tables_are_rectangular_and_complete(report: ValidationReport) -> None:
    findings, checks, cases, transports, bandwidth = report_tables(report)
    for table in (findings, checks, cases, transports, bandwidth):
        assert {len(row) for row in table.rows} == {len(table.columns)}
    assert [row[3] for row in cases.rows] == ["switchml", "switchml", "switchml", "gloo (dtype)", "switchml"]
    assert bandwidth.rows == (("int32", "4 MiB", "3", "2097 (1282 to 3146)", "1049 (1049 to 1049)", "2.00"),)


def test_a_row_that_is_not_asked_of_the_stack_is_in_the_table(report: ValidationReport) -> None:
    omitted = (OmittedCase(name="float16 MAX", reason="MAX is not among the stack's ops"),)
    shown = report_tables(replace(report, result=replace(report.result, omitted=omitted)))[2].rows[-1]
    assert (shown[0], shown[3]) == ("float16 MAX", "omitted: MAX is not among the stack's ops")


def test_tables_show_what_failed(failing: ValidationReport) -> None:
    shown = [row for row in report_tables(failing)[1].rows if row[1] == "FAILED"]
    assert [row[0] for row in shown] == ["the switch completed every slot of every job"]


def test_the_result_in_one_line_of_the_method_switchml(report: ValidationReport) -> None:
    said = result_line(report, Path("udp.json"))
    assert said == "PASSED 15/15, carried by switchml, 4 MiB 2.00 x gloo, report: udp.json"


def test_rates_that_users_get_on_this_host_come_before_those_through_the_switch(report: ValidationReport) -> None:
    row = report.result.bandwidth[0]
    faster = replace(row, transport=replace(row.transport, median=6 * row.baseline.median))
    here = RatesOnThisHost(carrier="this host's memory", bandwidth=(faster,))
    measured = replace(report, result=replace(report.result, on_this_host=here))
    said = result_line(measured, Path("udp.json"))
    assert "4 MiB 6.00 x gloo in this host's memory, 2.00 x gloo through the switch, report: " in said
    refused = replace(measured.result, on_this_host=replace(here, carrier="gloo"))
    said = result_line(replace(measured, result=refused), Path("udp.json"))
    assert "4 MiB gloo with nothing set, 2.00 x gloo through the switch, report: " in said
    through, with_nothing_set = bandwidth_tables(measured)
    assert through.title.startswith("Bandwidth through the switch, MB of tensor per second")
    assert with_nothing_set.title.startswith("Bandwidth with nothing set, by this host's memory, MB of tensor")
    assert [table.rows[0][-1] for table in (through, with_nothing_set)] == ["2.00", "6.00"]
    document = report_document(measured)["on_this_host"]
    assert isinstance(document, dict)
    assert (document["carrier"], document["bandwidth"][0]["ratio"]) == ("this host's memory", 6.0)


def test_the_result_in_one_line_of_the_method_distributed(report: ValidationReport, tmp_path: Path) -> None:
    plan = toy_plan()
    ranks = perfect_ranks(plan, write_libraries(tmp_path / "env"))
    result = judge_distributed(plan, ranks, prefix=tmp_path / "env", launcher=Path("/site/bin/mpiexec"))
    count = len(result.checks)
    said = result_line(replace(report, result=result), Path("toy.json"))
    assert said == f"PASSED {count}/{count}, carried by toy, 4 MiB 2.00 x gloo, report: toy.json"


def test_the_result_in_one_line_of_the_method_nccl_without_a_gpu(report: ValidationReport) -> None:
    result = without_allreduces(report.result.checks[:3], {}, "this machine has no GPU")
    said = result_line(replace(report, result=result), Path("nccl.json"))
    assert said == "PASSED 3/3, no allreduce was run: this machine has no GPU, report: nccl.json"


def test_measurements_of_nccl_tests_are_a_table_and_the_fastest_is_in_the_line(report: ValidationReport) -> None:
    row = BusBandwidth(
        dtype="float", op="sum", size_bytes=8 << 20, place="in place", microseconds=800.5, busbw_gb_s=20.9, wrong=0
    )
    rows = (row, replace(row, busbw_gb_s=3.1, wrong=None), replace(row, size_bytes=1 << 20, busbw_gb_s=9.0, wrong=2))
    measured = replace(report, result=replace(report.result, nccl_tests=rows))
    assert ", nccl-tests 20.9 GB/s at 8 MiB, report: " in result_line(measured, Path("nccl.json"))
    table = report_tables(measured)[-1]
    assert table.rows[0] == ("float", "sum", "8 MiB", "in place", "800.5", "20.9", "0")
    assert [shown[-1] for shown in table.rows] == ["0", "not counted", "2"]
    assert table.failed_rows == (2,)
    document = report_document(measured)["nccl_tests"]
    assert isinstance(document, list)
    assert document[1] == {
        "dtype": "float", "op": "sum", "size_bytes": 8 << 20, "place": "in place", "microseconds": 800.5,
        "busbw_gb_s": 3.1, "wrong": None,
    }  # fmt: skip


def test_a_failure_in_one_line_names_its_check_and_claims_no_carrier(failing: ValidationReport) -> None:
    said = result_line(failing, Path("udp.json"))
    assert said == ("FAILED 14/15: the switch completed every slot of every job, 4 MiB 2.00 x gloo, report: udp.json")


def test_the_one_line_shows_the_size_closest_to_4_mib(report: ValidationReport) -> None:
    row = report.result.bandwidth[0]
    sizes = tuple(replace(row, size_bytes=size, numel=size // 4) for size in (1 << 16, 6 << 20, 64 << 20))
    said = result_line(replace(report, result=replace(report.result, bandwidth=sizes)), Path("udp.json"))
    assert ", 6 MiB 2.00 x gloo, report: " in said


def test_the_worst_variant_gives_the_error_and_every_other_is_named(report: ValidationReport) -> None:
    passed = VariantResult(python="3.11", report=report)
    checks = (replace(report.result.checks[0], passed=False),)
    failed = VariantResult(
        python="3.12",
        report=replace(report, result=replace(report.result, checks=checks)),
        error=ValidationError("1 check failed", hint="look"),
    )
    absent = VariantResult(python="3.13", error=SolveError("no such package", hint="build"))
    results = [passed, failed, absent]
    assert [one.verdict for one in results] == [*VariantOutcome]
    raise_worst([passed])
    with pytest.raises(ValidationError, match=r"^1 check failed$"):
        raise_worst([failed])
    with pytest.raises(SolveError) as caught:
        raise_worst(results)
    assert caught.value.hint == "build"
    assert caught.value.message.splitlines() == [
        "2 of 3 variants did not pass",
        "python 3.13: no such package",
        "python 3.12: 1 check failed",
    ]


def test_an_error_that_is_made_from_more_than_a_message_stands_for_all_as_well() -> None:
    """As that of a MatchSpec, which is made from its text and a reason."""
    results = [
        VariantResult(python=python, error=InvalidSpecError("a b c d", "too long")) for python in ("3.11", "3.12")
    ]
    with pytest.raises(InvalidSpecError) as caught:
        raise_worst(results)
    assert str(caught.value).startswith("2 of 2 variants did not pass\npython 3.11: 'a b c d' is not a valid MatchSpec")
    assert caught.value.hint == InvalidSpecError("a b c d", "too long").hint
    assert caught.value.reason == "too long"
