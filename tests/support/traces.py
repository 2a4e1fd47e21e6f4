# SPDX-License-Identifier: BSD-3-Clause
"""What a program and its children look for in the file system, as strace sees it."""

from __future__ import annotations

import os
import posixpath
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.programs import program

_CALL = re.compile(r'(?P<pid>\d+) +\w+\((?:AT_FDCWD, |\d+, )?"(?P<path>/(?:[^"\\]|\\.)*)"(?P<rest>.*)')
_RESUMED = re.compile(r"(?P<pid>\d+) +<\.\.\. \w+ resumed>(?P<rest>.*)")
_FAILED = re.compile(r"\) += -1 ")
_LIMIT_S = 300


@dataclass(frozen=True, kw_only=True)
class Traced:
    """A command that has ended, and the absolute paths that its processes asked for."""

    returncode: int
    output: str
    found: set[str] = field(default_factory=set)
    missed: set[str] = field(default_factory=set)
    """Those that were not there, each time that it was asked for."""


def _tracer(trace: Path) -> list[str]:
    strace = program("strace")
    tried = subprocess.run([strace, "-o", os.devnull, "true"], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        pytest.skip(f"this user may trace no process: {tried.stderr.strip()}")
    return [strace, "-f", "-s", "4096", "-e", "trace=%file", "-e", "signal=none", "-o", str(trace)]


def run_traced(command: Sequence[str | Path], *, folder: Path, variables: Mapping[str, str]) -> Traced:
    """Run a command in ``folder``, to its end; skips where this user may trace no process."""
    trace = folder / "trace"
    done = subprocess.run(
        [*_tracer(trace), *map(str, command)],
        cwd=folder, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        timeout=_LIMIT_S,
    )  # fmt: skip
    found, missed = _read_trace(trace)
    return Traced(returncode=done.returncode, output=done.stdout, found=found, missed=missed)


def _read_trace(trace: Path) -> tuple[set[str], set[str]]:
    """The paths that were found and the others, without ``.`` and ``..``."""
    found: set[str] = set()
    asked: set[str] = set()
    waiting: dict[str, str] = {}
    for line in trace.read_text(errors="replace").splitlines():
        if call := _CALL.match(line):
            path = posixpath.normpath(call["path"])
            asked.add(path)
            waiting[call["pid"]] = path
            rest = call["rest"]
        elif resumed := _RESUMED.match(line):
            path, rest = waiting.get(resumed["pid"], ""), resumed["rest"]
        else:
            continue
        if path and "<unfinished" not in rest and not _FAILED.search(rest):
            found.add(path)
    return found, asked - found
