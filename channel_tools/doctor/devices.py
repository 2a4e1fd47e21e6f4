# SPDX-License-Identifier: BSD-3-Clause
"""Network adapters and their drivers, GPUs, huge pages and the limit on locked memory, read from Linux's files.

These are /sys/class/net, /sys/class/infiniband, /sys/class/cxi, /sys/bus/pci/devices (sysfs-rules.rst and
sysfs-class-infiniband of the kernel's documentation), /sys/kernel/mm/hugepages, /proc/self/limits.

The kernel's network, which SwitchML over UDP and the ranks' rendezvous use, is tested with sockets. These are in the
network namespace of this process; /sys may show another one's.
"""

from __future__ import annotations

import contextlib
import os
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

from channel_tools.doctor.model import Diagnosis

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

_ACTIVE = "4: ACTIVE"
_KIB, _MIB = 1 << 10, 1 << 20
_LOCKED_BYTES = 256 * _MIB
"""The least that adapters register: the buffers and rings of a few ranks."""
_MOUNTED = "hugetlbfs"


@dataclass(frozen=True, kw_only=True, slots=True)
class Adapter:
    """A kind of adapter on the PCI bus: the vendor's ID and the device IDs; all devices of the vendor if empty."""

    name: str
    vendor: str
    devices: tuple[str, ...]
    driver: str


# sources of the IDs: pci.ids; EFA's also its driver (efa_main.c), Slingshot's cxi-driver
_ADAPTERS = (
    Adapter(name="Mellanox ConnectX", vendor="0x15b3", devices=(), driver="mlx5_core"),
    Adapter(name="Slingshot", vendor="0x17db", devices=("0x0501", "0x0502"), driver="cxi_ss1"),
    Adapter(name="EFA", vendor="0x1d0f", devices=("0xefa0", "0xefa1", "0xefa2", "0xefa3"), driver="efa"),
)


def read_line(path: Path) -> str:
    """The first line of a file of /sys or /proc; "" if it does not exist or may not be read."""
    try:
        return (path.read_text(encoding="utf-8", errors="replace").splitlines() or [""])[0].strip()
    except OSError:
        return ""


def names_in(folder: Path) -> tuple[str, ...]:
    """The names in a folder, sorted; none if the folder does not exist."""
    try:
        return tuple(sorted(os.listdir(folder)))  # noqa: PTH208  (names only)
    except OSError:
        return ()


def driver_of(device: Path) -> str:
    """The driver that a device of /sys is bound to; "" for none."""
    link = device / "device" / "driver"
    return link.resolve().name if link.exists() else ""


def find_adapters(root: Path) -> Iterator[Diagnosis]:
    """Every network interface but loopback, every fabric adapter, and every adapter without a driver."""
    for name in names_in(root / "sys/class/net"):
        interface = root / "sys/class/net" / name
        if name != "lo" and (driver := driver_of(interface)):
            state = read_line(interface / "operstate") or "unknown"
            fix = "" if state in {"up", "unknown"} else f"sudo ip link set {name} up"
            message = f"{driver}, {state}, MTU {read_line(interface / 'mtu')}"
            yield Diagnosis(subject=f"interface {name}", level="warning" if fix else "ok", found=message, fix=fix)
    for name in names_in(root / "sys/class/infiniband"):
        yield from _verbs_device(root / "sys/class/infiniband" / name)
    for name in names_in(root / "sys/class/cxi"):
        yield Diagnosis(
            subject=f"Slingshot {name}", level="ok", found=driver_of(root / "sys/class/cxi" / name) or "cxi"
        )
    bus = root / "sys/bus/pci/devices"
    for slot in names_in(bus):
        vendor, device = read_line(bus / slot / "vendor"), read_line(bus / slot / "device")
        for kind in _ADAPTERS:
            fits = vendor == kind.vendor and (not kind.devices or device in kind.devices)
            if fits and not (bus / slot / "driver").exists():
                yield Diagnosis(
                    subject=f"{kind.name} adapter {slot}",
                    level="warning",
                    found=f"no driver is bound to it ({vendor[2:]}:{device[2:]})",
                    fix=f"sudo modprobe {kind.driver}",
                )


