# SPDX-License-Identifier: BSD-3-Clause
"""Sockets tell what keeps packets from the switch, in the network namespace that the process is in."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from channel_tools.doctor import uses_fabric
from channel_tools.doctor.devices import find_controller, find_loopback
from tests.support.ports import free_port
from tests.support.processes import TEST_TIMEOUT_S
from tests.support.programs import in_namespaces, program

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("variables", "found"),
    [
        ({}, "SWITCHML_CONTROLLER is not set: ranks of one host reduce in its memory"),
        ({"SWITCHML_CONTROLLER": "none"}, "SWITCHML_CONTROLLER is none: ranks of one host reduce in its memory"),
        ({"SWITCHML_CONTROLLER": "no-such-host.invalid:1"}, "no-such-host.invalid:1: "),
        ({"SWITCHML_CONTROLLER": "127.0.0.1:{port}"}, "Connection refused"),
        ({"SWITCHML_CONTROLLER": "[::1]:{port}"}, "[::1]:{port}: "),
    ],
    ids=["not set", "none", "unknown host", "nobody listens", "IPv6"],
)
def test_a_controller_that_does_not_answer_is_a_fault(variables: dict[str, str], found: str) -> None:
    port = str(free_port())
    given = {name: value.replace("{port}", port) for name, value in variables.items()}
    findings = tuple(find_controller(given))
    assert [finding.level for finding in findings] == ["fault"]
    assert found.replace("{port}", port) in findings[0].found
    assert findings[0].fix


def test_a_controller_that_answers_is_right_unless_the_plugin_is_off() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        variables = {"SWITCHML_CONTROLLER": f"127.0.0.1:{server.getsockname()[1]}"}
        findings = tuple(find_controller(variables))
        assert [finding.subject for finding in findings] == ["SwitchML controller", "path to the switch"]
        assert uses_fabric(findings)
        assert not uses_fabric(tuple(find_controller({**variables, "SWITCHML_ENABLE": "0"})))


_REPORT = """
import socket
from channel_tools.doctor.devices import find_controller, find_loopback
found = [*find_loopback()]
if found[0].level == "ok":
    with socket.create_server(("127.0.0.1", 0)) as server:
        found += find_controller({"SWITCHML_CONTROLLER": f"127.0.0.1:{server.getsockname()[1]}"})
print(*(f"{one.subject}: {one.level}: {one.fix}" for one in found if one.level != "ok"), sep="\\n")
"""


@pytest.mark.parametrize(
    ("setup", "named"),
    [
        ("true", ["loopback: fault: sudo ip link set lo up"]),
        ("{ip} link set lo up", []),
        ("{ip} link set lo mtu 900 up", ["path to the switch: fault: raise the interface's MTU"]),
    ],
    ids=["loopback down", "whole", "MTU too small"],
)
def test_a_broken_network_namespace_is_named(setup: str, named: list[str]) -> None:
    script = f'{setup.replace("{ip}", program("ip"))} && exec "$@"'
    command = [*in_namespaces("net"), "sh", "-c", script, "sh", sys.executable, "-c", _REPORT]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=TEST_TIMEOUT_S)
    lines = result.stdout.strip().splitlines()
    assert len(lines) == len(named)
    assert all(line.startswith(start) for line, start in zip(lines, named, strict=True)), lines


def test_this_machines_loopback_is_up() -> None:
    assert [finding.level for finding in find_loopback()] == ["ok"]
