# SPDX-License-Identifier: BSD-3-Clause
"""Looks from outside at the ranks of ``launch --watch`` on this host: whether they run, and all their stacks.

Its text is run by the environment's Python on each host, so it uses only the standard library. The stacks, Python's and
native ones, are py-spy's, without the values of variables; where there is no py-spy or it may not look, they are
Python's own, which faulthandler writes when the rank gets a signal.

Usage: python -c TEXT JSON, which has ``folder`` (the watch's), ``py_spy`` (a program, or ""), and ``limit_s``, for all.
Prints a JSON object: for each rank of this host by its number ``state`` (the kernel's letter, "" if it has ended),
``threads`` (``name`` and ``frames``, each of function, file and line, the innermost first), ``by``, and ``error``.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

LOOK_S = 0.02
FAULT_S = 2.0
_FRAME = re.compile(r'  File "(?P<file>.*)", line (?P<line>[0-9?]+) in (?P<name>.*)')
_THREAD = re.compile(r"(?:Current thread|Thread) (?P<id>0x[0-9a-f]+).*")
_ENDED = "ZX"


def boot_id() -> str:
    """What this machine has since it was started, and no other."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def own_ranks(folder: Path) -> list[dict[str, Any]]:
    """What the ranks of this host have said of themselves."""
    boot = boot_id()
    ranks = [json.loads(file.read_text(encoding="utf-8")) for file in sorted(folder.glob("rank-*.json"))]
    return [rank for rank in ranks if rank["host"] == os.uname().nodename and rank["boot"] == boot]


def state_of(pid: int, started: int) -> str:
    """The kernel's letter for the state of the process; "" if it has ended, and perhaps another has its number."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2]
    except OSError:
        return ""
    state, *others = fields.split()
    return "" if int(others[18]) != started or state in _ENDED else state


def look_at(rank: dict[str, Any], folder: Path, py_spy: str, until: float) -> dict[str, Any]:
    """The state of a rank, and its stacks."""
    state = state_of(rank["pid"], rank["started"])
    if not state:
        return {"state": "", "threads": [], "by": "", "error": ""}
    threads, error = spied(rank["pid"], py_spy, state, until)
    by = "py-spy" if threads else ""
    if not threads and state not in "Tt":
        threads = faulted(rank, folder, until)
        by = "faulthandler" if threads else ""
    return {"state": state, "threads": threads, "by": by, "error": error}


def spied(pid: int, py_spy: str, state: str, until: float) -> tuple[list[dict[str, Any]], str]:
    """The stacks by py-spy, or why there are none; of a stopped process the native ones cannot be had."""
    if not py_spy or not os.access(py_spy, os.X_OK):
        return [], "no py-spy in the environment"
    error = ""
    for option in ("--nonblocking",) if state in "Tt" else ("--native", "--nonblocking"):
        command = [py_spy, "dump", "--json", option, "--pid", str(pid)]
        limit = max(until - time.time(), LOOK_S)
        try:
            result = subprocess.run(
                command, capture_output=True, text=True, errors="replace", timeout=limit, check=False
            )
            rows = json.loads(result.stdout) if result.returncode == 0 else []
        except subprocess.TimeoutExpired:
            return [], f"py-spy took longer than {limit:.0f} s"
        except (OSError, ValueError) as err:
            return [], f"py-spy: {err}"
        if rows:
            rows.sort(key=lambda row: row["os_thread_id"] != pid)
            return [{"name": row["thread_name"] or "", "frames": frames_of(row["frames"])} for row in rows], ""
        said = [line.strip() for line in result.stderr.splitlines() if line.strip()]
        error = f"py-spy: {said[0]}" if said else "py-spy found no Python thread"
    return [], error


def frames_of(rows: list[dict[str, Any]]) -> list[list[Any]]:
    """Function, file and line of py-spy's frames."""
    return [[row["name"].split("(")[0][:200], row["filename"], row["line"]] for row in rows]


def faulted(rank: dict[str, Any], folder: Path, until: float) -> list[dict[str, Any]]:
    """The stacks that the rank writes itself when it gets its signal; none if it has no handler for it any more."""
    file = folder / f"rank-{rank['rank']}.stacks"
    try:
        status = Path(f"/proc/{rank['pid']}/status").read_text(encoding="utf-8", errors="replace")
        caught = next(int(line.split()[1], 16) for line in status.splitlines() if line.startswith("SigCgt:"))
        if not caught >> rank["signal"] - 1 & 1:
            return []
        before = file.stat().st_size
        os.kill(rank["pid"], rank["signal"])
    except (OSError, StopIteration):
        return []
    size, deadline = before, min(until, time.time() + FAULT_S)
    while time.time() < deadline:
        time.sleep(LOOK_S)
        now = file.stat().st_size
        if now > before and now == size:  # all is written at once
            break
        size = now
    with file.open(encoding="utf-8", errors="replace") as stream:
        stream.seek(before)
        return threads_of(stream.read())


def threads_of(text: str) -> list[dict[str, Any]]:
    """faulthandler's text; the main thread, which comes last, is put first."""
    threads: list[dict[str, Any]] = []
    for line in text.splitlines():
        if _THREAD.match(line):
            threads.append({"name": "", "frames": []})
        elif threads and (frame := _FRAME.match(line)):
            number = int(frame["line"]) if frame["line"] != "?" else 0
            threads[-1]["frames"].append([frame["name"], frame["file"], number])
    threads.reverse()
    for thread in threads[:1]:
        thread["name"] = "MainThread"
    return threads


def main() -> None:
    """Print what the ranks of this host are at."""
    request = json.loads(sys.argv[1])
    folder, until = Path(request["folder"]), time.time() + request["limit_s"]
    # those that are stopped first: they cannot say themselves where they are when py-spy has no time left for them
    ranks = sorted(own_ranks(folder), key=lambda rank: state_of(rank["pid"], rank["started"]) not in {*"Tt"})
    with ThreadPoolExecutor(max_workers=max(1, min(len(ranks), os.cpu_count() or 1))) as pool:
        seen = pool.map(lambda rank: look_at(rank, folder, request["py_spy"], until), ranks)
        answer = {str(rank["rank"]): found for rank, found in zip(ranks, seen, strict=True)}
    sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