def _verbs_device(device: Path) -> Iterator[Diagnosis]:
    driver = driver_of(device) or "unknown driver"
    for port in names_in(device / "ports"):
        state = read_line(device / "ports" / port / "state")
        layer = read_line(device / "ports" / port / "link_layer") or "unknown"
        subject = f"verbs device {device.name} port {port}"
        if state == _ACTIVE:
            yield Diagnosis(subject=subject, level="ok", found=f"{driver}, {layer}, active")
        else:
            fix = f"connect it, then check: rdma link show {device.name}/{port}"
            yield Diagnosis(
                subject=subject, level="warning", found=f"{driver}, {layer}, {state or 'no state'}", fix=fix
            )


def has_slingshot(root: Path) -> bool:
    """Whether the kernel shows a Slingshot adapter."""
    return bool(names_in(root / "sys/class/cxi"))


def fabric_adapters(root: Path) -> tuple[str, ...]:
    """The adapters that bypass the kernel's network: verbs devices and Slingshot's."""
    return (*names_in(root / "sys/class/infiniband"), *names_in(root / "sys/class/cxi"))


def find_verbs(root: Path) -> Iterator[Diagnosis]:
    """Whether verbs can use an adapter: one with an active port, whose device file may be opened."""
    devices = root / "sys/class/infiniband"
    names = names_in(devices)
    if not names:
        fix = "load the adapter's driver: sudo modprobe mlx5_ib"
        yield Diagnosis(subject="verbs", level="fault", found=f"no device in {devices}", fix=fix)
        return
    active = [name for name in names if any(_ports_active(devices / name))]
    if not active:
        fix = "bring the link up: rdma link show"
        yield Diagnosis(subject="verbs", level="fault", found=f"no port of {', '.join(names)} is active", fix=fix)
    files = [name for name in names_in(root / "dev/infiniband") if name.startswith("uverbs")]
    usable = [name for name in files if os.access(root / "dev/infiniband" / name, os.R_OK | os.W_OK)]
    if not usable:
        message = f"none of {', '.join(files)} may be opened" if files else f"no {root / 'dev/infiniband'}/uverbs0"
        fix = "sudo chmod a+rw /dev/infiniband/uverbs*" if files else "sudo modprobe ib_uverbs"
        yield Diagnosis(subject="verbs device files", level="fault", found=message, fix=fix)
    if active and usable:
        yield Diagnosis(subject="verbs", level="ok", found=f"{', '.join(active)} by {', '.join(usable)}")


def _ports_active(device: Path) -> Iterator[bool]:
    for port in names_in(device / "ports"):
        yield read_line(device / "ports" / port / "state") == _ACTIVE


def find_locked_memory(root: Path) -> Iterator[Diagnosis]:
    """Whether adapters may register memory: the limit on locked memory of this process."""
    lines = _lines(root / "proc/self/limits")
    row = next((line for line in lines if line.startswith("Max locked memory")), "")
    soft = row.removeprefix("Max locked memory").split()[:1]
    if not soft:
        yield Diagnosis(subject="locked memory", level="warning", found="the limit cannot be read", fix="ulimit -l")
    elif soft[0] == "unlimited" or int(soft[0]) >= _LOCKED_BYTES:
        yield Diagnosis(
            subject="locked memory", level="ok", found="unlimited" if soft[0] == "unlimited" else f"{soft[0]} bytes"
        )
    else:
        fix = "ulimit -l unlimited, or in /etc/security/limits.conf: * - memlock unlimited"
        message = f"at most {int(soft[0]) // _KIB} KiB; adapters register {_LOCKED_BYTES // _MIB} MiB and more"
        yield Diagnosis(subject="locked memory", level="fault", found=message, fix=fix)


