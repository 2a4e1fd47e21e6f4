# SPDX-License-Identifier: BSD-3-Clause
"""How fast a bundle is fetched, beside plain downloads of the same files from the same server in the same run.

    python benchmarks/mirror.py CHANNEL_FOLDER

The server is nginx on loopback. The plain downloads write files and look at nothing: curl with as many connections,
and threads of Python. What is measured of ours hashes every byte and compares it with the channel's index. Rounds take
turns, so that other work on the machine meets all alike; the table has the medians. A second table times
``mirror update`` with nothing new, as a whole command, on a synthetic channel.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from channel_tools.mirror.credentials import Credentials
from channel_tools.mirror.fetch import FetchOptions, WantedFile, fetch_files
from channel_tools.mirror.http import HttpReader
from channel_tools.progress import SilentProgress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

JOBS = 8
ROUNDS = 5
SMALL_FILES, SMALL_BYTES = 3000, 20_000
CONFIGURATION = """\
daemon off;
pid {folder}/pid;
error_log {folder}/errors;
worker_processes 2;
events {{ worker_connections 512; }}
http {{
  access_log off;
  sendfile on;
  tcp_nopush on;
  keepalive_requests 100000;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  server {{ listen 127.0.0.1:{port}; root {root}; }}
}}
"""


@contextlib.contextmanager
def nginx(root: Path, folder: Path) -> Iterator[str]:
    """Serve ``root`` for the block; its address."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    folder.mkdir()
    (folder / "conf").write_text(CONFIGURATION.format(folder=folder, root=root, port=port))
    process = subprocess.Popen(["nginx", "-c", str(folder / "conf"), "-p", str(folder)])
    try:
        for _ in range(100):
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def with_curl(files: list[WantedFile], folder: Path) -> None:
    """All files with one curl."""
    lines = [line for item in files for line in (f'url = "{item.url}"', f'output = "{folder / item.path}"')]
    command = [
        "curl",
        "--silent",
        "--fail",
        "--parallel",
        "--parallel-max",
        str(JOBS),
        "--create-dirs",
        "--config",
        "-",
    ]
    subprocess.run(command, input="\n".join(lines), text=True, check=True)


def with_threads(files: list[WantedFile], folder: Path) -> None:
    """All files with Python's own client in threads, unlooked at."""
    local = threading.local()

    def get(item: WantedFile) -> None:
        target = folder / item.path
        target.parent.mkdir(parents=True, exist_ok=True)
        if not hasattr(local, "connection"):
            local.connection = http.client.HTTPConnection(urlsplit(item.url).netloc)
        local.connection.request("GET", urlsplit(item.url).path)
        response = local.connection.getresponse()
        with target.open("wb", buffering=0) as stream:
            while chunk := response.read1(1 << 18):
                stream.write(chunk)
        response.close()

    with ThreadPoolExecutor(JOBS) as executor:
        list(executor.map(get, files))


def with_ours(files: list[WantedFile], folder: Path) -> None:
    """All files as ``mirror create`` fetches them."""
    reader = HttpReader(credentials=Credentials({}))
    fetch_files(files, folder, options=FetchOptions(reader=reader, jobs=JOBS), progress=SilentProgress())


WAYS: dict[str, Callable[[list[WantedFile], Path], None]] = {
    "curl --parallel": with_curl,
    "threads, plain": with_threads,
    "mirror create": with_ours,
}


def compare(title: str, files: list[WantedFile], work: Path) -> None:
    """Run all ways in turns and print the medians."""
    total = sum(item.size_bytes for item in files)
    seconds: dict[str, list[float]] = {name: [] for name in WAYS}
    for _ in range(ROUNDS):
        for name, way in WAYS.items():
            with tempfile.TemporaryDirectory(dir=work) as folder:
                started = time.monotonic()
                way(files, Path(folder))
                seconds[name].append(time.monotonic() - started)
    print(f"{title}: {len(files)} files, {total / 1e6:.0f} MB")
    best = min(statistics.median(values) for name, values in seconds.items() if name != "mirror create")
    for name, values in seconds.items():
        median = statistics.median(values)
        print(
            f"  {name:18} {median:6.2f} s  {total / 1e6 / median:7.0f} MB/s  {best / median:5.0%} of the best plain one"
        )


def files_of(channel: Path, address: str) -> list[WantedFile]:
    """Every package of a channel folder."""
    found = []
    for subdir in ("linux-64", "noarch"):
        index = json.loads((channel / subdir / "repodata.json").read_bytes())
        for name, row in index["packages.conda"].items():
            path = f"{subdir}/{name}"
            found.append(WantedFile(path=path, size_bytes=row["size"], sha256=row["sha256"], url=f"{address}/{path}"))
    return found


def small_files(folder: Path, address: str) -> list[WantedFile]:
    """Many small files of random bytes."""
    found = []
    for number in range(SMALL_FILES):
        content = os.urandom(SMALL_BYTES)
        (folder / f"{number}.conda").write_bytes(content)
        sha256 = hashlib.sha256(content).hexdigest()
        url = f"{address}/small/{number}.conda"
        found.append(WantedFile(path=f"{number}.conda", size_bytes=len(content), sha256=sha256, url=url))
    return found


def main() -> int:
    """Serve, measure, print."""
    if shutil.which("nginx") is None or shutil.which("curl") is None:
        sys.exit("nginx and curl are needed")
    channel = Path(sys.argv[1]).absolute()
    with tempfile.TemporaryDirectory(prefix="channel-tools-bench-") as holder:
        work = Path(holder)
        (work / "root" / "small").mkdir(parents=True)
        (work / "root" / "channel").symlink_to(channel)
        work.chmod(0o755)
        with nginx(work / "root", work / "nginx") as address:
            compare("packages", files_of(channel, f"{address}/channel"), work)
            compare("small files", small_files(work / "root" / "small", address), work)
    return 0


if __name__ == "__main__":
    sys.exit(main())
