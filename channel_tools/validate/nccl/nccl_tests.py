# SPDX-License-Identifier: BSD-3-Clause
"""Reads what NVIDIA's nccl-tests or AMD's rccl-tests printed, with NCCL's log among it, and judges it.

One run prints one table, whose rows end with #wrong of each of the two measurements, then the number of wrong values in
all and the average bandwidth. Options add columns and a time (-I, -S), and launchers put the rank before each line
(``srun --label``, Open MPI's ``--tag-output``). Lines of NCCL's log stand between the rows.

    #   size   count    type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
     1048576  262144   float     sum      -1    95.31   11.00   20.63       0    94.80   11.06   20.74       0
    # Out of bounds values : 0 OK
    # Avg bus bandwidth    : 20.685
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from channel_tools.system.counting import counted
from channel_tools.system.errors import UsageError
from channel_tools.system.files import read_regular
from channel_tools.system.pages import size_in_words
from channel_tools.validate.judging import problems_check
from channel_tools.validate.model import BusBandwidth, Check
from channel_tools.validate.nccl.method import NcclLog, read_nccl_log

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_OUTPUT_BYTES = 256 << 20
_LABEL = re.compile(r"^(?:\[\d+,\d+\]<std(?:out|err)>:|[ ]*\d+:)[ ]?", re.MULTILINE)
_HEADER = re.compile(r"^#\s+size\s+count\s+type\b.*$", re.MULTILINE)
_BEGIN = re.compile(r"^\s*\d+\s+\d+\s+[a-z]")
_ROW = re.compile(r"^\s*(\d+)\s+(\d+)\s+([a-z]\w*)\s+([a-z]\w*)\s+(-?\d+)(?:\s+(.*?))?\s*$")
# -S puts the time at the end of a row
_TIME_OF_DAY = re.compile(r"\s+\d{4}-\d\d-\d\d \d\d:\d\d:\d\d$")
_LAST = re.compile(r"^# Out of bounds values\s*:\s*(\d+)", re.MULTILINE)
_AVERAGE = re.compile(r"^# Avg bus bandwidth\s*:\s*(\S+) *(OK|FAILED)?", re.MULTILINE)
_DEVICE = re.compile(r"^#\s+Rank\s+(\d+)\s.*?\bPid\s+\d+ on\s+(\S+) device", re.MULTILINE)
_FAILURE = re.compile(r"^.*\bTest (?:\w+ )?(?:failure|timeout)\b.*$", re.MULTILINE)
_PLUGIN = re.compile(r"NET/OFI (?:Using|Initializing) aws-ofi-nccl (\S+)")
_PROVIDER = re.compile(r"NET/OFI Selected [Pp]rovider is ([^,\s]+)")
_MEASURED = 4
"""The columns of one measurement: time, algbw, busbw, #wrong; -I adds as many."""
_HINT = "give the whole output of one run of nccl-tests or rccl-tests, such as all_reduce_perf"


@dataclass(frozen=True, kw_only=True, slots=True)
class NcclTests:
    """One run: its rows, and what its last lines say; ``wrong`` and ``average_gb_s`` are None if they are missing."""

    rows: tuple[BusBandwidth, ...]
    problems: tuple[str, ...]
    """Lines of the table that cannot be read, and what the program said when it failed."""
    wrong: int | None
    average_gb_s: float | None
    is_fast_enough: bool | None
    """Against the NCCL_TESTS_MIN_BW of the run; None if it had none."""
    ranks: int
    hosts: int
    log: NcclLog
    plugin: str
    """Versions of aws-ofi-nccl, and the libfabric providers that it chose, as its log names them; "" if not."""


def read_nccl_tests(path: Path) -> NcclTests:
    """The run whose output is the file ``path``. Raises UsageError for a file that has not exactly one table."""
    return parse_nccl_tests(read_regular(path, limit_bytes=_OUTPUT_BYTES).decode(errors="replace"), str(path))


def parse_nccl_tests(text: str, source: str) -> NcclTests:
    """The run that printed ``text``; ``source`` names it in errors. Raises as read_nccl_tests does."""
    text = _LABEL.sub("", text.replace("\r\n", "\n"))
    headers = list(_HEADER.finditer(text))
    if not headers:
        raise UsageError(f"{source}: has no table of nccl-tests (a line '#  size  count  type ...')", hint=_HINT)
    if len(headers) > 1:
        message = f"{source}: has {counted(len(headers), 'table')}, expected one"
        hint = f"{_HINT}; started by srun or mpirun, a build without MPI=1 prints a table for each process"
        raise UsageError(message, hint=hint)
    header = headers[0].group().split()
    if "#wrong" not in header:
        message = f"{source}: its table has no column #wrong but {', '.join(header[1:])}"
        raise UsageError(message, hint="run nccl-tests 2.12 or later, which counts the wrong values")
    last = _LAST.search(text)
    average = _AVERAGE.search(text)
    rows, problems = _rows(text, headers[0].end(), header.count("#wrong"))
    devices = _DEVICE.findall(text)
    return NcclTests(
        rows=tuple(rows),
        problems=(*problems, *(line.strip() for line in _FAILURE.findall(text)[:1])),
        wrong=int(last[1]) if last else None,
        average_gb_s=_finite(average[1]) if average else None,
        is_fast_enough=average[2] == "OK" if average and average[2] else None,
        ranks=len({rank for rank, _host in devices}),
        hosts=len({host for _rank, host in devices}),
        log=read_nccl_log(text),
        plugin=", ".join(
            part
            for name, found in (("aws-ofi-nccl ", _PLUGIN.findall(text)), ("provider ", _PROVIDER.findall(text)))
            if (part := name + " and ".join(sorted(set(found)))) != name
        ),
    )


