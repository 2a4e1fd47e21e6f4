# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import ipaddress
import socket

import pytest

from channel_tools.errors import ValidationError
from channel_tools.validate.loopback import LoopbackNetwork, choose_loopback_network


def test_addresses_are_distinct_and_on_loopback() -> None:
    network = choose_loopback_network()
    addresses = [network.switch, *network.workers(32)]
    assert len(set(addresses)) == 33
    assert all(ipaddress.ip_address(address).is_loopback for address in addresses)


def test_runs_take_networks_of_their_own() -> None:
    assert len({choose_loopback_network().base for _ in range(50)}) > 40


def test_a_port_taken_everywhere_is_an_error() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as holder:
        holder.bind(("0.0.0.0", 0))  # noqa: S104  (to be in the way on every address)
        port = holder.getsockname()[1]
        with pytest.raises(ValidationError, match=f"UDP port {port} free"):
            choose_loopback_network(port)


def test_workers_follow_their_rank() -> None:
    assert LoopbackNetwork(base="127.4.5").workers(2) == ("127.4.5.10", "127.4.5.11")
