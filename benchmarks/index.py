# SPDX-License-Identifier: BSD-3-Clause
"""Publishing into and indexing a channel of ten thousand packages, beside py-rattler's indexer and conda-index.

    python -m benchmarks.index [--packages N] [--conda-python PYTHON]

All work on hard links of the same files, each in a folder of its own, as whole processes. conda-index comes from the
Python that is named (one that has conda as well); without it its rows are skipped by name. Exit status 1 when a promise
is missed: one package published within a second and no slower than conda-index's cached update, within a second more
where the channel has a page for browsers, everything indexed from nothing at least five times faster than conda-index.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from channel_tools.conda.metadata import PackageMetadata
from channel_tools.conda.writer import write_conda_package

ROOT = Path(__file__).resolve().parent.parent
SUBDIR = "linux-64"
PUBLISH_LIMIT_S = 1.0
PAGE_LIMIT_S = 1.0
FASTER = 5.0
STACKS = """\
default_stack: some
stacks:
  some:
    description: Some of the packages
    variants: []
    packages: [pkg00000]
    install: [pkg00000, pkg00001]
"""
_ONE, _ONE_AND_PAGE = "ours, one package published", "ours, one package published, with a page"
_ROUNDS = 3
_LATER = 2 * _ROUNDS
"""Packages that are not there at first: those published, without a page and with one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One measured process."""

    name: str
    seconds: float
    processor_s: float


def make_packages(folder: Path, count: int) -> list[Path]:
    """``count`` distinct small packages with the metadata that real ones have."""
    chance = random.Random(1)  # noqa: S311 - the same packages each time
    tree = folder / "tree"
    (tree / "share").mkdir(parents=True)
    made = []
    for number in range(count):
        name = f"pkg{number:05}"
        (tree / "share" / "file.txt").write_text(f"{name}\n")
        depends = tuple(f"pkg{chance.randrange(count):05} >=1.0,<2" for _ in range(chance.randrange(6)))
        metadata = PackageMetadata(
            name=name,
            version=f"1.{number % 7}.{number % 13}",
            build=f"h{number:07x}_0",
            subdir=SUBDIR,
            depends=(*depends, "python >=3.11,<3.12.0a0"),
            license="BSD-3-Clause",
            timestamp_ms=1_700_000_000_000 + number,
            run_exports={"weak": (f"{name} >=1.{number % 7}",)} if number % 3 == 0 else {},
            about={"home": f"https://example.org/{name}", "summary": f"Package {number}", "license": "BSD-3-Clause"},
        )
        destination = folder / SUBDIR / metadata.file_name
        made.append(write_conda_package(tree, metadata, destination, level=1).path)
    return made


def measure(name: str, command: list[str]) -> Row:
    """Run a command to its end; its output is dropped unless it fails."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=ROOT)
    output, _ = process.communicate()
    seconds = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if process.returncode != 0:
        sys.exit(f"{name}: exit status {process.returncode}\n{output.decode(errors='replace')}")
    used_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Row(name=name, seconds=seconds, processor_s=used_s)


def fill(folder: Path, packages: list[Path]) -> Path:
    """A folder with these packages in their subdir."""
    (folder / SUBDIR).mkdir(parents=True, exist_ok=True)
    (folder / "noarch").mkdir(exist_ok=True)
    for path in packages:
        os.link(path, folder / SUBDIR / path.name)
    return folder


def our_rows(work: Path, packages: list[Path]) -> list[Row]:
    """Ours: from nothing, nothing new, and single packages published as a user does it, without a page and with one."""
    tool = [str(Path(sys.executable).parent / "channel_tools")]
    tree = work / "tree-of-recipes"
    (tree / "recipes").mkdir(parents=True)
    (tree / "variants").mkdir()
    (tree / "variants" / "stacks.yaml").write_text(STACKS)
    output = work / "ours"
    driver = [sys.executable, "-m", "benchmarks.index", "--create", str(output / "channel")]
    measure("make an empty channel", driver)
    fill(output / "channel", packages[:-_LATER])
    places = ["--root", str(tree), "--output", str(output)]
    index = [*tool, "channel", "index", *places]
    rows = [measure("ours, from nothing", index), measure("ours, nothing new", index)]
    publish = [*tool, "publish", *places, "--to", str(output / "channel")]
    rows.append(quickest(_ONE, publish, packages[-_LATER:-_ROUNDS]))
    rows.append(measure("ours, the page of all", [*tool, "channel", "page", *places]))
    return [*rows, quickest(_ONE_AND_PAGE, publish, packages[-_ROUNDS:])]