def find_huge_pages(root: Path) -> Iterator[Diagnosis]:
    """Whether DPDK gets memory: free huge pages of any size, and a place where they are mounted."""
    sizes = root / "sys/kernel/mm/hugepages"
    free = {name.removeprefix("hugepages-"): read_line(sizes / name / "free_hugepages") for name in names_in(sizes)}
    free_sizes = {size: int(count) for size, count in free.items() if count.isdecimal() and int(count)}
    if not free_sizes:
        message = "none is free (" + (", ".join(f"{size}: 0" for size in free) or "the kernel has no support") + ")"
        fix = "sudo sysctl -w vm.nr_hugepages=1024, or --no-huge in SWITCHML_DPDK_EAL_OPTIONS"
        yield Diagnosis(subject="huge pages", level="fault", found=message, fix=fix)
    elif not any(line.split()[2:3] == [_MOUNTED] for line in _lines(root / "proc/mounts")):
        fix = "sudo mkdir -p /dev/hugepages && sudo mount -t hugetlbfs nodev /dev/hugepages"
        yield Diagnosis(subject="huge pages", level="fault", found="hugetlbfs is not mounted", fix=fix)
    else:
        message = ", ".join(f"{count} of {size}" for size, count in free_sizes.items())
        yield Diagnosis(subject="huge pages", level="ok", found=f"{message} free")


def find_amd_gpu(root: Path) -> Iterator[Diagnosis]:
    """Whether there is an AMD GPU with its driver."""
    if (root / "dev/kfd").exists():
        yield Diagnosis(subject="GPU", level="ok", found="kfd")
    else:
        fix = "sudo modprobe amdgpu, on a machine with an AMD GPU"
        yield Diagnosis(subject="GPU", level="fault", found=f"no {root / 'dev'}/kfd", fix=fix)


def find_gpu(root: Path) -> Iterator[Diagnosis]:
    """Whether there is an NVIDIA GPU with its driver."""
    names = [name for name in names_in(root / "dev") if name.startswith("nvidia") and name[6:].isdecimal()]
    if names:
        yield Diagnosis(subject="GPU", level="ok", found=", ".join(names))
    else:
        fix = "sudo modprobe nvidia, on a machine with an NVIDIA GPU"
        yield Diagnosis(subject="GPU", level="fault", found=f"no {root / 'dev'}/nvidia0", fix=fix)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


_LIMIT_S = 3.0
_BUFFER_BYTES = 2 * 252 * 2304
"""The socket buffer that libswitchml requests for its window of 252 packets (receive_bytes in src/udp/runner.cpp)."""
_DATAGRAM_BYTES = 1062
"""A packet of 256 values with its headers (libswitchml's README, "On the wire")."""
_DEFAULT_PORT = 50099
# linux/udp.h, linux/in.h; Python 3.11 has no names for them
_UDP_SEGMENT, _UDP_GRO, _IP_MTU = 103, 104, 14


