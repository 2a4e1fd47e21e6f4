# SPDX-License-Identifier: BSD-3-Clause
"""The packets of SwitchML's allreduce beside what one flow of UDP carries on this machine, a turn of each at a time.

``python -m benchmarks.wire_rate``. Two workers (``switchml-bench``, no PyTorch) reduce over a switch on loopback, so
each tensor goes through the kernel four times: from two workers to the switch, and back. The flow is between two
processes that do nothing else, in kernel packets (GSO, GRO) as full as SwitchML's: through memory of the tensor's size,
and once more out of and into the same few bytes, which never leave the caches. All are bytes of packets a second.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import os
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.allreduce import install
from channel_tools.environments import activated_environment
from channel_tools.system.processes import Deadline
from channel_tools.validate.judging import spread_of
from channel_tools.validate.switchml.switch import choose_loopback_network, running_switch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from multiprocessing.connection import Connection

    from channel_tools.validate.switchml.switch import LoopbackNetwork

SPECS = ("libswitchml * udp*", "switchml-switch")
LIMIT_S = 300.0
NUMEL = 16 << 20
"""64 MiB of float32."""
CALLS = 20
WORKERS = 2
PACKET_NUMEL = 256
PACKET_BYTES = 1034
"""With the header, of libswitchml's wire/packet.hpp."""
WINDOW = 252
KERNEL_PACKET_BYTES = 63 * PACKET_BYTES
UDP_SEGMENT, UDP_GRO = 103, 104
"""Of Linux' <linux/udp.h>, which Python's socket module does not name."""
FLOW_S = 1.0
SOCKET_BUFFER_BYTES = 4 << 20


def measure_flow(memory_bytes: int) -> float:
    """Bytes a second that arrive of one flow, while its sender sends all that the kernel takes.

    Sender and receiver go through memory of that size again and again.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.setsockopt(socket.IPPROTO_UDP, UDP_GRO, 1)
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SOCKET_BUFFER_BYTES)
        receiver.bind(("127.0.0.1", 0))
        receiver.settimeout(LIMIT_S)
        context = multiprocessing.get_context("spawn")  # this process has threads
        mine, others = context.Pipe()
        sender = context.Process(target=_send, args=(receiver.getsockname(), memory_bytes, others))
        sender.start()
        try:
            return _receive(receiver, _pieces(memory_bytes))
        finally:
            mine.send(None)
            sender.join()


def _pieces(memory_bytes: int) -> Iterator[memoryview]:
    """Room for a kernel packet each, of one piece of memory, over and over."""
    memory = memoryview(bytearray(memory_bytes))
    return itertools.cycle(
        [memory[begin : begin + KERNEL_PACKET_BYTES] for begin in range(0, memory_bytes, KERNEL_PACKET_BYTES)]
    )


def _send(address: tuple[str, int], memory_bytes: int, stop: Connection) -> None:
    segments = [(socket.IPPROTO_UDP, UDP_SEGMENT, struct.pack("H", PACKET_BYTES))]
    pieces = _pieces(memory_bytes)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.connect(address)
        while not stop.poll():
            for piece in itertools.islice(pieces, 100):
                sender.sendmsg([piece], segments)


def _receive(receiver: socket.socket, pieces: Iterator[memoryview]) -> float:
    """What arrives in FLOW_S, from the first packet on."""
    receiver.recv_into(next(pieces))
    arrived = 0
    begun = time.perf_counter()
    while (elapsed_s := time.perf_counter() - begun) < FLOW_S:
        arrived += receiver.recv_into(next(pieces))
    return arrived / elapsed_s


def measure_allreduce(prefix: Path, network: LoopbackNetwork, environment: Mapping[str, str]) -> float:
    """Bytes of all packets a second, sent and received by both workers, of the slower one's median call."""
    with tempfile.TemporaryDirectory(prefix="channel-tools-bench-") as folder:
        deadline = Deadline.after(LIMIT_S)
        work = Path(folder)
        with running_switch(
            prefix=prefix, variables=environment, address=network.switch, folder=work, deadline=deadline
        ) as switch:
            variables = {**environment, "SWITCHML_CONTROLLER": switch.ready.controller}
            workers = [
                _start_worker(prefix, rank, {**variables, "SWITCHML_LOCAL_ADDRESS": address})
                for rank, address in enumerate(network.workers(WORKERS))
            ]
            outputs = [worker.communicate(timeout=deadline.left_s())[0] for worker in workers]
            if any(worker.returncode for worker in workers):
                sys.exit("switchml-bench failed: nothing was measured")
    slowest_s = max(float(json.loads(output)["median_s"]) for output in outputs)
    packets = -(-NUMEL // PACKET_NUMEL) + WINDOW
    return 2 * WORKERS * packets * PACKET_BYTES / slowest_s


def _start_worker(prefix: Path, rank: int, variables: Mapping[str, str]) -> subprocess.Popen[str]:
    words = ["--rank", str(rank), "--workers", str(WORKERS), "--numel", str(NUMEL), "--iterations", str(CALLS)]
    command: list[str | Path] = [prefix / "bin" / "switchml-bench", *words]
    return subprocess.Popen(command, env=dict(variables), stdout=subprocess.PIPE, text=True)


def main() -> int:
    """Measure in turns and print medians, quartiles and the share."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--channel", type=Path, default=Path("output/channel"))
    parser.add_argument("--turns", type=int, default=7)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="channel-tools-bench-") as folder:
        prefix = install(Path(folder) / "env", arguments.channel, SPECS)
        environment = activated_environment(prefix, environ=os.environ)
        network = choose_loopback_network()
        paths: dict[str, Callable[[], float]] = {
            "SwitchML, 2 workers and a switch": lambda: measure_allreduce(prefix, network, environment),
            "one flow, through 64 MiB": lambda: measure_flow(KERNEL_PACKET_BYTES * 1024),
            "one flow, of one kernel packet": lambda: measure_flow(KERNEL_PACKET_BYTES),
        }
        turns = [[measure() / 1e9 for measure in paths.values()] for _ in range(arguments.turns)]
    rates = dict(zip(paths, map(spread_of, zip(*turns, strict=True)), strict=True))
    allreduce = next(iter(rates.values()))
    for name, rate in rates.items():
        share = f"{allreduce.median / rate.median:.0%} of it" if rate is not allreduce else ""
        print(f"{name:32} {rate.median:5.2f} ({rate.lower:.2f} to {rate.upper:.2f}) GB/s of packets  {share}")
    print(f"medians (quartiles) of {len(turns)} turns, load {os.getloadavg()[0]:.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
