# SPDX-License-Identifier: BSD-3-Clause
"""How fast a bundle is fetched, beside plain downloads of the same files from the same server in the same run.

    python -m benchmarks.mirror CHANNEL_FOLDER [--packages N]

The server is nginx on loopback. The plain downloads write files and look at nothing: curl with as many connections,
and threads of Python. What is measured of ours hashes every byte and compares it with the channel's index. Last,
``mirror update`` with nothing new, as a whole command, on a synthetic channel. Exit status 1 when a limit is missed:
80 % of curl's rate for the channel's packages, 3 s for 10,000 packages with nothing new. Files of 20 kB are measured
for the record: there each request costs more than its bytes.
"""

from __future__ import annotations

import argparse
import hashlib
import http.client
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from benchmarks.figures import Figure, in_turn, print_figures
from benchmarks.index import SUBDIR, fill, make_packages
from benchmarks.nginx import nginx
from channel_tools.channel import Foundation, channel_writer, create_channel, index_channel
from channel_tools.conda.clients import make_http_client
from channel_tools.conda.fetch import FetchOptions, RemoteFile, fetch_files
from channel_tools.system.progress import SilentProgress

if TYPE_CHECKING:
    from collections.abc import Callable

JOBS = 8
SHARE_LIMIT = 80
UPDATE_LIMIT_S = 3
SMALL_FILES, SMALL_BYTES = 3000, 20_000


def with_curl(files: list[RemoteFile], folder: Path) -> None:
    """All files with one curl."""
    lines = [line for item in files for line in (f'url = "{item.url}"', f'output = "{folder / item.path}"')]
    parallel = ("--no-progress-meter", "--parallel", "--parallel-max", str(JOBS), "--create-dirs")
    command = ["curl", "--silent", "--fail", *parallel, "--config", "-"]
    subprocess.run(command, input="\n".join(lines), text=True, check=True)


def with_threads(files: list[RemoteFile], folder: Path) -> None:
    """All files with Python's own client in threads, unlooked at."""
    local = threading.local()

    def get(item: RemoteFile) -> None:
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


def with_ours(files: list[RemoteFile], folder: Path) -> None:
    """All files as ``mirror create`` fetches them."""
    client = make_http_client({})
    fetch_files(files, folder, options=FetchOptions(client=client, jobs=JOBS), progress=SilentProgress())


WAYS: dict[str, Callable[[list[RemoteFile], Path], None]] = {
    "curl --parallel": with_curl,
    "threads, plain": with_threads,
    "mirror create": with_ours,
}


def seconds_of(way: Callable[[list[RemoteFile], Path], None], files: list[RemoteFile], work: Path) -> float:
    """How long one way takes into an empty folder."""
    with tempfile.TemporaryDirectory(dir=work) as folder:
        started = time.monotonic()
        way(files, Path(folder))
        return time.monotonic() - started


def compare(title: str, files: list[RemoteFile], work: Path) -> float:
    """Run all ways in turns and print their rates; ours as a percentage of curl's."""
    total = sum(item.size_bytes for item in files)
    medians = in_turn(*(lambda way=way: seconds_of(way, files, work) for way in WAYS.values()))
    print(f"{title}: {len(files)} files, {total / 1e6:.0f} MB")
    for name, seconds in zip(WAYS, medians, strict=True):
        print(f"  {name:18} {seconds:6.2f} s  {total / 1e6 / seconds:7.0f} MB/s  {len(files) / seconds:7.0f} files/s")
    curl, _threads, ours = medians
    return 100 * curl / ours


def files_of(channel: Path, address: str) -> list[RemoteFile]:
    """Every package of a channel folder."""
    files = []
    for subdir in ("linux-64", "noarch"):
        index = json.loads((channel / subdir / "repodata.json").read_bytes())
        for name, row in index["packages.conda"].items():
            path = f"{subdir}/{name}"
            files.append(RemoteFile(path=path, size_bytes=row["size"], sha256=row["sha256"], url=f"{address}/{path}"))
    return files


def small_files(folder: Path, address: str) -> list[RemoteFile]:
    """Many small files of random bytes."""
    files = []
    for number in range(SMALL_FILES):
        content = os.urandom(SMALL_BYTES)
        (folder / f"{number}.conda").write_bytes(content)
        sha256 = hashlib.sha256(content).hexdigest()
        url = f"{address}/small/{number}.conda"
        files.append(RemoteFile(path=f"{number}.conda", size_bytes=len(content), sha256=sha256, url=url))
    return files


def tool(work: Path, *arguments: object) -> str:
    """What a command of ours prints, with a cache of its own."""
    command = [sys.executable, "-m", "channel_tools", *map(str, arguments)]
    environ = {**os.environ, "CHANNEL_TOOLS_CACHE": str(work / "cache")}
    return subprocess.run(command, env=environ, stdout=subprocess.PIPE, text=True, check=True).stdout


def measure_update(folder: Path, address: str, count: int, work: Path) -> Figure:
    """``mirror update`` of a lock that names ``count`` packages, all of which the importing site has."""
    channel = create_channel(folder, Foundation(kind="registry"))
    fill(folder, make_packages(work / "made", count))
    with channel_writer(channel) as writer:
        index_channel(writer)
    rows = json.loads((folder / SUBDIR / "repodata.json").read_bytes())["packages.conda"]
    lock = work / "explicit.txt"
    lines = [f"{address}/{SUBDIR}/{name}#{row['sha256']}\n" for name, row in rows.items()]
    lock.write_text("".join(["@EXPLICIT\n", *lines]), encoding="utf-8")
    tool(work, "mirror", "keys", "create", "--keys", work / "keys")
    words = ("--lock", lock, "--platform", SUBDIR, "-c", address, "--keys", work / "keys", "--without-tool")
    tool(work, "mirror", "create", *words, "--to", work / "bundle")

    def update() -> float:
        started = time.monotonic()
        output = tool(work, "mirror", "update", "--since", work / "bundle", *words, "--to", work / "next")
        seconds = time.monotonic() - started
        if "the importing site has everything" not in output:
            sys.exit(output)
        return seconds

    name = f"mirror update, nothing new, {count:,} packages"
    return Figure(name=name, value=in_turn(update)[0], unit="s", limit=UPDATE_LIMIT_S, at_most=True)


def main() -> int:
    """Serve, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("channel", type=Path, help="a channel folder, which is only read")
    parser.add_argument("--packages", type=int, default=10_000)
    chosen = parser.parse_args()
    if shutil.which("nginx") is None or shutil.which("curl") is None:
        print("skipped: mirror create and update beside nginx (nginx and curl are needed)")
        return 0
    channel = chosen.channel.absolute()
    with tempfile.TemporaryDirectory(prefix="channel-tools-bench-") as holder:
        work = Path(holder)
        (work / "root" / "small").mkdir(parents=True)
        (work / "root" / "channel").symlink_to(channel)
        work.chmod(0o755)
        with nginx(work / "root", work / "nginx") as address:
            share = compare("packages", files_of(channel, f"{address}/channel"), work)
            compare("small files", small_files(work / "root" / "small", address), work)
            figures = [
                Figure(name="mirror create, packages, of curl's rate", value=share, unit="%", limit=SHARE_LIMIT),
                measure_update(work / "root" / "many", f"{address}/many", chosen.packages, work),
            ]
    return print_figures(figures)


if __name__ == "__main__":
    sys.exit(main())