def quickest(name: str, command: list[str], packages: list[Path]) -> Row:
    """The quickest run of a command with one of the packages each time."""
    return min((measure(name, [*command, str(path)]) for path in packages), key=lambda row: row.seconds)


def rattler_rows(work: Path, packages: list[Path]) -> list[Row]:
    """py-rattler's indexer, each time in a process of its own."""
    folder = fill(work / "rattler", packages[:-_LATER])
    command = [sys.executable, "-m", "benchmarks.index", "--rattler", str(folder)]
    rows = [measure("py-rattler, from nothing", command), measure("py-rattler, nothing new", command)]
    fill(folder, packages[-1:])
    return [*rows, measure("py-rattler, one package new", command)]


def conda_index_rows(work: Path, packages: list[Path], python: str | None) -> list[Row]:
    """conda-index as its users run it, writing the same kinds of indexes; empty when it cannot be imported."""
    if python is None or subprocess.run([python, "-c", "import conda_index.index"], check=False).returncode != 0:
        print("skipped: conda-index (name a Python that has conda and conda-index with --conda-python)")
        return []
    folder = fill(work / "conda-index", packages[:-_LATER])
    kinds = ["--zst", "--run-exports", "--channeldata", "--write-shards"]
    command = [python, "-m", "conda_index", *kinds, str(folder)]
    rows = [measure("conda-index, from nothing", command), measure("conda-index, nothing new", command)]
    fill(folder, packages[-1:])
    rows.append(measure("conda-index, one package new", command))
    bare = fill(work / "conda-index-bare", packages[:-_LATER])
    plain = [python, "-m", "conda_index", str(bare)]
    rows.append(measure("conda-index, repodata.json only, from nothing", plain))
    fill(bare, packages[-1:])
    return [*rows, measure("conda-index, repodata.json only, one package new", plain)]


def print_rows(rows: list[Row]) -> None:
    """The table."""
    print(f"{'process':52} {'seconds':>8} {'processor':>10}")
    for row in rows:
        print(f"{row.name:52} {row.seconds:8.2f} {row.processor_s:10.2f}")


def missed(rows: list[Row]) -> list[str]:
    """The promises that the rows break."""
    seconds = {row.name: row.seconds for row in rows}
    faults = []
    one_package_s = seconds[_ONE]
    if one_package_s > PUBLISH_LIMIT_S:
        faults.append(f"one package took {one_package_s:.2f} s, more than {PUBLISH_LIMIT_S:g}")
    page = seconds[_ONE_AND_PAGE] - one_package_s
    if page > PAGE_LIMIT_S:
        faults.append(f"with a page one package took {page:.2f} s more, limit {PAGE_LIMIT_S:g}")
    theirs = [
        value for name, value in seconds.items() if name.startswith("conda-index") and name.endswith("one package new")
    ]
    if theirs and one_package_s > min(theirs):
        faults.append(f"one package took {one_package_s:.2f} s, longer than conda-index's {min(theirs):.2f}")
    nothing = seconds.get("conda-index, from nothing")
    if nothing is not None and nothing < FASTER * seconds["ours, from nothing"]:
        faults.append(f"from nothing is only {nothing / seconds['ours, from nothing']:.1f} times faster")
    return faults


def create(path: Path) -> None:
    """An empty channel of ours."""
    from channel_tools.channel import Foundation, create_channel  # noqa: PLC0415

    create_channel(path, Foundation(kind="registry"))


def rattler_index(folder: Path) -> None:
    """Index by py-rattler, shards included."""
    from rattler.index import index_fs  # noqa: PLC0415

    asyncio.run(index_fs(folder, write_zst=True, write_shards=True))
    sys.stdout.flush()
    os._exit(0)  # its runtime threads can crash the interpreter's end (PyO3/pyo3-async-runtimes#40)


def main() -> int:
    """Make, measure, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--packages", type=int, default=10_000)
    parser.add_argument("--conda-python", default=shutil.which("python") if shutil.which("conda") else None)
    parser.add_argument("--json", type=Path, help="also write the rows there")
    parser.add_argument("--create", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--rattler", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.create:
        create(options.create)
        return 0
    if options.rattler:
        rattler_index(options.rattler)
    with tempfile.TemporaryDirectory(prefix="channel-tools-bench-") as holder:
        work = Path(holder)
        packages = make_packages(work / "made", options.packages)
        rows = [*our_rows(work, packages), *rattler_rows(work, packages)]
        rows += conda_index_rows(work, packages, options.conda_python)
    print_rows(rows)
    if options.json:
        options.json.write_text(json.dumps([{"name": row.name, "seconds": row.seconds} for row in rows], indent=2))
    faults = missed(rows)
    for fault in faults:
        print(f"MISSED: {fault}")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
