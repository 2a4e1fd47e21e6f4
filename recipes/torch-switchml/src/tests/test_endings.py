# SPDX-License-Identifier: BSD-3-Clause
"""A rank that ends among allreduces, in each way: the others know within seconds, over the wire and in memory."""

import random
import signal
import statistics

import pytest
from ranks import Launcher, on_hosts

CODES = {
    "SIGKILL": -signal.SIGKILL,
    "SIGTERM": -signal.SIGTERM,
    "handler of SIGTERM": 143,
    "exit 0": 0,
    "exit 3": 3,
    "exit with words": 1,
    "_exit 0": 0,
    "exception": 1,
    "failed thread": 1,
}
"""The exit code of a rank, by the way it ends."""
WIRE, MEMORY = "wire", "memory"
CHOSEN = [
    (WIRE, "SIGKILL"), (WIRE, "handler of SIGTERM"), (WIRE, "exit 0"),
    (MEMORY, "SIGKILL"), (MEMORY, "exit 0"), (MEMORY, "failed thread"),
]  # fmt: skip
ABRUPT = ("SIGKILL", "SIGTERM", "_exit 0")
"""Ways to end without leaving the group."""
KNOWN_AT_ONCE_S = 5.0
"""For what takes one or two, on a machine that is busy."""
BOUND_S = 15.0
"""A lease of 3 s, the seconds without progress after it, and a machine that is busy."""


def seconds_until_known(launcher: Launcher, way: str, place: str, *, delay_s: float) -> float:
    """How long after the last rank's end the slower of the others had its error."""
    environment = {"SCENARIO_END": way, "SCENARIO_DELAY_S": str(delay_s)}
    hosts = on_hosts("aaa") if place == MEMORY else {}
    *others, ended = launcher.run("ending_rank", ranks=3, environment=environment, rank_environment=hosts)
    assert ended.code == CODES[way], ended.stderr
    for other in others:
        assert other.code == 0, other.stderr
        kind, message, _ = other.value["error"]
        assert kind == "DistBackendError"
        assert "SwitchML" in message
    return max(float(other.value["seconds"]) for other in others)


@pytest.mark.parametrize(("place", "way"), CHOSEN)
def test_a_rank_that_ends_is_known_to_the_others_within_seconds(
    short_lease_launcher: Launcher, place: str, way: str
) -> None:
    bound_s = KNOWN_AT_ONCE_S if way in ABRUPT else BOUND_S
    assert seconds_until_known(short_lease_launcher, way, place, delay_s=0.1) < bound_s


def check_killed_as_it_opens(launcher: Launcher, *, ranks: int, place: str, failing: int, moment_s: float) -> bool:
    """Whether it was killed before its session was open; all others then say that, and which rank it was."""
    environment = {"SCENARIO_FAILING": str(failing), "SCENARIO_DELAY_S": str(moment_s)}
    hosts = on_hosts("a" * ranks) if place == MEMORY else {}
    results = launcher.run("killed_as_it_opens", ranks=ranks, environment=environment, rank_environment=hosts)
    killed = results.pop(failing)
    assert killed.code == -signal.SIGALRM, killed.stderr
    assert [result.code for result in results] == [0] * len(results), [result.stderr for result in results]
    kinds = {result.value["kind"] for result in results}
    for result in results:
        text, seconds = result.value["text"], result.value["seconds"]
        assert f"rank {failing}" in text
        if result.value["kind"] == "SwitchMLError":
            assert f"cannot be used: rank {failing}: its process ended while the ranks set SwitchML up" in text
        assert seconds < KNOWN_AT_ONCE_S, text
    return kinds == {"SwitchMLError"}


@pytest.mark.parametrize("place", [WIRE, MEMORY])
@pytest.mark.parametrize("ranks", [2, 4])
def test_a_rank_killed_as_it_opens_is_known_to_all_at_once(
    short_lease_launcher: Launcher, ranks: int, place: str
) -> None:
    """At any moment between gloo's connections and the session; the first rank serves the others' store."""
    moments = random.Random(f"{ranks} {place}")  # noqa: S311 - as many different ones, the same at each run
    for failing in (0, ranks - 1):
        moment_s = moments.uniform(0, 0.05)
        check_killed_as_it_opens(short_lease_launcher, ranks=ranks, place=place, failing=failing, moment_s=moment_s)


