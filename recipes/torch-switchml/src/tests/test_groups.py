# SPDX-License-Identifier: BSD-3-Clause
"""Groups of all ranks beside the default one: sessions of their own where SWITCHML_NEW_GROUPS asks for them."""

import re
from collections.abc import Iterator

import pytest
from conftest import launcher_at_switch
from ranks import Launcher, RankResult, on_hosts, values

NEW_GROUPS = {"SWITCHML_NEW_GROUPS": "1"}


@pytest.fixture
def small_switch(request: pytest.FixtureRequest) -> Iterator[Launcher]:
    """Starts ranks at a switch that serves two sessions at a time."""
    with launcher_at_switch(
        request, "--max-sessions", "2", skip="the stand-in serves one session at a time"
    ) as launcher:
        yield launcher


@pytest.mark.parametrize("hosts", ["ab", "aab"], ids=["a rank a host", "two hosts"])
def test_groups_in_any_order(small_switch: Launcher, hosts: str) -> None:
    ranks = len(hosts)
    total = [[ranks * index] for index in range(20)]
    results = small_switch.run(
        "group_of_all_ranks", ranks=ranks, environment=NEW_GROUPS, rank_environment=on_hosts(hosts)
    )
    for rank, value in enumerate(values(results)):
        assert value["sums"] == total
        assert value["gradient"] == [2 * sum(range(ranks)) / ranks]
        assert value["last"] == ranks
        assert value["sessions"] == 2
        assert value["members"] is (rank == 0)
        assert value["stats"]["delegated"]["int32"]["jobs"] >= 20
        assert value["stats"]["delegated"]["float32"]["jobs"] >= 2
        assert value["stats"]["fallbacks"]["group"] == 0
        jobs = sum(row["jobs"] for row in value["stats"]["delegated"].values())
        if hosts == "aab" and rank == 1:  # rank 0 is on the wire for both
            assert value["stats"]["transport"] is None
            assert value["stats"]["reduced_in_host"]["jobs"] == jobs
        else:
            assert value["stats"]["transport"]["jobs_completed"] == jobs


def test_a_group_that_is_destroyed_gives_its_place_back(small_switch: Launcher) -> None:
    for report in values(small_switch.run("groups_one_after_another", environment=NEW_GROUPS)):
        assert report["delegated"]["float32"]["jobs"] == 4
        assert report["sessions"] == 5
        assert report["refused_groups"] == 0
        assert report["fallbacks"]["group"] == 0


@pytest.fixture
def full_switch(request: pytest.FixtureRequest) -> Iterator[Launcher]:
    """Starts ranks where one session can be had."""
    if request.config.getoption("--switchml") == "fake":
        yield request.getfixturevalue("fake_launcher")
        return
    with launcher_at_switch(request, "--max-sessions", "1") as launcher:
        yield launcher


def assert_left_to_gloo(results: list[RankResult], ranks: str) -> None:
    """All went on with gloo, since one of these ranks (a regular expression) could not open the group's session."""
    for value in values(results):
        assert value["error"] is None
        assert value["seconds"] < 30  # far below the group's time limit of 30 minutes
        assert value["refused"]["refused_groups"] == 1
        assert value["refused"]["fallbacks"]["group"] == 1
    said = results[0].stderr
    assert "allreduces of a group of all ranks stay with gloo: " in said
    assert re.search(f"rank {ranks}: cannot open the SwitchML session", said)
    assert "stay with gloo" not in results[1].stderr


def test_a_group_that_the_switch_refuses_stays_with_gloo_on_all_ranks(full_switch: Launcher) -> None:
    results = full_switch.run("refused_group", environment=NEW_GROUPS)
    assert_left_to_gloo(results, "[01]")  # once one has been refused, the other does not go on asking
    assert [result.value["jobs_after"] for result in results] == [1, 1]


def test_a_group_that_one_rank_cannot_open_stays_with_gloo_on_all_ranks(small_switch: Launcher) -> None:
    """The others, which wait for it, learn of it; the next group has the place that this one did not take."""
    results = small_switch.run("refused_group", environment={**NEW_GROUPS, "SCENARIO_TAKE_PORT": "1"})
    assert_left_to_gloo(results, "1")
    assert [result.value["jobs_after"] for result in results] == [2, 2]


def test_a_group_that_the_switch_refuses_is_an_error_where_required(full_switch: Launcher) -> None:
    for value in values(full_switch.run("refused_group", environment={**NEW_GROUPS, "SWITCHML_REQUIRE": "1"})):
        assert "cannot open the SwitchML session" in value["error"]
        assert value["jobs_after"] == 1
