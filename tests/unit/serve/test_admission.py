# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import resource
from dataclasses import dataclass

import pytest

from channel_tools.serve.admission import Admission, connections_for, network_of


@dataclass(eq=False)
class One:
    """A connection; ends when it is dropped, as a transport does it."""

    address: str
    admission: Admission
    dropped: bool = False
    network: str = ""

    def __post_init__(self) -> None:
        self.network = network_of(self.address)

    def drop(self) -> None:
        self.dropped = True


def admitted(admission: Admission, address: str, count: int) -> list[One]:
    made = [One(address, admission) for _ in range(count)]
    assert all(admission.admit(one) for one in made)
    return made


def test_an_address_that_has_its_share_loses_the_connection_that_is_idle_for_longest() -> None:
    admission = Admission(total=10, each=3)
    first, second, third = admitted(admission, "10.0.0.1", 3)
    admission.busy(first)
    admission.busy(second)
    admission.idle(first)
    admitted(admission, "10.0.0.1", 1)
    assert [one.dropped for one in (first, second, third)] == [False, False, True]
    admitted(admission, "10.0.0.1", 1)
    assert [one.dropped for one in (first, second, third)] == [True, False, True]


def test_what_is_in_use_is_never_dropped() -> None:
    admission = Admission(total=10, each=3)
    busy = admitted(admission, "10.0.0.1", 3)
    for one in busy:
        admission.busy(one)
    assert not admission.admit(One("10.0.0.1", admission))
    assert not any(one.dropped for one in busy)
    admission.lost(busy[0])
    assert admission.admit(One("10.0.0.1", admission))


def test_the_address_with_most_connections_makes_room_for_others() -> None:
    admission = Admission(total=6, each=5)
    many, few = admitted(admission, "10.0.0.1", 4), admitted(admission, "10.0.0.2", 2)
    admitted(admission, "10.0.0.3", 1)
    assert [one.dropped for one in (*many, *few)] == [True, False, False, False, False, False]


def test_there_is_no_room_where_all_are_in_use() -> None:
    admission = Admission(total=4, each=2)
    for address in ("10.0.0.1", "10.0.0.2"):
        for one in admitted(admission, address, 2):
            admission.busy(one)
    assert not admission.admit(One("10.0.0.3", admission))


def test_a_proxy_has_no_share_but_room_as_all() -> None:
    admission = Admission(total=4, each=2, shared=frozenset({"10.0.0.1"}))
    behind = admitted(admission, "10.0.0.1", 4)
    admitted(admission, "10.0.0.2", 1)
    assert [one.dropped for one in behind] == [True, False, False, False]


def test_what_ended_leaves_nothing() -> None:
    admission = Admission(total=4, each=2)
    for number in range(1000):
        (one,) = admitted(admission, f"10.0.{number // 250}.{number % 250}", 1)
        admission.busy(one)
        admission.idle(one)
        admission.lost(one)
        admission.idle(one)  # an answer that came too late
    assert admission._addresses == {}
    assert admission._count == 0


def test_a_dropped_connection_is_counted_once() -> None:
    admission = Admission(total=2, each=1)
    (first,) = admitted(admission, "10.0.0.1", 1)
    (second,) = admitted(admission, "10.0.0.1", 1)
    admission.lost(first)
    admission.lost(second)
    assert admission._count == 0


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("", ""),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::9%eth0", "2001:db8:1:2::/64"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("a:b", "a:b"),
    ],
)
def test_what_counts_as_one_address(address: str, network: str) -> None:
    assert network_of(address) == network


@pytest.mark.parametrize(
    ("files", "wanted", "connections"),
    [(resource.RLIM_INFINITY, 1000, 1000), (1 << 20, 1000, 1000), (1024, 1000, 320), (10, 1000, 8), (10, 4, 4)],
)
def test_connections_fit_into_the_descriptors_that_there_are(files: int, wanted: int, connections: int) -> None:
    assert connections_for(files, wanted) == connections
