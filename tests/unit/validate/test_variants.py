# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from dataclasses import replace

import pytest

from channel_tools.conda.specs import InvalidSpecError
from channel_tools.system.errors import SolveError, ValidationError
from channel_tools.validate import ValidationReport
from channel_tools.validate.variants import VariantOutcome, VariantResult, raise_worst


def test_the_worst_variant_gives_the_error_and_every_other_is_named(report: ValidationReport) -> None:
    passed = VariantResult(python="3.11", report=report)
    dropped = replace(passed, error=ValidationError("slower"))
    checks = (replace(report.result.checks[0], passed=False),)
    failed = VariantResult(
        python="3.12",
        report=replace(report, result=replace(report.result, checks=checks)),
        error=ValidationError("1 check failed", hint="look"),
    )
    absent = VariantResult(python="3.13", error=SolveError("no such package", hint="build"))
    results = [passed, dropped, failed, absent]
    assert [one.verdict for one in results] == [*VariantOutcome]
    raise_worst([passed])
    with pytest.raises(ValidationError, match=r"^1 check failed$"):
        raise_worst([failed])
    with pytest.raises(SolveError) as caught:
        raise_worst(results)
    assert caught.value.hint == "build"
    assert caught.value.message.splitlines() == [
        "3 of 4 variants did not pass",
        "python 3.13: no such package",
        "python 3.12: 1 check failed",
        "python 3.11: slower",
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
