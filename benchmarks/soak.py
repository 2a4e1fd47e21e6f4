# SPDX-License-Identifier: BSD-3-Clause
"""Runs ``channel_tools serve`` under abuse, with little of everything, and tells how those fare who behave.

    python -m benchmarks.soak --seconds 600

The server has 1 GiB of address space and 512 descriptors for each process. Half of the time it is asked itself, half
of the time through nginx. All the time some clients send what has no end, keep connections idle by the thousand, read
nothing, or guess tokens; others read packages and indexes, compare every byte, and publish. Exit status 1 when one of
those got anything but the right bytes or a refusal that may be tried again, when a worker took more than 300 MiB, or
when the server did not last. Without nginx on the PATH, its half is skipped.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import itertools
import os
import random
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.figures import Figure, print_figures
from channel_tools.channel import add_set, channel_writer, create_channel, open_channel, verify_channel
from channel_tools.publish.model import PackageSet
from channel_tools.publish.server.target import open_server
from channel_tools.serve.access.tokens import create_token, default_tokens_file
from channel_tools.system.errors import ChannelError, ChannelToolsError, NetworkError
from channel_tools.system.progress import SilentProgress
from tests.support.overload import ATTACKS, memory_kib, send_without_end
from tests.support.packages import REGISTRY, make_conda
from tests.support.serving import Server, nginx_before, running
from tests.unit.publish.sets import package_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_MIB = 1 << 20
_ADDRESS_SPACE_BYTES = 1024 * _MIB
_FILES = 512
_WORKERS = 2
_TIMEOUT_S = 120.0
"""For what is under way when the time is over."""
_ATTACKER = ("127.0.0.2", 0)
_MAY_BE_TRIED_AGAIN = frozenset({429, 502, 503, 507})
"""502 is nginx's, where it finds no room for a connection."""


@dataclass
class Soak:
    """A running server and what is known about how it fares."""

    server: Server
    front: str
    """The address that those who behave use."""
    token: str
    packages: dict[str, bytes]
    ended: threading.Event
    """Set when the time is over, or the server has ended."""
    statuses: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    published: Counter[str] = field(default_factory=Counter)
    peak_kib: int = 0
    peak_files: int = 0
    attacks: int = 0

    def going_on(self) -> bool:
        """Whether there is time left."""
        return not self.ended.is_set()


def _serving(root: Path, work: Path, *options: str) -> contextlib.AbstractContextManager[Server]:
    limits = f'ulimit -v {_ADDRESS_SPACE_BYTES >> 10}; ulimit -n {_FILES}; exec "$@"'
    return running(
        root,
        *options,
        work=work,
        workers=_WORKERS,
        quiet=False,
        launcher=("sh", "-c", limits, "sh"),
    )


def _read(soak: Soak, paths: list[str], seed: int) -> None:
    """One who reads packages and the index, and compares each byte."""
    chosen = random.Random(seed)  # noqa: S311 - no secret
    host, _colon, port = soak.front.removeprefix("http://").partition(":")
    while soak.going_on():
        path = chosen.choice(paths)
        started_s = time.monotonic()
        try:
            connection = http.client.HTTPConnection(host, int(port), timeout=30)
            with contextlib.closing(connection):
                connection.request("GET", path, headers={"Authorization": f"Bearer {soak.token}"})
                response = connection.getresponse()
                body = response.read()
        except (OSError, http.client.HTTPException) as err:
            soak.statuses[type(err).__name__] += 1
            continue
        soak.seconds.append(time.monotonic() - started_s)
        soak.statuses[str(response.status)] += 1
        wanted = soak.packages.get(path)
        if response.status == http.client.OK and wanted is not None and body != wanted:
            soak.faults.append(f"{path}: other bytes")
        elif (
            response.status not in {http.client.OK, *_MAY_BE_TRIED_AGAIN} and response.status != http.client.BAD_GATEWAY
        ):
            soak.faults.append(f"{path}: status {response.status}")


def _publish(soak: Soak, work: Path) -> None:
    """One who publishes a package after the other; that the server has no room for it just then is no fault."""
    for number in itertools.count():
        if not soak.going_on():
            return
        file = package_file(make_conda(work / "published", f"new{number}"))
        packages = PackageSet(name=file.file_name, files=(file,), foundation=REGISTRY)
        target = open_server(f"{soak.front}/ours", {"CHANNEL_TOOLS_TOKEN": soak.token})
        try:
            target.publish(target.plan(packages, label="main"), progress=SilentProgress())
            soak.published["done"] += 1
        except (NetworkError, ChannelError) as err:
            soak.published[type(err).__name__] += 1
        except ChannelToolsError as err:
            soak.faults.append(f"publish: {err}")
        soak.ended.wait(1.0)


def _attack(soak: Soak, seed: int) -> None:
    """One attack after the other, each over a new connection."""
    chosen = random.Random(seed)  # noqa: S311 - no secret
    while soak.going_on():
        worker = next(iter(soak.server.workers()), 0)
        with contextlib.suppress(OSError), _connected(soak) as connection:
            send_without_end(connection, ATTACKS[chosen.choice(sorted(ATTACKS))](), worker)
            soak.attacks += 1


def _crowd(soak: Soak) -> None:
    """Connections by the thousand: idle ones, half headers, and downloads that nobody takes."""
    kinds = (b"", b"GET / HTTP/1.1\r\nHost: x\r\na: ", _download(soak), _guess(soak))
    while soak.going_on():
        with contextlib.ExitStack() as stack:
            for number in range(1500):
                with contextlib.suppress(OSError):
                    connection = stack.enter_context(_connected(soak))
                    connection.setblocking(False)  # noqa: FBT003 - the socket's own signature
                    connection.send(kinds[number % len(kinds)])
            soak.ended.wait(3.0)


