# SPDX-License-Identifier: BSD-3-Clause
"""How far a command is: lines where stderr is a pipe, bars that leave nothing behind on a terminal."""

from __future__ import annotations

import io
import sys

import pytest

from channel_tools.cli import progress
from channel_tools.cli.progress import shown_progress
from tests.support.processes import wait_for


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_pipe_gets_the_start_the_states_and_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    with shown_progress() as shown, shown.task("fetch", total=2_000_000, unit="bytes") as task:
        task.advance(1_000_000, detail="a.conda")  # not yet: the first line is after ten seconds
        task.follow(lambda: "12 of 40")
        task.show("checking")
        shown.note("a.conda: is there already")
    first, *others, last = capsys.readouterr().err.splitlines()
    assert first == "fetch (2 MB) ..."
    assert others == ["fetch: checking", "a.conda: is there already"]
    assert last.startswith("fetch: done in ")


def test_what_failed_is_not_said_to_be_done(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="broken"), shown_progress() as shown, shown.task("fetch", total=None):
        raise ValueError("broken")
    assert capsys.readouterr().err == "fetch ...\n"


def test_a_terminal_shows_the_amount_and_what_a_step_says(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    asked = []

    def state() -> str:
        asked.append(1)
        return f"step {len(asked)}"

    monkeypatch.setattr(progress, "_FOLLOWED_INTERVAL_S", 3600.0)  # however long the lines take here
    with shown_progress() as shown, shown.task("build", total=3) as task:
        task.advance(2)
        task.follow(state)
        shown.note("a note")
        wait_for(
            lambda: terminal.getvalue().count("step 1") > 1
        )  # rich draws ten times a second, in a thread of its own
    written = terminal.getvalue()
    assert "a note" in written
    assert "2 of 3" in written
    assert "step 1" in written
    assert len(asked) == 1  # however often the line is drawn within the interval
