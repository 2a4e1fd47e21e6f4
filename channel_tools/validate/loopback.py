# SPDX-License-Identifier: BSD-3-Clause
"""Addresses of one run on this host's loopback network, so that runs at the same time do not meet.

SwitchML's data port is fixed and the switch tells workers apart by source address, so each run takes a /24 of its own
of 127.0.0.0/8, at random, and looks whether the switch's port is free there.
"""

from __future__ import annotations

import random
import socket
from dataclasses import dataclass

from channel_tools.errors import ValidationError

DATA_PORT = 48864
_ATTEMPTS = 20
_FIRST_WORKER = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class LoopbackNetwork:
    """A /24 of the loopback network."""

    base: str
    """Its first three numbers, ``127.77.3``."""

    @property
    def switch(self) -> str:
        """Where the switch listens."""
        return f"{self.base}.1"

    def workers(self, count: int) -> tuple[str, ...]:
        """One source address per rank."""
        return tuple(f"{self.base}.{_FIRST_WORKER + rank}" for rank in range(count))


def choose_loopback_network(port: int = DATA_PORT) -> LoopbackNetwork:
    """A network whose switch address has the UDP ``port`` free. Raises ValidationError when none was found."""
    source = random.SystemRandom()
    for _ in range(_ATTEMPTS):
        network = LoopbackNetwork(base=f"127.{source.randrange(1, 255)}.{source.randrange(256)}")
        if _is_free(network.switch, port):
            return network
    message = f"no loopback address with UDP port {port} free was found in {_ATTEMPTS} attempts"
    raise ValidationError(message, hint="end what listens on that port on all addresses, then run the command again")


def _is_free(address: str, port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True
