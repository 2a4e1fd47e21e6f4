# SPDX-License-Identifier: BSD-3-Clause
"""Each thing that is broken on a machine is named, and nothing else is."""

from __future__ import annotations

from pathlib import Path

import pytest

from channel_tools.doctor.model import Level
from tests.unit.doctor.machines import Machine, write_machine

Change = tuple[str, str | None]
"""A file and its new text; None: it is removed."""
_STATE = "sys/class/infiniband/mlx5_0/ports/1/state"
_LIMITS = "Max locked memory         8388608              8388608              bytes"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return write_machine(tmp_path)


@pytest.mark.parametrize(
    ("backend", "transport"),
    [("switchml", "udp"), ("switchml", "rdma"), ("switchml", "dpdk"), ("switchml", "dpdk_mlx5"), ("nccl", "")],
)
def test_a_whole_machine_has_nothing_to_mend(machine: Machine, backend: str, transport: str) -> None:
    findings = machine.findings(backend, transport)
    assert [finding for finding in findings.values() if finding.level != "ok" or finding.fix] == []
    assert findings["interface eth0"].found == "mlx5_core, up, MTU 1500"
    assert findings["verbs device mlx5_0 port 1"].found == "mlx5_core, Ethernet, active"


@pytest.mark.parametrize(
    ("backend", "transport", "change", "faults"),
    [
        ("switchml", "udp", ("proc/sys/net/core/rmem_max", "212992"), {"net.core.rmem_max": "warning"}),
        ("switchml", "rdma", ("sys/class/infiniband", None), {"verbs": "fault"}),
        ("switchml", "rdma", (_STATE, "1: DOWN"), {"verbs": "fault", "verbs device mlx5_0 port 1": "warning"}),
        ("switchml", "rdma", ("dev/infiniband/uverbs0", None), {"verbs device files": "fault"}),
        ("switchml", "rdma", ("proc/self/limits", _LIMITS), {"locked memory": "fault"}),
        (
            "switchml",
            "dpdk",
            ("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "0"),
            {"huge pages": "fault"},
        ),
        ("switchml", "dpdk", ("proc/mounts", "proc /proc proc rw 0 0"), {"huge pages": "fault"}),
        ("switchml", "dummy", ("proc/mounts", ""), {"SwitchML's network": "fault"}),
        ("switchml", "udp", ("sys/class/net/eth0/operstate", "down"), {"interface eth0": "warning"}),
        (
            "mpi",
            "",
            ("sys/bus/pci/devices/0000:81:00.0/driver", None),
            {"Mellanox ConnectX adapter 0000:81:00.0": "warning"},
        ),
        ("nccl", "", ("dev/nvidia0", None), {"GPU": "fault"}),
    ],
    ids=lambda value: value[0].rpartition("/")[2] if isinstance(value, tuple) else None,
)
def test_what_is_broken_is_named(
    machine: Machine, backend: str, transport: str, change: Change, faults: dict[str, Level]
) -> None:
    name, text = change
    if text is None:
        machine.remove(name)
    else:
        machine.write(name, text)
    findings = machine.findings(backend, transport).values()
    assert {finding.subject: finding.level for finding in findings if finding.level != "ok"} == faults
    assert all(finding.fix for finding in findings if finding.level != "ok")


@pytest.mark.parametrize(
    ("vendor", "device", "fix"),
    [("0x17db", "0x0501", "sudo modprobe cxi_ss1"), ("0x1d0f", "0xefa2", "sudo modprobe efa")],
    ids=["Slingshot", "EFA"],
)
def test_an_adapter_without_a_driver_is_named_with_its_driver(
    machine: Machine, vendor: str, device: str, fix: str
) -> None:
    machine.write("sys/bus/pci/devices/0000:05:00.0/vendor", vendor)
    machine.write("sys/bus/pci/devices/0000:05:00.0/device", device)
    machine.write("sys/bus/pci/devices/0000:06:00.0/vendor", "0x1d0f")
    machine.write("sys/bus/pci/devices/0000:06:00.0/device", "0xec20")  # the same maker's ordinary interface
    assert [finding.fix for finding in machine.findings("mpi").values() if finding.fix] == [fix]


def test_pages_that_dpdk_is_told_not_to_use_are_not_looked_for(machine: Machine) -> None:
    machine.remove("sys/kernel/mm/hugepages")
    findings = machine.findings("switchml", "dpdk", SWITCHML_DPDK_EAL_OPTIONS="--no-huge --no-pci")
    assert "huge pages" not in findings
