# SPDX-License-Identifier: BSD-3-Clause
"""SwitchML's ranks and switch on hosts whose network loses packets of every kind, or lets only some pass.

The switch's own ``--drop-rate`` loses SwitchML's packets alone; here those of the controller, gloo and the store are
lost as well, from the first that a rank sends.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from channel_tools.system.settings import Settings
from tests.support.processes import TEST_TIMEOUT_S
from tests.support.stacks import install
from tests.support.switch import (
    SWITCH_ADDRESS,
    Cluster,
    Switch,
    cluster_of,
    dropping,
    running_switch,
    worker_address,
    worker_interface,
)

pytestmark = [pytest.mark.integration, pytest.mark.slow]

RANKS = 3
UDP = "meta l4proto udp"
_SUMS = """
import json
import torch, torch.distributed as dist, torch_switchml
dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()
wrong = 0
for step in range(8):
    for dtype in (torch.int32, torch.float32):
        values = torch.arange(1, 2 + step * 7919, dtype=dtype)
        sums = values * (rank + 1)
        dist.all_reduce(sums)
        wrong += int((sums != values * (ranks * (ranks + 1) // 2)).sum()) if dtype == torch.int32 else int(
            not torch.allclose(sums, values * (ranks * (ranks + 1) / 2), rtol=1e-4, atol=0)
        )
jobs = {dtype: count["jobs"] for dtype, count in torch_switchml.stats()["delegated"].items()}
print(json.dumps({"wrong": wrong, "jobs": jobs}))
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def prefix(own_settings: Settings, stack_channel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    specs = ["pytorch-switchml", "libswitchml=*=udp_h*", "switchml-switch"]
    return install(own_settings, stack_channel, tmp_path_factory.mktemp("lossy") / "env", specs)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with cluster_of(RANKS) as cluster:
        yield cluster


def run_ranks(prefix: Path, cluster: Cluster, switch: Switch) -> list[subprocess.CompletedProcess[str]]:
    """How the ranks of the script ended, each on a host of its own."""
    python = str(prefix / "bin" / "python")
    ranks = [
        subprocess.Popen(
            [*cluster.inside(namespace), python, "-c", _SUMS],
            env={
                **os.environ,
                "SWITCHML_CONTROLLER": switch.controller,
                "SWITCHML_REQUIRE": "1",
                "RANK": str(rank),
                "WORLD_SIZE": str(RANKS),
                "MASTER_ADDR": worker_address(0),
                "MASTER_PORT": "29500",
                "GLOO_SOCKET_IFNAME": worker_interface(rank),
                "OMP_NUM_THREADS": "1",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank, namespace in enumerate(cluster.workers)
    ]
    outputs = [rank.communicate(timeout=TEST_TIMEOUT_S) for rank in ranks]
    return [
        subprocess.CompletedProcess(rank.args, rank.returncode, *output)
        for rank, output in zip(ranks, outputs, strict=True)
    ]


@pytest.mark.parametrize("percent", [1, 10])
def test_sums_are_right_where_every_host_loses_packets(prefix: Path, cluster: Cluster, percent: int) -> None:
    with ExitStack() as stack:
        switch = stack.enter_context(
            running_switch(prefix, address=SWITCH_ADDRESS, before=cluster.inside(cluster.switch))
        )
        for namespace in (cluster.switch, *cluster.workers):
            stack.enter_context(dropping(namespace, f"numgen random mod 100 < {percent}"))
        results = run_ranks(prefix, cluster, switch)
    for result in results:
        assert result.returncode == 0, result.stderr
        report: dict[str, Any] = json.loads(result.stdout)
        assert report == {"wrong": 0, "jobs": {"float32": 8, "int32": 8}}


def test_a_host_without_udp_is_named_on_all_ranks(prefix: Path, cluster: Cluster) -> None:
    """The controller (TCP) admits it; its allreduces would wait for the time limit of the group, 30 minutes."""
    last = RANKS - 1
    with (
        running_switch(prefix, address=SWITCH_ADDRESS, before=cluster.inside(cluster.switch)) as switch,
        dropping(cluster.workers[last], UDP),
    ):
        results = run_ranks(prefix, cluster, switch)
    for result in results:
        assert result.returncode == 1, result.stderr
        (error,) = (line for line in result.stderr.splitlines() if "SwitchMLError: " in line)
        assert f"rank {last}: cannot open the SwitchML session" in error
        assert f"no packets (UDP) pass between {worker_address(last)}:4000 and the switch" in error
        assert "carried nothing" not in result.stderr
