# SPDX-License-Identifier: BSD-3-Clause
"""A software switch beside a test, and network namespaces as the hosts of a small cluster around one.

The switch is on a bridge, the workers are on veth pairs to it.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes import TEST_TIMEOUT_S
from tests.support.programs import program

SUM_SCRIPT = """
import torch, torch.distributed, torch_switchml
torch.distributed.init_process_group()
tensor = torch.ones(1000, dtype=torch.int32)
torch.distributed.all_reduce(tensor)
carried = torch_switchml.stats()["delegated"]["int32"]["jobs"]
print(f"{tensor.sum()} by {carried} of SwitchML's jobs\\n", end="", flush=True)
torch.distributed.destroy_process_group()
"""
"""A script for ranks with the plugin: each says what it has of a sum, and how much of it SwitchML carried."""
SUMMED_BY_TWO = ["2000 by 1 of SwitchML's jobs"] * 2
"""What two ranks print, in lines."""


class Switch:
    """A software switch that runs, and what it counted once it has ended."""

    def __init__(self, controller: str) -> None:
        self.controller = controller
        self.stats: dict[str, Any] = {}


@contextmanager
def running_switch(
    prefix: Path, *options: str, address: str = "127.0.0.1", before: Sequence[str] = ()
) -> Iterator[Switch]:
    """The switch of an environment, with these options, for as long as the block runs.

    ``before`` comes in front of its command.
    """
    program = str(prefix / "bin" / "switchml-switch")
    command = [*before, program, "--address", address, "--port", "0", "--controller-port", "0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        switch = Switch(json.loads(process.stdout.readline())["controller"])
        try:
            yield switch
        finally:
            process.terminate()
        switch.stats = json.loads(process.stdout.readline())["stats"]


SWITCH_ADDRESS = "10.83.0.254"
SWITCH_IPV6_ADDRESS = "fd00:83::fe"


@dataclass(frozen=True, kw_only=True, slots=True)
class Cluster:
    switch: str
    """The namespace of the switch; its addresses are SWITCH_ADDRESS and SWITCH_IPV6_ADDRESS."""
    workers: tuple[str, ...]
    """By rank. Their interfaces are named worker_interface(rank), their addresses worker_address(rank) and
    worker_ipv6_address(rank)."""

    @staticmethod
    def inside(namespace: str) -> list[str]:
        """What to put before a command so that it runs in the namespace."""
        return [program("ip"), "netns", "exec", namespace]


def worker_interface(rank: int) -> str:
    return f"w{rank}"


def worker_address(rank: int) -> str:
    return f"10.83.0.{rank + 1}"


def worker_ipv6_address(rank: int) -> str:
    return f"fd00:83::{rank + 1:x}"


@contextmanager
def cluster_of(num_workers: int) -> Iterator[Cluster]:
    """Skips where namespaces are not to be had."""
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    program("ip")
    cluster = Cluster(
        switch=f"sml{os.getpid()}s", workers=tuple(f"sml{os.getpid()}w{rank}" for rank in range(num_workers))
    )
    made = []
    try:
        for namespace in (cluster.switch, *cluster.workers):
            refusal = _try_ip("netns", "add", namespace)
            if refusal:
                pytest.skip(f"no network namespaces: {refusal}")
            made.append(namespace)
            _ip("-n", namespace, "link", "set", "lo", "up")
        _connect(cluster)
        yield cluster
    finally:
        for namespace in made:
            _try_ip("netns", "del", namespace)


@contextmanager
def dropping(namespace: str, packets: str) -> Iterator[None]:
    """While the block runs, ``packets`` that arrive in the namespace are dropped; skips where there is no such filter.

    They are an expression of nftables, such as ``meta l4proto udp`` or ``numgen random mod 100 < 5``.
    """
    nft = [*Cluster.inside(namespace), program("nft")]
    rules = f"table inet drops {{ chain arriving {{ type filter hook input priority 0; {packets} drop; }}; }}"
    result = subprocess.run(
        [*nft, rules], capture_output=True, text=True, check=False, timeout=TEST_TIMEOUT_S, stdin=subprocess.DEVNULL
    )
    if result.returncode != 0:
        pytest.skip(f"no filter of packets: {result.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run([*nft, "delete table inet drops"], check=True, timeout=TEST_TIMEOUT_S)


def _connect(cluster: Cluster) -> None:
    refusal = _try_ip("-n", cluster.switch, "link", "add", "bridge", "type", "bridge")
    if refusal:
        pytest.skip(f"no bridges: {refusal}")
    for rank, namespace in enumerate(cluster.workers):
        port, end = f"port{rank}", worker_interface(rank)
        refusal = _try_ip(
            *("-n", cluster.switch, "link", "add", port, "type", "veth"), *("peer", "name", end, "netns", namespace)
        )
        if refusal:
            pytest.skip(f"no veth pairs: {refusal}")
        _ip("-n", cluster.switch, "link", "set", port, "master", "bridge", "up")
        _add_addresses(namespace, end, worker_address(rank), worker_ipv6_address(rank))
    _add_addresses(cluster.switch, "bridge", SWITCH_ADDRESS, SWITCH_IPV6_ADDRESS)


def _add_addresses(namespace: str, interface: str, ipv4: str, ipv6: str) -> None:
    _ip("-n", namespace, "addr", "add", f"{ipv4}/24", "dev", interface)
    # Nobody else has it, so it need not be asked for before use.
    _ip("-n", namespace, "addr", "add", f"{ipv6}/64", "dev", interface, "nodad")
    _ip("-n", namespace, "link", "set", interface, "up")


def _try_ip(*arguments: str) -> str:
    """What it says when it fails; "" when it does not."""
    result = subprocess.run(
        [program("ip"), *arguments], capture_output=True, text=True, check=False, timeout=TEST_TIMEOUT_S
    )
    return "" if result.returncode == 0 else result.stderr.strip() or f"exit status {result.returncode}"


def _ip(*arguments: str) -> None:
    refusal = _try_ip(*arguments)
    assert not refusal, f"ip {' '.join(arguments)}: {refusal}"