def _rows(text: str, start: int, measurements: int) -> tuple[list[BusBandwidth], list[str]]:
    """The table's rows from ``start`` on, and the lines of it that cannot be read."""
    rows: list[BusBandwidth] = []
    problems: list[str] = []
    first = text.count("\n", 0, start) + 1
    for number, line in enumerate(text[start:].splitlines(), start=first):
        if not _BEGIN.match(line):
            continue
        found = _ROW.match(_TIME_OF_DAY.sub("", line))
        try:
            rows.extend(_measured(found, measurements))
        except ValueError:
            problems.append(f"line {number}: {' '.join(line.split())}")
    return rows, problems


def _measured(row: re.Match[str] | None, measurements: int) -> Iterator[BusBandwidth]:
    """The measurements of a row. Raises ValueError for figures that are not those of the header's columns.

    Where a collective is measured in place alone, the row leaves out the first of two.
    """
    if row is None:
        raise ValueError
    figures = (row[6] or "").split()
    width = len(figures) // measurements
    places: tuple[Literal["out of place", "in place"], ...] = ("out of place", "in place")
    if measurements == 1 or len(figures) == _MEASURED:
        places, width = places[1:], len(figures)
    if width not in (_MEASURED, 2 * _MEASURED) or width * len(places) != len(figures):
        raise ValueError(figures)
    for at, place in enumerate(places):
        time, _algbw, busbw, wrong = figures[at * width : at * width + _MEASURED]
        yield BusBandwidth(
            dtype=row[3],
            op=row[4],
            size_bytes=int(row[1]),
            place=place,
            microseconds=_finite(time),
            busbw_gb_s=_finite(busbw),
            wrong=None if wrong == "N/A" else int(_finite(wrong.rstrip("*"))),
        )


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value


def judge_nccl_tests(tests: NcclTests) -> tuple[Check, ...]:
    """Whether the run ended, its values were right, a plugin of libfabric's carried them, and fast enough if asked."""
    ended = [*tests.problems]
    if tests.wrong is None:
        ended.append(f"it ends after {counted(len(tests.rows), 'measurement')}, without the number of wrong values")
    elif not tests.rows:
        ended.append("the table has no row")
    connections = sum(count for way, count in tests.log.connections.items() if way.startswith("NET/"))
    checks = [
        problems_check("nccl-tests ran to its end", ended, expected=counted(len(tests.rows), "measurement")),
        problems_check("nccl-tests found no wrong value", list(_wrong(tests)), expected="0 wrong values"),
        problems_check(
            "NCCL's log of nccl-tests names the plugin",
            list(_passed_by(tests)),
            expected=f"{counted(connections, 'connection')} via {tests.plugin or 'aws-ofi-nccl'}",
        ),
    ]
    if tests.is_fast_enough is not None:
        found = "unknown" if tests.average_gb_s is None else f"{tests.average_gb_s:g} GB/s"
        checks.append(
            Check(
                name="nccl-tests reached the bandwidth of NCCL_TESTS_MIN_BW",
                passed=tests.is_fast_enough,
                found=f"{found} on average",
                expected="at least 90 % of it",
            )
        )
    return tuple(checks)


def _wrong(tests: NcclTests) -> Iterator[str]:
    for row in tests.rows:
        if row.wrong:
            yield f"{row.dtype} {row.op} of {size_in_words(row.size_bytes)} {row.place}: {row.wrong} wrong values"
    if tests.wrong and not any(row.wrong for row in tests.rows):
        yield f"{tests.wrong} wrong values"
    if tests.rows and all(row.wrong is None for row in tests.rows):
        yield "no value was looked at: run it without -c 0"


def _passed_by(tests: NcclTests) -> Iterator[str]:
    """Why the data may have taken another way; ranks of one node may, as long as some took the network."""
    if not tests.log.networks:
        yield "no line of NCCL's log names a network: run it with NCCL_DEBUG=INFO, its log on the output"
        return
    loaded = set(tests.log.plugins)
    yield from (f"network {name}, which no plugin brought" for name in tests.log.networks if name not in loaded)
    if not tests.plugin:
        yield "no line of aws-ofi-nccl"
    own = {f"NET/{name}" for name in loaded}
    ways = {way: count for way, count in tests.log.connections.items() if way.startswith("NET/")}
    yield from (f"{counted(ways[way], 'connection')} via {way}" for way in sorted(ways.keys() - own))
    if not ways:
        yield "no connection via a network: run it on several nodes, or with NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1"


def describe_nccl_tests(tests: NcclTests) -> dict[str, str]:
    """The run for the report's details."""
    average = "" if tests.average_gb_s is None else f", {tests.average_gb_s:g} GB/s on average"
    where = f"{counted(tests.ranks, 'rank')} on {counted(tests.hosts, 'host')}{average}"
    return {"nccl-tests": where, "plugin of nccl-tests": tests.plugin}
