# SPDX-License-Identifier: BSD-3-Clause
""" """

from __future__ import annotations

import ipaddress
import socket
from typing import TYPE_CHECKING

import pytest

from channel_tools.system.errors import ValidationError
from channel_tools.system.processes import Deadline
from channel_tools.validate.switchml.switch import (
    LoopbackNetwork,
    RunningSwitch,
    choose_loopback_network,
    running_switch,
)
from tests.support.processes import TEST_TIMEOUT_S
from tests.unit.validate.fakes import write_program

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path

STATS = (
    '{"schema": 1, "sessions_opened": 1, "num_workers": 2, "packets_received": 9, "slots_completed": 4, '
    '"packets_dropped": {"malformed": 0, "unknown_worker": 0, "bad_slot": 0, "stale": 0, "injected": 0}, '
    '"elements_aggregated": 1024, "results_sent": 8, "workers": []}'
)
GOOD = f"""
    import json, signal, sys
    options = dict(zip(sys.argv[1::2], sys.argv[2::2]))
    signal.signal(signal.SIGTERM, lambda *_: (open(options["--stats-file"], "w").write({STATS!r}), sys.exit(0)))
    controller = options["--address"] + ":4711"
    print(json.dumps({{"event": "ready", "controller": controller, "data": "d", "version": "1"}}), flush=True)
    signal.pause()
"""


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    return tmp_path / "env"


def run(prefix: Path, code: str, *, limit_s: float = TEST_TIMEOUT_S) -> AbstractContextManager[RunningSwitch]:
    write_program(prefix / "bin/switchml-switch", code)
    return running_switch(
        prefix=prefix, variables={}, address="127.9.9.1", folder=prefix.parent, deadline=Deadline.after(limit_s)
    )


def test_a_switch_is_started_and_its_counters_read(prefix: Path) -> None:
    with run(prefix, GOOD) as switch:
        assert switch.ready.controller == "127.9.9.1:4711"
        stats = switch.stop()
    assert (stats.sessions_opened, stats.num_workers, stats.elements_aggregated) == (1, 2, 1024)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        pytest.param("import sys; sys.exit('address in use')", r"(?s)exit status 1.*address in use", id="dies"),
        pytest.param(
            "print('hello', flush=True); input()", r"expected a ReadyLine in JSON.*found: hello", id="no-json"
        ),
        pytest.param('print(\'{"event": "ready"}\', flush=True)', r"controller: Field required", id="no-controller"),
    ],
)
def test_one_that_does_not_get_ready_is_an_error(prefix: Path, code: str, message: str) -> None:
    with pytest.raises(ValidationError, match=message), run(prefix, code):
        pytest.fail("it is not ready")


def test_one_that_stays_silent_is_an_error_in_time(prefix: Path) -> None:
    code = "import signal; signal.pause()"
    with pytest.raises(ValidationError, match=r"not ready within 0\.3 s"), run(prefix, code, limit_s=0.3):
        pytest.fail("it is not ready")


def test_an_environment_without_one_is_an_error(prefix: Path) -> None:
    with (
        pytest.raises(ValidationError, match="has no software switch"),
        running_switch(prefix=prefix, variables={}, address="x", folder=prefix, deadline=Deadline.after(1)),
    ):
        pytest.fail("there is none")


def test_missing_counters_are_an_error(prefix: Path) -> None:
    code = GOOD.replace(repr(STATS), repr('{"sessions_opened": 1}'))
    with (
        run(prefix, code) as switch,
        pytest.raises(ValidationError, match="expected a SwitchStats in JSON; num_workers"),
    ):
        switch.stop()


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
