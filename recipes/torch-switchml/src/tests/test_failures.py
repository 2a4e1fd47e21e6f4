# SPDX-License-Identifier: BSD-3-Clause
"""What goes wrong after the session opened ends in an error, on every rank, in bounded time."""

import signal

import pytest
from ranks import Launcher, values

JOB_TIMEOUT_S = 1.5
QUICK = {"SWITCHML_JOB_TIMEOUT_MS": "1500"}
# Room for a loaded machine, far below anything that could be called a hang.
BOUND_S = JOB_TIMEOUT_S + 8


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
        assert_failed(value["after"], "the session of the process group failed before", within_s=1)
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


def test_rank_that_is_stopped_is_named_long_before_the_groups_time_limit(short_lease_launcher: Launcher) -> None:
    """Its lease ends, while its connections stay open."""
    *others, stopped = short_lease_launcher.run("stopped_rank", ranks=3)
    assert stopped.code == -signal.SIGKILL
    for result in others:
        assert result.code == 0, result.stderr
        assert_failed(result.value["error"], "rank 2 was last heard of ", within_s=20)


def test_job_that_the_others_do_not_match_fails_on_all(launcher: Launcher) -> None:
    shorter, longer = values(launcher.run("other_numel", environment=QUICK))
    assert_failed(shorter["error"], "SwitchML allreduce of 1000 float32 elements failed: ")
    assert_failed(longer["error"], "SwitchML allreduce of 10000 float32 elements failed: ")


def test_collective_of_gloos_that_fails_takes_the_allreduces_behind_it_along(launcher: Launcher) -> None:
    """Its numbers are not there to be added up."""
    alone, other = values(launcher.run("failed_collective_of_gloo", environment={"SWITCHML_JOB_TIMEOUT_MS": "20000"}))
    assert_failed(alone["errors"][1], "1000 float32 elements failed: what it was to add up is not there: ", within_s=10)
    assert_failed(other["errors"][0], "1000 float32 elements failed: ", within_s=30)


def test_abort_fails_what_is_pending(launcher: Launcher) -> None:
    results = launcher.run("abort_pending")
    waiting, _ = values(results)
    assert_failed(waiting["error"], "failed: ", within_s=60)  # far below the group's own limit
    assert "abort" in waiting["error"][1]


def test_group_timeout_bounds_a_job(launcher: Launcher) -> None:
    waiting, _ = values(launcher.run("group_timeout"))
    assert_failed(waiting["error"], "SwitchML allreduce of 10 float32 elements failed", within_s=2 + 8)


@pytest.mark.parametrize(
    ("limit", "host_reduction"),
    [("of the call", "off"), ("of the call", "on"), ("later", "off"), ("behind gloo", "off")],
)
def test_time_limit_of_a_call_ends_it_on_all(short_lease_launcher: Launcher, limit: str, host_reduction: str) -> None:
    """Long before the group's own, which is another."""
    environment = {"SCENARIO_LIMIT": limit, "SWITCHML_HOST_REDUCTION": host_reduction}
    waiting, other = values(short_lease_launcher.run("time_limit_of_a_call", environment=environment))
    if waiting is None:
        pytest.skip("in this PyTorch a group keeps its first time limit")
    what = "an allreduce had no result within its time limit of 1000 ms"
    assert_failed(waiting["error"], f"SwitchML allreduce of 10 float32 elements failed: {what}", within_s=1 + 8)
    assert_failed(waiting["after"], f"the session of the process group failed before ({what})", within_s=1)
    assert_failed(other["error"], "SwitchML allreduce of 10 float32 elements failed: ", within_s=20)


def test_time_limit_of_a_call_does_not_count_those_before_it(launcher: Launcher) -> None:
    for value in values(launcher.run("time_limit_behind_another_call")):
        assert value == {"failure": None}


def test_exit_without_destroy_ends_pending_jobs_first(launcher: Launcher) -> None:
    for result in launcher.run("no_destroy"):
        assert result.code == 0, result.stderr
        assert result.seconds < 30


def test_python_callback_runs_before_the_interpreter_ends(launcher: Launcher) -> None:
    results = launcher.run("callback_at_exit", fresh=True)
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


def test_group_is_made_again_after_a_failed_job(fake_launcher: Launcher) -> None:
    environment = {**QUICK, "SWITCHML_FAKE_FAIL_JOB": "1"}
    for value in values(fake_launcher.run("group_after_failed_job", environment=environment)):
        assert_failed(value["error"], "injected fault")
        assert value["sum"] == 2
        assert value["failure"] is None


def test_group_is_made_again_after_a_failed_start(fake_launcher: Launcher) -> None:
    results = fake_launcher.run(
        "group_after_failed_init", environment=QUICK, rank_environment={1: {"SWITCHML_FAKE_FAIL_OPEN": "no room"}}
    )
    for value in values(results):
        assert "rank 1: cannot open the SwitchML session" in value["error"][1]
        assert value["sum"] == 2


def test_group_is_made_again_beside_a_child_by_fork(launcher: Launcher) -> None:
    for value in values(launcher.run("forked_worker")):
        assert value == {"child": 0, "sum": 2}


@pytest.mark.parametrize(
    ("phase", "rank_1"),
    [("reporting", {"SWITCHML_CONTROLLER": None}), ("opening", {"SWITCHML_FAKE_OPEN_DELAY_MS": "6000"})],
    ids=["reporting", "opening"],
)
def test_interrupt_ends_the_wait_for_other_ranks(
    fake_launcher: Launcher, phase: str, rank_1: dict[str, str | None]
) -> None:
    del phase
    environment = {"SCENARIO_DELAY_S": "1.5", "SWITCHML_JOB_TIMEOUT_MS": "9000"}
    results = fake_launcher.run("interrupted_init", environment=environment, rank_environment={1: rank_1})
    assert results[0].code == 0, results[0].stderr
    assert results[0].value["seconds"] < 3  # rank 1 takes longer


def test_callbacks_nest_as_deep_as_their_user_likes(fake_launcher: Launcher) -> None:
    for value in values(fake_launcher.run("nested_futures")):
        assert value == {"value": 2, "jobs": 101}


def test_futures_chain(fake_launcher: Launcher) -> None:
    for value in values(fake_launcher.run("chained_futures")):
        assert value == {"value": 102}


def test_want_of_threads_is_an_error_on_all_ranks(fake_launcher: Launcher) -> None:
    waiting, without = values(fake_launcher.run("no_thread_for_callbacks", environment=QUICK))
    assert "the system gives no thread for callbacks" in without["error"][1]
    assert "the system gives no thread for callbacks" in without["failure"]
    for value in (waiting, without):
        assert value["error"][2] < BOUND_S


def test_exception_in_a_callback_is_its_futures(fake_launcher: Launcher) -> None:
    for value in values(fake_launcher.run("exception_in_callback")):
        assert "the user's callback" in value["error"][1]
        assert value["sum"] == 2
