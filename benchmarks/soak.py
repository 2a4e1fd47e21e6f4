# SPDX-License-Identifier: BSD-3-Clause
"""Runs ``channel_tools serve`` under abuse, with little of everything, and tells how those fare who behave.

    python -m benchmarks.soak --seconds 600

The server has 1 GiB of address space and 512 descriptors for each process. Four parts of the time: as it is; on a disk
that is full every other ten seconds; on a disk that takes 10 ms for each write and each piece of a file that is sent;
behind nginx. All the time some clients send what has no end, keep connections idle by the thousand, read nothing, or
guess tokens; others read packages and indexes, compare every byte, and publish. In another channel, a package and its
folder are exchanged for links out of it and back without pause, while two read it: no byte from outside may come. Exit
status 1 when one of those got anything but the right bytes or a refusal that may be tried again, when a worker took
more than 300 MiB, or when the server did not last. A part whose means are missing (root for mounting, a C compiler,
nginx on the PATH) is skipped.
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
from channel_tools.system.errors import ChannelError, ChannelToolsError, DiskFullError, NetworkError
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
_DISK_MIB = 128
_FULL_EVERY_S = 10.0
_TIMEOUT_S = 120.0
"""For what is under way when the time is over."""
_ATTACKER = ("127.0.0.2", 0)
_MAY_BE_TRIED_AGAIN = frozenset({429, 502, 503, 507})
"""502 is nginx's, where it finds no room for a connection."""
_SWAPPED, _SWAPPED_FILE, _SWAPPED_BYTES = "swapped/noarch", "x-1-0.conda", b"o" * (100 << 10)
"""A package of a channel whose writer exchanges it for a link."""
_SLOW_DISK = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>
static void wait_for_disk(int file) {
  char link[64], path[4096];
  const char *root = getenv("SLOW_ROOT");
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  ssize_t size = readlink(link, path, sizeof path - 1);
  if (root && size > 0 && !strncmp(path, root, strlen(root))) usleep(10000);
}
#define SLOW(result, name, parameters, arguments, file) \
  result name parameters { \
    static result (*next) parameters; \
    if (!next) next = (result (*) parameters)dlsym(RTLD_NEXT, #name); \
    wait_for_disk(file); \
    return next arguments; \
  }
SLOW(ssize_t, write, (int f, const void *b, size_t n), (f, b, n), f)
SLOW(ssize_t, pwrite64, (int f, const void *b, size_t n, off64_t o), (f, b, n, o), f)
SLOW(ssize_t, sendfile64, (int t, int f, off64_t *o, size_t n), (t, f, o, n), f)
SLOW(int, fsync, (int f), (f), f)
"""


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
    swaps: int = 0
    swapped_reads: Counter[int] = field(default_factory=Counter)

    def going_on(self) -> bool:
        """Whether there is time left."""
        return not self.ended.is_set()


def _serving(
    root: Path, work: Path, *options: str, variables: dict[str, str] | None = None
) -> contextlib.AbstractContextManager[Server]:
    limits = f'ulimit -v {_ADDRESS_SPACE_BYTES >> 10}; ulimit -n {_FILES}; exec "$@"'
    return running(
        root,
        *options,
        work=work,
        workers=_WORKERS,
        quiet=False,
        launcher=("sh", "-c", limits, "sh"),
        variables=variables,
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


def _swap(soak: Soak) -> None:
    """Exchange a package, and then its folder, for links out of the channel, and back, without pause."""
    folder = soak.server.root / _SWAPPED
    for swapped in itertools.cycle((folder / _SWAPPED_FILE, folder)):
        aside = swapped.with_name(".aside")
        if not soak.going_on():
            return
        for _turn in range(100):
            swapped.rename(aside)
            with contextlib.suppress(OSError):  # the disk may be full
                swapped.symlink_to(_victim(soak.server.root) / swapped.relative_to(soak.server.root))
                swapped.unlink()
            aside.rename(swapped)
            soak.swaps += 1


def _victim(root: Path) -> Path:
    return root.with_name(f"beside-{root.name}")


def _read_swapped(soak: Soak) -> None:
    """One who reads what is exchanged: it is the package, or it is not there just then."""
    while soak.going_on():
        try:
            answer = soak.server.ask(f"/{_SWAPPED}/{_SWAPPED_FILE}", headers={"Authorization": f"Bearer {soak.token}"})
        except (OSError, http.client.HTTPException):
            continue
        soak.swapped_reads[answer.status] += 1
        if answer.status == http.client.OK and answer.body != _SWAPPED_BYTES:
            soak.faults.append(f"{_SWAPPED}: {answer.body[:20]!r} from outside")
        elif answer.status not in {http.client.OK, http.client.NOT_FOUND, http.client.CONFLICT, *_MAY_BE_TRIED_AGAIN}:
            soak.faults.append(f"{_SWAPPED}: status {answer.status}")


def _publish(soak: Soak, work: Path) -> None:
    """One who publishes a package after the other; a full disk is no fault."""
    for number in itertools.count():
        if not soak.going_on():
            return
        file = package_file(make_conda(work / "published", f"new{number}"))
        packages = PackageSet(name=file.file_name, files=(file,), foundation=REGISTRY)
        target = open_server(f"{soak.front}/ours", {"CHANNEL_TOOLS_TOKEN": soak.token})
        try:
            target.publish(target.plan(packages, label="main"), progress=SilentProgress())
            soak.published["done"] += 1
        except (DiskFullError, NetworkError, ChannelError) as err:
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


def _fill(soak: Soak) -> None:
    """Leave nothing free on the disk, and give it back, in turn."""
    ballast = soak.server.root / "ballast"
    while soak.going_on():
        with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as stream:
            while True:
                stream.write(bytes(64 << 10))
        soak.ended.wait(_FULL_EVERY_S)
        ballast.unlink(missing_ok=True)  # it could not be made where there was not even room for its name
        soak.ended.wait(_FULL_EVERY_S)


def _run_part(
    name: str, server: Server, front: str, seconds: float, work: Path, *more: Callable[[Soak], None]
) -> list[Figure]:
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
    doing += [lambda: _swap(soak), lambda: _read_swapped(soak), lambda: _read_swapped(soak)]
    doing += [lambda task=task: task(soak) for task in more]  # type: ignore[misc]
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
    print(f"{name}: {soak.swaps} links exchanged, read meanwhile {dict(soak.swapped_reads)}")
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
    for top, content in ((root, _SWAPPED_BYTES), (_victim(root), b"v" * len(_SWAPPED_BYTES))):
        (top / _SWAPPED).mkdir(parents=True, exist_ok=True)
        (top / _SWAPPED / _SWAPPED_FILE).write_bytes(content)


@contextlib.contextmanager
def _small_disk(folder: Path) -> Iterator[Path | None]:
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={_DISK_MIB}m", "tmpfs", folder], check=False)
    if done.returncode:
        yield None
        return
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def _slow_disk(work: Path) -> dict[str, str] | None:
    """The environment in which writes and sent files take their time; None without a compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    source, library = work / "slow.c", work / "slow.so"
    source.write_text(_SLOW_DISK)
    subprocess.run([compiler, "-shared", "-fPIC", "-O2", source, "-o", library, "-ldl"], check=True)
    return {"LD_PRELOAD": str(library)}


def _parts(seconds: float, work: Path) -> Iterator[list[Figure]]:
    root = work / "channels"
    _made_channel(root, work)
    with _serving(root, work) as server:
        yield _run_part("as it is", server, server.address, seconds, work)
    with _small_disk(work / "disk") as disk:
        if disk is None:
            print("full disk: skipped, no file system could be mounted")
        else:
            _made_channel(disk, work / "for-disk")
            with _serving(disk, work) as server:
                yield _run_part("full disk", server, server.address, seconds, work, _fill)
    slow = _slow_disk(work)
    if slow is None:
        print("slow disk: skipped, no C compiler")
    else:
        with _serving(root, work, variables={**slow, "SLOW_ROOT": str(root)}) as server:
            yield _run_part("slow disk", server, server.address, seconds, work)
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
        for part in _parts(chosen.seconds / 4, work):
            rows += part
    return print_figures(rows)


if __name__ == "__main__":
    sys.exit(main())
