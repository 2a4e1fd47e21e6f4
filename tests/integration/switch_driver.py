# SPDX-License-Identifier: BSD-3-Clause
"""A software switch that runs beside a test."""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class Switch:
    """A software switch that runs, and what it counted once it has ended."""

    def __init__(self, controller: str) -> None:
        self.controller = controller
        self.stats: dict[str, Any] = {}


@contextmanager
def running_switch(prefix: Path) -> Iterator[Switch]:
    """The switch of an environment, for as long as the block runs."""
    program = str(prefix / "bin" / "switchml-switch")
    command = [program, "--address", "127.0.0.1", "--port", "0", "--controller-port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        switch = Switch(json.loads(process.stdout.readline())["controller"])
        try:
            yield switch
        finally:
            process.terminate()
        switch.stats = json.loads(process.stdout.readline())["stats"]


def free_udp_port() -> int:
    """A source port for the workers that another test at the same time does not take."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