def _download(soak: Soak) -> bytes:
    path = max(soak.packages, key=lambda path: len(soak.packages[path]))
    return f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {soak.token}\r\n\r\n".encode()


def _guess(soak: Soak) -> bytes:
    wrong = f"{soak.token[:12]}{'0' * 48}"
    return f"GET /ours/noarch/repodata.json HTTP/1.1\r\nHost: x\r\nX-API-Key: {wrong}\r\n\r\n".encode() * 20


def _connected(soak: Soak) -> socket.socket:
    return socket.create_connection(("127.0.0.1", soak.server.port), timeout=5, source_address=_ATTACKER)


def _watch(soak: Soak) -> None:
    """The most that a worker took, twice a second."""
    while soak.going_on():
        for worker in soak.server.workers():
            with contextlib.suppress(OSError, AssertionError):
                soak.peak_kib = max(soak.peak_kib, memory_kib(worker))
                soak.peak_files = max(soak.peak_files, len(list(Path(f"/proc/{worker}/fd").iterdir())))
        soak.ended.wait(0.5)


def _run_part(name: str, server: Server, front: str, seconds: float, work: Path) -> list[Figure]:
    token = create_token(
        default_tokens_file(server.root),
        name="soak",
        channels=None,
        labels=None,
        access="write",
        expires_s=None,
        clock=time.time,
    )[0]
    packages = {
        f"/{path.relative_to(server.root)}": path.read_bytes() for path in server.root.glob("ours/linux-64/big*.conda")
    }
    soak = Soak(server, front, token, packages, threading.Event())
    paths = [*packages, "/ours/linux-64/repodata.json", "/ours/linux-64/repodata.json.zst"]
    doing: list[Callable[[], None]] = [lambda: _watch(soak), lambda: _crowd(soak), lambda: _publish(soak, work)]
    doing += [lambda seed=seed: _read(soak, paths, seed) for seed in range(3)]  # type: ignore[misc]
    doing += [lambda seed=seed: _attack(soak, seed) for seed in range(3)]  # type: ignore[misc]
    threads = [threading.Thread(target=task, daemon=True) for task in doing]
    for thread in threads:
        thread.start()
    with contextlib.suppress(subprocess.TimeoutExpired):
        server.process.wait(seconds)
    soak.ended.set()
    for thread in threads:
        thread.join(_TIMEOUT_S)
    lasted = server.process.poll() is None and server.ask("/health").status == http.client.OK
    return _told(name, soak, lasted=lasted)


def _told(name: str, soak: Soak, *, lasted: bool) -> list[Figure]:
    answer = soak.server.ask("/metrics", headers={"Authorization": f"Bearer {soak.token}"}) if lasted else None
    events = [line for line in (answer.body.decode() if answer else "").splitlines() if "events_total{" in line]
    unsound = verify_channel(open_channel(soak.server.root / "ours"))
    soak.faults += [str(problem) for problem in unsound]
    quantiles = statistics.quantiles(soak.seconds, n=100) if len(soak.seconds) > 1 else [0.0] * 99
    print(f"{name}: reads {dict(soak.statuses)}, published {dict(soak.published)}, {soak.attacks} attacks")
    print(f"{name}: a read took {quantiles[49] * 1000:.0f} ms, at the 99th percentile {quantiles[98] * 1000:.0f} ms")
    print(f"{name}: {'; '.join(events)}")
    errors = [line for line in soak.server.errors_said().splitlines() if "defect" in line or "Traceback" in line]
    for fault in [*soak.faults[:10], *errors[:10]]:
        print(f"{name}: FAULT {fault}")
    faults = len(soak.faults) + len(errors)
    return [
        Figure(name=f"{name}: lasted", value=float(lasted), unit="", limit=1),
        Figure(name=f"{name}: faults", value=faults, unit="", limit=0, at_most=True),
        Figure(name=f"{name}: right answers", value=soak.statuses["200"], unit="", limit=1),
        Figure(
            name=f"{name}: most memory of a worker", value=soak.peak_kib / 1024, unit="MiB", limit=300, at_most=True
        ),
        Figure(
            name=f"{name}: most descriptors of a worker", value=soak.peak_files, unit="", limit=_FILES, at_most=True
        ),
    ]


def _made_channel(root: Path, work: Path) -> None:
    """A channel with packages of 10 kB to 8 MiB."""
    channel = create_channel(root / "ours", REGISTRY)
    made = [
        make_conda(work / "made", f"big{number}", files={"share/x": os.urandom(size)})
        for number, size in enumerate((10_000, 100_000, _MIB, 8 * _MIB))
    ]
    with channel_writer(channel) as writer:
        add_set(writer, made)


def _parts(seconds: float, work: Path) -> Iterator[list[Figure]]:
    root = work / "channels"
    _made_channel(root, work)
    with _serving(root, work) as server:
        yield _run_part("as it is", server, server.address, seconds, work)
    nginx = shutil.which("nginx")
    if nginx is None:
        print("behind nginx: skipped, nginx not found")
        return
    with _serving(root, work, "--proxy", "127.0.0.1") as server, nginx_before(server, nginx, work) as front:
        yield _run_part("behind nginx", server, front.server.address, seconds, work)


def main() -> int:
    """Run, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=3600.0, help="in all")
    chosen = parser.parse_args()
    rows: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="channel-tools-bench-") as holder:
        work = Path(holder)
        work.chmod(0o755)
        for part in _parts(chosen.seconds / 2, work):
            rows += part
    return print_figures(rows)


if __name__ == "__main__":
    sys.exit(main())
