# SPDX-License-Identifier: BSD-3-Clause
"""Measures ``channel_tools serve`` beside nginx on the same folder, and what an upload of 2 GiB takes in memory.

    python -m benchmarks.serve --channel FOLDER

FOLDER is any channel; it is read through hard links or copies and never written. Needs nginx and wrk on the PATH. Both
servers have two processes, the load comes from one more on the same machine, and the two are measured in turn, so that
other work on the machine falls on both; medians are printed. Exit status 1 when a row misses its limit.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import urllib.request
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import zstandard

from benchmarks.figures import Figure, in_turn, print_figures
from benchmarks.nginx import nginx
from channel_tools.channel.model import Foundation
from channel_tools.publish.model import PackageFile, PackageSet
from channel_tools.publish.server.target import open_server
from channel_tools.serve.access.tokens import create_token, default_tokens_file
from channel_tools.system.progress import SilentProgress

if TYPE_CHECKING:
    from collections.abc import Iterator

_MIB = 1 << 20
_ROUNDS = 5
_SECONDS = 4
_GIB_UPLOAD = 2
_LUA = """
local paths = {}
for line in io.lines("PATHS") do paths[#paths + 1] = line end
local next_path = START
request = function()
  next_path = next_path % #paths + 1
  return wrk.format("GET", paths[next_path])
end
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Server:
    """A running server; ``pid`` is the process whose children answer."""

    address: str
    pid: int
    headers: dict[str, str]

    def processes(self) -> list[int]:
        """The process and its children."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text(encoding="ascii").split()
        return [self.pid, *map(int, children)]

    def memory_mib(self) -> tuple[float, float]:
        """Resident memory of all processes now: each page counted per process, and counted once (PSS)."""
        resident = sum(_status(pid, "VmRSS") for pid in self.processes())
        shared_once = sum(_rollup(pid) for pid in self.processes())
        return resident / 1024, shared_once / 1024


def _status(pid: int, key: str) -> int:
    with contextlib.suppress(OSError):
        match = re.search(rf"^{key}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
        return int(match[1]) if match else 0
    return 0


def _rollup(pid: int) -> int:
    with contextlib.suppress(OSError):
        match = re.search(r"^Pss:\s+(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
        return int(match[1]) if match else 0
    return 0


@contextlib.contextmanager
def ours(root: Path, work: Path) -> Iterator[Server]:
    """The server, with a token for all channels."""
    file = default_tokens_file(root)
    token, _record = create_token(
        file, name="benchmark", channels=None, labels=None, access="write", expires_s=None, clock=time.time
    )
    command = [sys.executable, "-m", "channel_tools", "serve", str(root), "--port", "0", "--workers", "2"]
    process = subprocess.Popen(
        [*command, "--access-log", str(work / "access.log")], stderr=subprocess.PIPE, text=True, encoding="utf-8"
    )
    try:
        line = process.stderr.readline() if process.stderr else ""
        address = line.rpartition(" ")[2].strip() or sys.exit("the server did not start")
        yield Server(address=address, pid=process.pid, headers={"Authorization": f"Bearer {token}"})
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def wrk(
    server: Server, path: str, *options: str, connections: int = 16, more: dict[str, str] | None = None
) -> tuple[float, float]:
    """Requests per second and MiB per second."""
    sent = {**server.headers, **(more or {})}
    headers = [part for name, value in sent.items() for part in ("-H", f"{name}: {value}")]
    command = [
        "wrk",
        "-t1",
        f"-c{connections}",
        f"-d{_SECONDS}",
        "--timeout",
        "60s",
        *headers,
        *options,
        server.address + path,
    ]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    if "Non-2xx" in text or "Socket errors" in text:
        sys.exit(text)
    rate = re.search(r"Requests/sec:\s+([\d.]+)", text)
    transfer = re.search(r"Transfer/sec:\s+([\d.]+)(KB|MB|GB)", text)
    if rate is None or transfer is None:
        sys.exit(text)
    return float(rate[1]), float(transfer[1]) * {"KB": 1 / 1024, "MB": 1.0, "GB": 1024.0}[transfer[2]]


def measure_reads(server: Server, other: Server, root: Path, work: Path) -> list[Figure]:
    """Downloads beside nginx, index requests, and 200 clients at once."""
    packages = sorted(path for path in root.glob("*/*/*.conda"))
    mix = work / "mix.lua"
    (work / "paths").write_text("".join(f"/{path.relative_to(root)}\n" for path in packages), encoding="utf-8")
    mix.write_text(_LUA.replace("PATHS", str(work / "paths")).replace("START", "0"), encoding="utf-8")
    rows = []
    mine, theirs = in_turn(lambda: wrk(server, "/", "-s", str(mix))[1], lambda: wrk(other, "/", "-s", str(mix))[1])
    total = sum(path.stat().st_size for path in packages) / _MIB
    print(f"{len(packages)} packages, {total:.0f} MiB: ours {mine:.0f} MiB/s, nginx {theirs:.0f} MiB/s")
    rows.append(Figure(name="all packages in turn, of nginx's rate", value=100 * mine / theirs, unit="%", limit=25))
    for quantile in (0.5, 0.9):
        chosen = sorted(packages, key=lambda path: path.stat().st_size)[int(quantile * (len(packages) - 1))]
        path, size = f"/{chosen.relative_to(root)}", chosen.stat().st_size
        mine, theirs = in_turn(lambda path=path: wrk(server, path)[0], lambda path=path: wrk(other, path)[0])  # type: ignore[misc]
        print(f"one package of {size / 1024:.0f} KiB: ours {mine:.0f}/s, nginx {theirs:.0f}/s")
    index = next(str(path.relative_to(root)) for path in sorted(root.glob("*/linux-64/repodata.json.zst")))
    etag = _etag(server, "/" + index)
    fresh = statistics.median(wrk(server, "/" + index, more={"If-None-Match": etag})[0] for _ in range(_ROUNDS))
    full = statistics.median(wrk(server, "/" + index)[0] for _ in range(_ROUNDS))
    size = (root / index).stat().st_size
    rows.append(Figure(name="index requests answered by 304", value=fresh, unit="/s", limit=5000))
    rows.append(Figure(name=f"index requests answered in full ({size} bytes)", value=full, unit="/s", limit=5000))
    rate, transfer = wrk(server, "/", "-s", str(mix), connections=200)
    resident, once = server.memory_mib()
    print(f"200 clients: {rate:.0f} downloads/s, {transfer:.0f} MiB/s")
    print(f"memory: {resident:.0f} MiB, {once:.0f} MiB with shared pages counted once")
    rows.append(Figure(name="memory of all processes after that", value=resident, unit="MiB", limit=300, at_most=True))
    return rows


def _etag(server: Server, path: str) -> str:
    request = urllib.request.Request(server.address + path, headers=server.headers)  # noqa: S310 - our own server
    with urllib.request.urlopen(request) as response:  # noqa: S310
        return str(response.headers["ETag"])


def measure_upload(server: Server, work: Path) -> Figure:
    """Publish a package of 2 GiB and watch the memory of all processes, jobs included."""
    path = make_large_package(work)
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(_MIB):
            digest.update(chunk)
    size = path.stat().st_size
    file = PackageFile(
        subdir="linux-64", file_name=path.name, path=path, sha256=digest.hexdigest(), size_bytes=size, foundation=False
    )
    packages = PackageSet(name="large", files=(file,), foundation=Foundation(kind="registry"))
    token = server.headers["Authorization"].removeprefix("Bearer ")
    target = open_server(f"{server.address}/large", {"CHANNEL_TOOLS_TOKEN": token})
    peak, done = [0.0, 0.0], threading.Event()

    def watch() -> None:
        while not done.wait(0.05):
            for index, value in enumerate(server.memory_mib()):
                peak[index] = max(peak[index], value)

    watcher = threading.Thread(target=watch)
    watcher.start()
    started = time.monotonic()
    target.publish(target.plan(packages, label="main"), progress=SilentProgress())
    seconds = time.monotonic() - started
    done.set()
    watcher.join()
    print(f"upload of {size / (1 << 30):.2f} GiB, checks and audit: {seconds:.0f} s")
    print(f"memory at most: {peak[0]:.0f} MiB, {peak[1]:.0f} MiB with shared pages counted once")
    return Figure(name="memory of all processes, upload of 2 GiB", value=peak[0], unit="MiB", limit=300, at_most=True)


def make_large_package(work: Path) -> Path:
    """A conda package with one file that does not compress."""
    path = work / "made" / "linux-64" / "large-1.0-0.conda"
    path.parent.mkdir(parents=True)
    size = _GIB_UPLOAD << 30
    index = {"name": "large", "version": "1.0", "build": "0", "build_number": 0, "subdir": "linux-64", "depends": []}
    rows = [{"_path": "share/large", "path_type": "hardlink", "size_in_bytes": size}]
    info = {"info/index.json": index, "info/paths.json": {"paths": rows, "paths_version": 1}, "info/about.json": {}}
    with zipfile.ZipFile(path, "w", allowZip64=True) as archive:
        archive.writestr("metadata.json", '{"conda_pkg_format_version": 2}')
        with archive.open(f"info-{path.stem}.tar.zst", "w") as member:
            plain = io.BytesIO()
            with tarfile.open(fileobj=plain, mode="w") as tar:
                for name, value in info.items():
                    header = tarfile.TarInfo(name)
                    content = json.dumps(value).encode()
                    header.size = len(content)
                    tar.addfile(header, io.BytesIO(content))
            member.write(zstandard.compress(plain.getvalue()))
        with (
            archive.open(f"pkg-{path.stem}.tar.zst", "w", force_zip64=True) as member,
            zstandard.ZstdCompressor(level=1).stream_writer(member, closefd=False) as packed,
        ):
            header = tarfile.TarInfo("share/large")
            header.size = size
            packed.write(header.tobuf())
            for _block in range(size // _MIB):
                packed.write(os.urandom(_MIB))
            packed.write(bytes(tarfile.BLOCKSIZE * 2))
    return path


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--channel", type=Path, required=True, help="a channel folder, which is only read")
    parser.add_argument("--only", choices=("reads", "upload"))
    chosen = parser.parse_args()
    missing = [program for program in ("nginx", "wrk") if shutil.which(program) is None]
    if missing:
        print(f"skipped: serve beside nginx ({' and '.join(missing)} not found)")
        return 0
    rows: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="channel-tools-bench-") as holder:
        work = Path(holder)
        work.chmod(0o755)
        root = work / "channels"
        shutil.copytree(chosen.channel, root / "bench", ignore=shutil.ignore_patterns(".channel_tools"))
        with ours(root, work) as server, nginx(root, work / "nginx") as address:
            other = Server(address=address, pid=0, headers={})
            if chosen.only != "upload":
                rows += measure_reads(server, other, root, work)
            if chosen.only != "reads":
                rows.append(measure_upload(server, work))
    return print_figures(rows)


if __name__ == "__main__":
    sys.exit(main())