def find_loopback() -> Iterator[Diagnosis]:
    """Whether ranks on this machine can reach each other: sends a datagram from 127.0.0.1 to itself."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.settimeout(_LIMIT_S)
            probe.bind(("127.0.0.1", 0))
            probe.sendto(b"?", probe.getsockname())
            probe.recv(1)
    except OSError as err:
        message = f"127.0.0.1 cannot be used: {err.strerror or err}"
        yield Diagnosis(subject="loopback", level="fault", found=message, fix="sudo ip link set lo up")
    else:
        yield Diagnosis(subject="loopback", level="ok", found="127.0.0.1 answers")


def find_socket_buffers(root: Path) -> Iterator[Diagnosis]:
    """Whether the system allows socket buffers of the size that SwitchML over UDP requests."""
    for name in ("rmem_max", "wmem_max"):
        value = read_line(root / "proc/sys/net/core" / name)
        if not value.isdecimal():
            # network namespaces have no file of their own before Linux 6.14
            yield Diagnosis(subject=f"net.core.{name}", level="ok", found="not visible here; the host's limit applies")
        elif int(value) < _BUFFER_BYTES:
            message = f"{value} bytes; with less than {_BUFFER_BYTES}, packets are lost under load"
            fix = f"sudo sysctl -w net.core.{name}={_BUFFER_BYTES}"
            yield Diagnosis(subject=f"net.core.{name}", level="warning", found=message, fix=fix)
        else:
            yield Diagnosis(subject=f"net.core.{name}", level="ok", found=f"{value} bytes")


def find_offload() -> Iterator[Diagnosis]:
    """Whether the kernel has UDP GSO (Linux 4.18) and GRO (5.0), without which packets are sent one at a time."""
    lacking = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for name, option, value in (("GSO", _UDP_SEGMENT, 0), ("GRO", _UDP_GRO, 1)):
            try:
                probe.setsockopt(socket.IPPROTO_UDP, option, value)
            except OSError:
                lacking.append(name)
    if lacking:
        message = f"the kernel has no UDP {' nor '.join(lacking)}: about a tenth of the bandwidth"
        yield Diagnosis(subject="UDP offload", level="warning", found=message, fix="boot Linux 5.0 or later")
    else:
        yield Diagnosis(subject="UDP offload", level="ok", found="GSO and GRO")


def find_controller(variables: Mapping[str, str]) -> Iterator[Diagnosis]:
    """Whether a SwitchML controller is configured and accepts connections, and packets fit the path's MTU."""
    configured = variables.get("SWITCHML_CONTROLLER", "")
    subject = "SwitchML controller"
    if variables.get("SWITCHML_ENABLE") == "0":
        message = "SWITCHML_ENABLE is 0: the plugin is switched off"
        yield Diagnosis(subject=subject, level="fault", found=message, fix="unset SWITCHML_ENABLE")
    if configured in {"", "none"}:  # as launch sets it for ranks of one host
        said = f"is {configured}" if configured else "is not set"
        message = f"SWITCHML_CONTROLLER {said}: ranks of one host reduce in its memory, and nothing goes to a switch"
        fix = "for ranks of several hosts: export SWITCHML_CONTROLLER=HOST:PORT"
        yield Diagnosis(subject=subject, level="fault", found=message, fix=fix)
        return
    host, port = _split(configured)
    try:
        with socket.create_connection((host, port), timeout=_LIMIT_S) as connection:
            peer = connection.getpeername()
    except (OSError, OverflowError) as err:
        reason = err.strerror if isinstance(err, OSError) and err.strerror else str(err)
        fix = f"start it (switchml-switch --address {host}), or correct SWITCHML_CONTROLLER, or open TCP {port}"
        yield Diagnosis(subject=subject, level="fault", found=f"{configured}: {reason}", fix=fix)
        return
    yield Diagnosis(subject=subject, level="ok", found=f"{configured} accepts connections")
    yield from _path_mtu(peer)


def _path_mtu(peer: tuple[str, int]) -> Iterator[Diagnosis]:
    """Whether a whole packet fits: the kernel refuses to send what it would have to fragment. IPv4 only."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((peer[0], peer[1]))
        mtu = probe.getsockopt(socket.IPPROTO_IP, _IP_MTU)
        if mtu >= _DATAGRAM_BYTES:
            yield Diagnosis(subject="path to the switch", level="ok", found=f"MTU {mtu}")
        else:
            message = f"MTU {mtu}; packets of 256 values need {_DATAGRAM_BYTES} bytes"
            fix = "raise the interface's MTU (sudo ip link set NAME mtu 1500), or export SWITCHML_PACKET_NUMEL=64"
            yield Diagnosis(subject="path to the switch", level="fault", found=message, fix=fix)


def _split(configured: str) -> tuple[str, int]:
    """Host and port of ``host[:port]``, an IPv6 address in brackets; the default port if it is not a number."""
    if configured.startswith("["):
        host, _, port_part = configured[1:].partition("]")
        port = port_part.removeprefix(":")
    else:
        host, _, port = configured.partition(":")
    return host, int(port) if port.isdecimal() else _DEFAULT_PORT
