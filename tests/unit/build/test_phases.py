# SPDX-License-Identifier: BSD-3-Clause
"""What a running build is doing, read from the end of its log."""

from __future__ import annotations

from pathlib import Path

import pytest

from channel_tools.build.phases import phase_of

LINES = {
    "sources": "Fetching source from path: /src\nCopied 12 files into isolated environment\n",
    "environment": "  Platform: linux-64 [__unix=0=0]\n  Specs:\n   - ninja\n",
    "script": "\u2714 Successfully updated the host environment\nconfiguring\n",
    "ninja": "[1/345] Building CXX object a.o\r[12/345] Building CXX object b.o\n",
    "make": "[  4%] Building C object a.o\n[ 45%] Linking C\n",
    "package": "Copying done!\nFiles in package:\n",
    "tests": "Collecting tests from '/out'\n[1/2] is a test's own line\n",
}


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ([], ""),
        (["sources"], "sources"),
        (["sources", "environment"], "environment"),
        (["sources", "environment", "script"], "compile"),
        (["sources", "environment", "script", "ninja"], "compile 12 of 345"),
        (["script", "make"], "compile 45 %"),
        (["script", "ninja", "package"], "package"),
        (["script", "ninja", "package", "tests"], "tests"),
        (["ninja"], "compile 12 of 345"),
    ],
    ids=lambda value: "-".join(value) or "nothing" if isinstance(value, list) else None,
)
def test_the_phase_is_that_of_the_last_line_that_begins_one(tmp_path: Path, parts: list[str], said: str) -> None:
    log = tmp_path / "a.log"
    log.write_text("".join(LINES[part] for part in parts))
    assert phase_of(log) == said


def test_a_long_log_shows_its_end_and_a_missing_one_nothing(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text(LINES["sources"] + LINES["script"] + "warning: " * 20_000 + "\n" + LINES["ninja"])
    assert phase_of(log) == "compile 12 of 345"
    assert phase_of(tmp_path / "none.log") == ""
