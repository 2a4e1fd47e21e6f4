# SPDX-License-Identifier: BSD-3-Clause
"""Machines for doctor: /sys, /proc and /dev below a folder of the test, whole until a test breaks one thing."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from channel_tools.doctor import Diagnosis, ExaminedStack, examine

_FILES = {
    "sys/class/net/eth0/operstate": "up",
    "sys/class/net/eth0/mtu": "1500",
    "sys/class/net/lo/operstate": "unknown",
    "sys/class/infiniband/mlx5_0/ports/1/state": "4: ACTIVE",
    "sys/class/infiniband/mlx5_0/ports/1/link_layer": "Ethernet",
    "sys/bus/pci/devices/0000:81:00.0/vendor": "0x15b3",
    "sys/bus/pci/devices/0000:81:00.0/device": "0x1019",
    "sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages": "512",
    "sys/kernel/mm/hugepages/hugepages-1048576kB/free_hugepages": "0",
    "proc/mounts": "proc /proc proc rw 0 0\nnodev /dev/hugepages hugetlbfs rw 0 0",
    "proc/self/limits": "Limit                     Soft Limit           Hard Limit           Units     \n"
    "Max locked memory         unlimited            unlimited            bytes     ",
    "proc/sys/net/core/rmem_max": "4194304",
    "proc/sys/net/core/wmem_max": "4194304",
    "dev/infiniband/uverbs0": "",
    "dev/nvidia0": "",
}
_DRIVERS = {
    "sys/class/net/eth0/device": "mlx5_core",
    "sys/class/infiniband/mlx5_0/device": "mlx5_core",
    "sys/bus/pci/devices/0000:81:00.0": "mlx5_core",
}


@dataclass(frozen=True, kw_only=True)
class Machine:
    """A folder that stands for the root of a machine."""

    root: Path

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")

    def bind(self, device: str, driver: str) -> None:
        """Have the driver take a device of /sys."""
        target = self.root / "sys/bus/drivers" / driver
        target.mkdir(parents=True, exist_ok=True)
        (self.root / device).mkdir(parents=True, exist_ok=True)
        (self.root / device / "driver").symlink_to(target)

    def remove(self, name: str) -> None:
        path = self.root / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()

    def findings(self, backend: str, transport: str = "", **variables: str) -> dict[str, Diagnosis]:
        """What doctor says of this machine, without an environment, by subject."""
        subject = ExaminedStack(
            stack="s",
            backend=backend,
            transport=transport,
            settings={},
            prefix=None,
            variables=variables,
            installed={},
            starts_switch=True,
            root=self.root,
        )
        return {finding.subject: finding for finding in examine(subject)}


def write_machine(root: Path) -> Machine:
    """A machine with an adapter of RoCE and all that the fabrics need."""
    machine = Machine(root=root)
    for name, text in _FILES.items():
        machine.write(name, text)
    for device, driver in _DRIVERS.items():
        machine.bind(device, driver)
    return machine
