# SPDX-License-Identifier: BSD-3-Clause
"""The launcher is a script under the environment's python here; how real ranks fail is in the integration tests."""

from __future__ import annotations

import json
import subprocess
from contextlib import ExitStack
from dataclasses import asdict
from typing import TYPE_CHECKING

import pytest

from channel_tools.ranks.launchers import forked_ranks
from channel_tools.ranks.plan import local_plan, placement_here
from channel_tools.system.errors import ValidationError
from channel_tools.system.processes import Deadline, running_program
from channel_tools.validate.ranks import RankJob, rank_words, read_results, run_job
from channel_tools.validate.switchml.method import WORKER, RankResult, ReadyLine, RunningSwitch
from tests.support.processes import TEST_TIMEOUT_S
from tests.unit.validate.fakes import perfect_results, small_plan, write_program

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ALIVE = "import signal; signal.pause()"
WRITE_RESULTS = """
    import pathlib, sys
    folder = pathlib.Path(sys.argv[-1]).parent
    assert [pathlib.Path(sys.argv[1]).name, *sys.argv[2:4]] == ["fork_ranks.py", "2", "torch._dynamo"], sys.argv
    for rank in (0, 1):
        (folder / f"rank-{rank}.json").write_text((folder / f"canned-{rank}.json").read_text())
"""


@pytest.fixture
def switch(tmp_path: Path) -> Iterator[RunningSwitch]:
    with ExitStack() as stack:
        yield start_switch(stack, tmp_path, ALIVE)


def start_switch(stack: ExitStack, folder: Path, code: str) -> RunningSwitch:
    file = write_program(folder / "switch", code)
    program = stack.enter_context(
        running_program(
            "switchml-switch", [file], env={}, cwd=folder, log=folder / "switch.log", stdout=subprocess.PIPE
        )
    )
    ready = ReadyLine(event="ready", controller="127.0.0.1:1", data="127.0.0.1:2", version="1")
    return RunningSwitch(program=program, ready=ready, stats_file=folder / "stats")


def run(folder: Path, code: str, switch: RunningSwitch, *, limit_s: float = TEST_TIMEOUT_S) -> tuple[RankResult, ...]:
    prefix = folder / "env"
    write_program(prefix / "bin/python", code)
    place = placement_here(prefix, 2, variables={})
    commands = forked_ranks(place.start(rank_words(WORKER, folder)), trains=True)
    job = RankJob(
        name="the ranks' launcher",
        plan=local_plan(place, commands, stack="toy", launcher="fork_ranks.py", folder=folder),
        ranks=2,
        document={"cases": []},
        folder=folder,
    )
    run_job(job, deadline=Deadline.after(limit_s), companions=[switch])
    return read_results(job, RankResult, hint="")


def test_results_are_read_by_rank(tmp_path: Path, switch: RunningSwitch) -> None:
    expected = perfect_results(small_plan(), tmp_path)
    for result in expected:
        (tmp_path / f"canned-{result.rank}.json").write_text(json.dumps(asdict(result)), encoding="utf-8")
    assert list(run(tmp_path, WRITE_RESULTS, switch)) == expected


def test_a_rank_that_fails_is_named_with_its_reason(tmp_path: Path, switch: RunningSwitch) -> None:
    code = """
        import pathlib, sys
        folder = pathlib.Path(sys.argv[-1]).parent
        (folder / "rank-1.error").write_text("DistBackendError: no progress")
        (folder / "rank-1.at").write_text("int32 SUM of 257")
        sys.exit(1)
    """
    with pytest.raises(ValidationError, match=r"(?s)rank 1: DistBackendError: no progress.*rank 1: int32 SUM of 257"):
        run(tmp_path, code, switch)


def test_a_rank_that_is_killed_is_named(tmp_path: Path, switch: RunningSwitch) -> None:
    code = """
        import sys
        print("E1120 api.py:874] failed (exitcode: -9) local_rank: 1 (pid: 7) of binary: python")
        sys.exit(1)
    """
    with pytest.raises(ValidationError, match=r"rank 1: ended by itself with exit status -9"):
        run(tmp_path, code, switch)


def test_a_launcher_that_fails_shows_its_last_words(tmp_path: Path, switch: RunningSwitch) -> None:
    with pytest.raises(ValidationError, match=r"(?s)the ranks' launcher: exit status 1.*No module named torch"):
        run(tmp_path, "import sys; sys.exit('No module named torch')", switch)


def test_a_switch_that_ends_is_the_reason(tmp_path: Path) -> None:
    with ExitStack() as stack:
        dying = start_switch(stack, tmp_path, "import sys; sys.exit('data plane failed')")
        with pytest.raises(ValidationError, match=r"(?s)the switch ended.*exit status 1.*data plane failed"):
            run(tmp_path, ALIVE, dying)


def test_time_that_is_over_says_where_the_ranks_were(tmp_path: Path, switch: RunningSwitch) -> None:
    (tmp_path / "rank-0.at").write_text("float32 SUM of 1", encoding="utf-8")
    expected = r"did not finish within 0\.3 s: rank 0: float32 SUM of 1, rank 1: setting up"
    with pytest.raises(ValidationError, match=expected):
        run(tmp_path, ALIVE, switch, limit_s=0.3)


def test_a_rank_without_a_result_is_an_error(tmp_path: Path, switch: RunningSwitch) -> None:
    with pytest.raises(ValidationError, match=r"rank-0\.json: the rank ended without a result"):
        run(tmp_path, "pass", switch)


def test_a_result_of_another_shape_is_an_error(tmp_path: Path, switch: RunningSwitch) -> None:
    (tmp_path / "canned-0.json").write_text('{"rank": "zero"}', encoding="utf-8")
    (tmp_path / "canned-1.json").write_text("{}", encoding="utf-8")
    with pytest.raises(ValidationError, match=r"rank-0\.json: rank: .*integer"):
        run(tmp_path, WRITE_RESULTS, switch)


LEAVES_ODD_FILES = """
    import os, pathlib, sys
    folder = pathlib.Path(sys.argv[-1]).parent
    for name in ("rank-0.json", "rank-0.error", "rank-1.at"):
        match {kind!r}:
            case "pipe":
                os.mkfifo(folder / name)
            case "link":
                (folder / name).symlink_to("/etc/passwd")
            case "large":
                (folder / name).touch()
                os.truncate(folder / name, 1 << 40)
    sys.exit({code})
"""
ODD_FILES = {"pipe": "is a pipe", "link": "leads outside|is a symbolic link", "large": r"has \d+ bytes or more"}
"""What ranks may leave that is no result, and what is said of it where it is not cut off."""


@pytest.mark.parametrize("kind", ODD_FILES)
def test_a_result_is_opened_beneath_the_folder_and_bounded(tmp_path: Path, switch: RunningSwitch, kind: str) -> None:
    with pytest.raises(ValidationError, match=rf"rank-0\.json: ({ODD_FILES[kind]})"):
        run(tmp_path, LEAVES_ODD_FILES.format(kind=kind, code=0), switch)


@pytest.mark.parametrize("kind", ODD_FILES)
def test_the_words_of_a_rank_are_opened_beneath_the_folder_and_bounded(
    tmp_path: Path, switch: RunningSwitch, kind: str
) -> None:
    with pytest.raises(ValidationError, match="rank 0: ") as raised:
        run(tmp_path, LEAVES_ODD_FILES.format(kind=kind, code=1), switch)
    assert "root:" not in str(raised.value)
    assert len(str(raised.value)) < 1 << 20
