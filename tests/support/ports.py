# SPDX-License-Identifier: BSD-3-Clause
"""Ports for programs that must be told theirs before they start."""

from __future__ import annotations

import random
import socket
from contextlib import suppress
from pathlib import Path


def free_port(kind: socket.SocketKind = socket.SOCK_STREAM) -> int:
    """A port of the loopback address that nobody has, below those that the system gives to connections.

    Of those any program on the machine may get one before the one it was meant for.
    """
    first_given = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()[0])
    for port in random.SystemRandom().sample(range(first_given // 2, first_given), 100):
        with suppress(OSError), socket.socket(socket.AF_INET, kind) as probe:
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no free port among 100")
