# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.golden import assert_golden

_COMMAND = r"REFRESH_GOLDEN=1 \.venv/bin/python -m pytest -n 0 tests/unit/test_golden\.py::"


@pytest.fixture(autouse=True)
def not_refreshed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REFRESH_GOLDEN", raising=False)


def test_a_file_that_differs_says_where_and_how_it_is_renewed(tmp_path: Path) -> None:
    golden = tmp_path / "golden.txt"
    golden.write_text("same\nbefore\n")
    with pytest.raises(AssertionError, match=_COMMAND + "test_a_file_that_differs") as caught:
        assert_golden(golden, "same\nafter\n")
    assert {"-before", "+after", " same"} <= set(str(caught.value).splitlines())
    assert golden.read_text() == "same\nbefore\n"


def test_a_missing_file_says_how_it_is_written(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=f"golden.txt is missing; write it with: {_COMMAND}"):
        assert_golden(tmp_path / "golden.txt", "text\n")


def test_a_refreshed_file_is_the_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REFRESH_GOLDEN", "1")
    assert_golden(tmp_path / "new" / "golden.txt", "text\n")
    monkeypatch.delenv("REFRESH_GOLDEN")
    assert_golden(tmp_path / "new" / "golden.txt", "text\n")
