# SPDX-License-Identifier: BSD-3-Clause
"""Times the project's main commands as whole processes and prints them beside their limits.

Every row is a command a user runs, in a copy of this clone with an output folder and a cache of its own, so nothing
that was built before helps or suffers. Peak memory is the largest single process among the command's children, by the
kernel's own accounting. Exit status 1 when a row misses its limit.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_MIB = 1024 * 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One measured command: what it was allowed and what it took, in seconds and MiB."""

    name: str
    seconds: float
    limit_s: float
    peak_mib: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkout:
    """A clone of this project with its own virtual environment, output and cache."""

    clone: Path
    cache: Path

    @property
    def tool(self) -> str:
        """The clone's command line."""
        return str(self.clone / ".venv" / "bin" / "channel_tools")

    def environment(self) -> dict[str, str]:
        """The caller's environment with the cache moved and no tree or output of the caller's."""
        variables = {name: value for name, value in os.environ.items() if not name.startswith("CHANNEL_TOOLS_")}
        return {**variables, "CHANNEL_TOOLS_CACHE": str(self.cache)}


def measure(checkout: Checkout, name: str, command: list[str], *, limit_s: float) -> Row:
    """Run ``command`` in the clone; its output goes to stderr, so that stdout holds the table alone."""
    sys.stderr.write(f"--- {name}: {' '.join(command)}\n")
    started = time.monotonic()
    process = subprocess.Popen(command, cwd=checkout.clone, env=checkout.environment(), stdout=sys.stderr)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.monotonic() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"{name}: exit status {process.returncode}; the lines above say why")
    return Row(name=name, seconds=seconds, limit_s=limit_s, peak_mib=usage.ru_maxrss * 1024 / _MIB)


def measure_all(checkout: Checkout) -> list[Row]:
    """Every figure the project promises, the slowest from nothing first."""
    tool, output = checkout.tool, checkout.clone / "output"
    rows = [measure(checkout, "make channel, from nothing", ["make", "channel"], limit_s=600)]
    rows.append(measure(checkout, "make channel, again", ["make", "channel"], limit_s=60))
    other = str(checkout.clone / "bench-output")
    foundation = [tool, "foundation", "build", "--output", other]
    rows.append(measure(checkout, "foundation, nothing but downloads there", foundation, limit_s=120))
    rows.append(measure(checkout, "foundation, nothing changed", foundation, limit_s=2))
    rows.append(measure(checkout, "plan of every stack, warm", [tool, "plan", "--all"], limit_s=2))
    rows.append(measure(checkout, "build, nothing to do", [tool, "build", "--output", str(output)], limit_s=2))
    helps = [measure(checkout, "--help, median of five", [tool, "--help"], limit_s=0.3) for _ in range(5)]
    return [*rows, sorted(helps, key=lambda row: row.seconds)[2]]


def print_rows(rows: list[Row]) -> None:
    """The table, aligned for people and easy to cut for programs."""
    print(f"{'command':42} {'seconds':>9} {'limit':>7} {'peak MiB':>9}")
    for row in rows:
        verdict = "" if row.seconds <= row.limit_s else "  MISSED"
        print(f"{row.name:42} {row.seconds:9.2f} {row.limit_s:7g} {row.peak_mib:9.0f}{verdict}")


def main() -> int:
    """Clone, measure, print; the clone is removed afterwards."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with tempfile.TemporaryDirectory(prefix="channel-tools-bench-") as holder:
        checkout = Checkout(clone=Path(holder) / "clone", cache=Path(holder) / "cache")
        git = shutil.which("git") or sys.exit("git was not found; the benchmark measures a fresh clone")
        subprocess.run([git, "clone", "--quiet", str(ROOT), str(checkout.clone)], check=True)
        rows = measure_all(checkout)
    print_rows(rows)
    return int(any(row.seconds > row.limit_s for row in rows))


if __name__ == "__main__":
    sys.exit(main())