def check_killed_once_it_is_open(
    launcher: Launcher, *, ranks: int, failing: int, moment_s: float, **environment: str
) -> None:
    """All others have an error within seconds, which names the rank, although its lease goes on for longer."""
    environment = {"SCENARIO_FAILING": str(failing), "SCENARIO_DELAY_S": str(moment_s), **environment}
    results = launcher.run("killed_once_it_is_open", ranks=ranks, environment=environment)
    killed = results.pop(failing)
    assert killed.code == -signal.SIGALRM, killed.stderr
    for result in results:
        assert result.code == 0, result.stderr
        assert result.value["kind"] == "DistBackendError"
        assert f"rank {failing}: its process ended" in result.value["text"]
        assert result.value["seconds"] < KNOWN_AT_ONCE_S, result.value["text"]


@pytest.mark.parametrize("ranks", [2, 4])
def test_a_rank_killed_among_allreduces_is_known_to_all_at_once(launcher: Launcher, ranks: int) -> None:
    """At any moment, in one or between two; the first rank serves the others' store."""
    moments = random.Random(ranks)  # noqa: S311 - as many different ones, the same at each run
    for failing in (0, ranks - 1):
        check_killed_once_it_is_open(launcher, ranks=ranks, failing=failing, moment_s=moments.uniform(0, 0.3))


def test_a_killed_rank_whose_children_live_on_is_known_at_once(launcher: Launcher) -> None:
    """As a DataLoader's workers do for seconds: made by fork(), they would hold its connections open."""
    check_killed_once_it_is_open(launcher, ranks=2, failing=1, moment_s=0.1, SCENARIO_CHILD="1")


def test_a_limit_that_passes_in_gloo_is_no_ranks_end(launcher: Launcher) -> None:
    """It closes all of gloo's connections; SwitchML goes on."""
    for result in launcher.run("limit_passes_in_gloo", ranks=3):
        assert result.code == 0, result.stderr
        assert result.value == {"sum": 3, "failure": None}


def test_ranks_are_killed_among_allreduces_at_any_moment(request: pytest.FixtureRequest, launcher: Launcher) -> None:
    """As often as --endings says."""
    rounds = int(request.config.getoption("--endings"))
    if rounds == 0:
        pytest.skip("--endings N has so many ranks killed")
    moments = random.Random(rounds)  # noqa: S311 - as above
    for _ in range(rounds):
        ranks = moments.choice((2, 4))
        failing = moments.randrange(ranks)
        check_killed_once_it_is_open(launcher, ranks=ranks, failing=failing, moment_s=moments.uniform(0, 0.5))


def test_ranks_are_killed_as_they_open_at_any_moment(
    request: pytest.FixtureRequest, short_lease_launcher: Launcher
) -> None:
    """As often as --endings says; prints how many were killed before their session was open."""
    rounds = int(request.config.getoption("--endings"))
    if rounds == 0:
        pytest.skip("--endings N has so many ranks killed")
    moments = random.Random(rounds)  # noqa: S311 - as above
    opening = 0
    for _ in range(rounds):
        ranks = moments.choice((2, 4))
        opening += check_killed_as_it_opens(
            short_lease_launcher,
            ranks=ranks,
            place=moments.choice((WIRE, MEMORY)),
            failing=moments.randrange(ranks),
            moment_s=moments.uniform(0, 0.4),
        )
    print(f"{opening} of {rounds} killed while they opened")
    assert opening > 0


def test_ranks_end_in_any_way_at_any_moment(request: pytest.FixtureRequest, short_lease_launcher: Launcher) -> None:
    """As often as --endings says; prints how long it took, by way and place."""
    rounds = int(request.config.getoption("--endings"))
    if rounds == 0:
        pytest.skip("--endings N has so many ranks end")
    taken: dict[tuple[str, str], list[float]] = {}
    ways = list(CODES)
    for number in range(rounds):
        place, way = (WIRE, MEMORY)[number % 2], ways[number // 2 % len(ways)]
        moment_s = number * 0.618 % 1  # spread over a second
        known_s = seconds_until_known(short_lease_launcher, way, place, delay_s=moment_s)
        taken.setdefault((place, way), []).append(known_s)
    for (place, way), times in sorted(taken.items()):
        print(f"{place}, {way}: {len(times)}, median {statistics.median(times):.1f} s, most {max(times):.1f} s")
    assert max(max(times) for times in taken.values()) < BOUND_S
