# SPDX-License-Identifier: BSD-3-Clause
"""What goes wrong after the session opened ends in an error, on every rank, in bounded time."""

from typing import Any

import pytest
from ranks import Launcher, RankResult

JOB_TIMEOUT_S = 1.5
QUICK = {"SWITCHML_JOB_TIMEOUT_MS": "1500"}
# Room for a loaded machine, far below anything that could be called a hang.
BOUND_S = JOB_TIMEOUT_S + 8


def values(results: list[RankResult]) -> list[dict[str, Any]]:
    assert [result.code for result in results] == [0] * len(results), [result.stderr for result in results]
    return [result.value for result in results]


def assert_failed(error: tuple[str, str, float], text: str, *, within_s: float = BOUND_S) -> None:
    kind, message, seconds = error
    assert kind == "DistBackendError"
    assert text in message
    assert seconds < within_s


def test_job_that_fails_on_one_rank_fails_on_all(fake_launcher: Launcher) -> None:
    results = fake_launcher.run("failing_job", environment=QUICK, rank_environment={1: {"SWITCHML_FAKE_FAIL_JOB": "1"}})
    waiting, failing = values(results)
    what = "SwitchML allreduce of 10 float32 elements failed: "
    assert_failed(failing["first"], what + "input or output error: injected fault")
    assert_failed(waiting["first"], what + "the job timed out: no progress for 1500 ms")
    for value in (waiting, failing):
        assert_failed(value["after"], "the session of the default process group failed before", within_s=1)
        assert "destroy the process group on all ranks" in value["after"][1]
        assert value["gloo"] == 2
        assert value["stats"]["failed_jobs"] == 1
        assert what in value["stats"]["failure"]


def test_future_carries_the_error(fake_launcher: Launcher) -> None:
    environment = {**QUICK, "SWITCHML_FAKE_FAIL_JOB": "0"}
    for value in values(fake_launcher.run("failing_future", environment=environment)):
        assert "injected fault" in value["future"][1]
        assert_failed(value["work"], "injected fault")
        assert value["success"] is False
        assert value["exception"] is True


@pytest.mark.parametrize("name", ["SIGKILL", "SIGTERM"])
def test_rank_that_dies_fails_the_others(launcher: Launcher, name: str) -> None:
    results = launcher.run("dying_rank", environment={**QUICK, "SCENARIO_SIGNAL": name}, ranks=3)
    assert results[2].code < 0
    for result in results[:2]:
        assert result.code == 0, result.stderr
        assert_failed(result.value["error"], "SwitchML allreduce of 10 float32 elements failed: ")


def test_job_that_the_others_do_not_match_fails(launcher: Launcher) -> None:
    _, longer = values(launcher.run("other_numel", environment=QUICK))
    assert_failed(longer["error"], "SwitchML allreduce of 10000 float32 elements failed: ")


def test_abort_fails_what_is_pending(launcher: Launcher) -> None:
    results = launcher.run("abort_pending")
    waiting, _ = values(results)
    assert_failed(waiting["error"], "failed: ", within_s=5)
    assert "abort" in waiting["error"][1]


def test_group_timeout_bounds_a_job(launcher: Launcher) -> None:
    waiting, _ = values(launcher.run("group_timeout"))
    assert_failed(waiting["error"], "SwitchML allreduce of 10 float32 elements failed", within_s=2 + 8)


def test_exit_without_destroy_ends_pending_jobs_first(launcher: Launcher) -> None:
    for result in launcher.run("no_destroy"):
        assert result.code == 0, result.stderr
        assert result.seconds < 30


def test_python_callback_runs_before_the_interpreter_ends(launcher: Launcher) -> None:
    results = launcher.run("callback_at_exit")
    values(results)
    for rank in range(2):
        assert (launcher.folder / f"callback.{rank}").read_text() == "2.0"


def test_child_by_fork_ends_and_leaves_the_parent_whole(launcher: Launcher) -> None:
    for value in values(launcher.run("forked_child")):
        assert value == {"child": 0, "sum": 2}


def test_exception_of_the_script_ends_it(launcher: Launcher) -> None:
    for result in launcher.run("exception_in_script"):
        assert result.code == 1
        assert "ValueError: the user's own mistake" in result.stderr
        assert result.seconds < 30
