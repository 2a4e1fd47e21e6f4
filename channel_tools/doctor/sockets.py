# SPDX-License-Identifier: BSD-3-Clause
"""The kernel's network as SwitchML over UDP and the ranks' meeting use it: tried on sockets, which change nothing.

Sockets belong to the network namespace that the process is in, where /sys may show another one's.
"""

from __future__ import annotations

import contextlib
import socket
from typing import TYPE_CHECKING

from channel_tools.doctor.devices import read_line
from channel_tools.doctor.model import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

_LIMIT_S = 3.0
_BUFFER_BYTES = 2 * 256 * 2304
"""What libswitchml asks for with its window of 256 packets (receive_bytes in its src/udp/runner.cpp)."""
_DATAGRAM_BYTES = 1062
"""A packet of 256 values with its headers (libswitchml's README, "On the wire")."""
_DEFAULT_PORT = 50099
# linux/udp.h, linux/in.h; Python 3.11 has no names for them
_UDP_SEGMENT, _UDP_GRO, _IP_MTU = 103, 104, 14


def find_loopback() -> Iterator[Finding]:
    """Whether ranks of this machine can meet: a datagram from 127.0.0.1 to itself."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.settimeout(_LIMIT_S)
            probe.bind(("127.0.0.1", 0))
            probe.sendto(b"?", probe.getsockname())
            probe.recv(1)
    except OSError as err:
        found = f"127.0.0.1 cannot be used: {err.strerror or err}"
        yield Finding(subject="loopback", level="fault", found=found, mend="sudo ip link set lo up")
    else:
        yield Finding(subject="loopback", level="ok", found="127.0.0.1 answers")


def find_socket_buffers(root: Path) -> Iterator[Finding]:
    """Whether the system lets sockets have the buffers that SwitchML over UDP asks for."""
    for name in ("rmem_max", "wmem_max"):
        value = read_line(root / "proc/sys/net/core" / name)
        if not value.isdecimal():
            # network namespaces have no file of their own before Linux 6.14
            yield Finding(subject=f"net.core.{name}", level="ok", found="not shown here; the host's limit holds")
        elif int(value) < _BUFFER_BYTES:
            found = f"{value} bytes; less than {_BUFFER_BYTES} loses packets under load"
            mend = f"sudo sysctl -w net.core.{name}={_BUFFER_BYTES}"
            yield Finding(subject=f"net.core.{name}", level="warning", found=found, mend=mend)
        else:
            yield Finding(subject=f"net.core.{name}", level="ok", found=f"{value} bytes")


def find_offload() -> Iterator[Finding]:
    """Whether the kernel has UDP GSO (Linux 4.18) and GRO (5.0), without which packets go one at a time."""
    lacking = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for name, option, value in (("GSO", _UDP_SEGMENT, 0), ("GRO", _UDP_GRO, 1)):
            try:
                probe.setsockopt(socket.IPPROTO_UDP, option, value)
            except OSError:
                lacking.append(name)
    if lacking:
        found = f"the kernel has no UDP {' nor '.join(lacking)}: about a tenth of the bandwidth"
        yield Finding(subject="UDP offload", level="warning", found=found, mend="boot Linux 5.0 or later")
    else:
        yield Finding(subject="UDP offload", level="ok", found="GSO and GRO")


def find_controller(variables: Mapping[str, str]) -> Iterator[Finding]:
    """Whether a SwitchML controller is configured and takes connections, and packets fit the way to it."""
    configured = variables.get("SWITCHML_CONTROLLER", "")
    subject = "SwitchML controller"
    if not configured:
        mend = "export SWITCHML_CONTROLLER=HOST:PORT, or use channel_tools launch, which starts a software switch"
        found = "SWITCHML_CONTROLLER is not set: allreduces stay with gloo"
        yield Finding(subject=subject, level="fault", found=found, mend=mend)
        return
    if variables.get("SWITCHML_ENABLE") == "0":
        found = "SWITCHML_ENABLE is 0: the plugin is switched off"
        yield Finding(subject=subject, level="fault", found=found, mend="unset SWITCHML_ENABLE")
    host, port = _split(configured)
    try:
        with socket.create_connection((host, port), timeout=_LIMIT_S) as connection:
            peer = connection.getpeername()
    except (OSError, OverflowError) as err:
        reason = err.strerror if isinstance(err, OSError) and err.strerror else str(err)
        mend = f"start it (switchml-switch --address {host}), or correct SWITCHML_CONTROLLER, or open TCP {port}"
        yield Finding(subject=subject, level="fault", found=f"{configured}: {reason}", mend=mend)
        return
    yield Finding(subject=subject, level="ok", found=f"{configured} takes connections")
    yield from _path_mtu(peer)


def _path_mtu(peer: tuple[str, int]) -> Iterator[Finding]:
    """Whether a whole packet fits: the kernel refuses what it would have to cut up. Of IPv4 paths only."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((peer[0], peer[1]))
        mtu = probe.getsockopt(socket.IPPROTO_IP, _IP_MTU)
        if mtu >= _DATAGRAM_BYTES:
            yield Finding(subject="path to the switch", level="ok", found=f"MTU {mtu}")
        else:
            found = f"MTU {mtu}; packets of 256 values take {_DATAGRAM_BYTES} bytes"
            mend = "raise the interface's MTU (sudo ip link set NAME mtu 1500), or export SWITCHML_PACKET_NUMEL=64"
            yield Finding(subject="path to the switch", level="fault", found=found, mend=mend)


def _split(configured: str) -> tuple[str, int]:
    """Host and port of ``host[:port]``, an IPv6 address in brackets; the default port where it is not a number."""
    if configured.startswith("["):
        host, _, rest = configured[1:].partition("]")
        port = rest.removeprefix(":")
    else:
        host, _, port = configured.partition(":")
    return host, int(port) if port.isdecimal() else _DEFAULT_PORT
