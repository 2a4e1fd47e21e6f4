# SPDX-License-Identifier: BSD-3-Clause
"""A rank that ends among allreduces, in each way: the others know within seconds, over the wire and in memory."""

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
    assert seconds_until_known(short_lease_launcher, way, place, delay_s=0.1) < BOUND_S


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
