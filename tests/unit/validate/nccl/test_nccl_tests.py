# SPDX-License-Identifier: BSD-3-Clause
"""The output of nccl-tests and rccl-tests, in the forms that options, launchers and mishaps give it."""

from __future__ import annotations

from pathlib import Path

import pytest

from channel_tools.system.errors import FileAccessError, UsageError
from channel_tools.validate.model import BusBandwidth
from channel_tools.validate.nccl.nccl_tests import (
    describe_nccl_tests,
    judge_nccl_tests,
    parse_nccl_tests,
    read_nccl_tests,
)
from tests.unit.validate.nccl.test_log import CLASSIC, SOCKETS

# as all_reduce_perf 2.13 and later writes it, the times shortened
BEGIN = """\
# nccl-tests version 2.17.9 nccl-headers=22809 nccl-library=22809
# Collective test starting: all_reduce_perf
# nThread 1 nGpus 1 minBytes 8 maxBytes 33554432 step: 64(factor) warmup iters: 1 iters: 20 agg iters: 1 validation: 1
#
# Using devices
#  Rank  0 Group  0 Pid   2041 on    nid001 device  0 [0000:03:00] NVIDIA A100-SXM4-40GB
#  Rank  1 Group  0 Pid   3377 on    nid002 device  0 [0000:03:00] NVIDIA A100-SXM4-40GB
#
#                                                              out-of-place                       in-place          
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong 
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)         
"""  # noqa: W291
ROWS = """\
           8             2     float     sum      -1    25.09    0.00    0.00       0    24.21    0.00    0.00       0
      524288        131072     float     sum      -1    83.40    6.29    6.29       0    82.95    6.32    6.32       0
    33554432       8388608     float     sum      -1   1602.1   20.94   20.94       0   1599.8   20.97   20.97       0
"""
END = """\
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 9.08667
#
# Collective test concluded: all_reduce_perf
"""
WHOLE = BEGIN + CLASSIC + ROWS + END


def verdicts(text: str) -> dict[str, str]:
    """What is found by each failed check."""
    return {
        check.name: check.found for check in judge_nccl_tests(parse_nccl_tests(text, "perf.txt")) if not check.passed
    }


ENDED = "nccl-tests ran to its end"
RIGHT = "nccl-tests found no wrong value"
NAMED = "NCCL's log of nccl-tests names the plugin"
FAST = "nccl-tests reached the bandwidth of NCCL_TESTS_MIN_BW"


def test_a_whole_output_gives_every_measurement_and_passes(tmp_path: Path) -> None:
    path = tmp_path / "perf.txt"
    path.write_text(WHOLE)
    tests = read_nccl_tests(path)
    assert len(tests.rows) == 6
    assert tests.rows[-2:] == (
        BusBandwidth(
            dtype="float", op="sum", size_bytes=33554432, place="out of place", microseconds=1602.1, busbw_gb_s=20.94,
            wrong=0,
        ),
        BusBandwidth(
            dtype="float", op="sum", size_bytes=33554432, place="in place", microseconds=1599.8, busbw_gb_s=20.97,
            wrong=0,
        ),
    )  # fmt: skip
    assert [(check.name, check.passed, check.found) for check in judge_nccl_tests(tests)] == [
        (ENDED, True, "6 measurements"),
        (RIGHT, True, "0 wrong values"),
        (NAMED, True, "4 connections via aws-ofi-nccl 1.6.0, provider cxi"),
    ]
    assert describe_nccl_tests(tests) == {
        "nccl-tests": "2 ranks on 2 hosts, 9.08667 GB/s on average",
        "plugin of nccl-tests": "aws-ofi-nccl 1.6.0, provider cxi",
    }


def as_rccl(text: str) -> str:
    """rccl-tests writes narrower columns, and lines of its own."""
    narrow = text.replace("busbw  #wrong", "busbw #wrong").replace("       0\n", "      0\n")
    return narrow.replace("# Using devices", "rccl-tests: Version develop:1234567\n# Using devices").replace(
        "# Out of bounds",
        "# Errors with asterisks indicate errors that have exceeded the maximum threshold.\n# Out of bounds",
    )


def with_times_of_iterations(text: str) -> str:
    more = "     0.01     0.09     0.09     0.12"
    rows = "".join(f"{row[:85]}{more}{row[85:]}{more}\n" for row in ROWS.splitlines())
    return text.replace(ROWS, rows)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("".join(f"0: {line}\n" for line in WHOLE.splitlines()), id="srun-label"),
        pytest.param(
            "".join(f"{rank:2}: {line}\n" for rank, line in enumerate(WHOLE.splitlines(), 8)), id="wide-label"
        ),
        pytest.param("".join(f"[1,0]<stdout>:{line}\n" for line in WHOLE.splitlines()), id="mpirun-tag-output"),
        pytest.param(WHOLE.replace("\n", "\r\n"), id="dos"),
        pytest.param(as_rccl(WHOLE), id="rccl-tests"),
        pytest.param(with_times_of_iterations(WHOLE), id="-I"),
        pytest.param(
            WHOLE.replace(ROWS, "".join(f"{row}  2026-01-02 03:04:05\n" for row in ROWS.splitlines())), id="-S"
        ),
        pytest.param(BEGIN + ROWS + CLASSIC + END, id="log-after-the-table"),
        pytest.param(BEGIN + ROWS.replace("-1\n", CLASSIC + "-1\n") + CLASSIC + END, id="log-between"),
    ],
)
def test_what_options_and_launchers_add_changes_nothing(text: str) -> None:
    tests, plain = parse_nccl_tests(text, "perf.txt"), parse_nccl_tests(WHOLE, "perf.txt")
    assert (tests.rows, tests.wrong, tests.average_gb_s) == (plain.rows, plain.wrong, plain.average_gb_s)
    assert (tests.ranks, tests.hosts, tests.plugin) == (plain.ranks, plain.hosts, plain.plugin)
    assert verdicts(text) == {}


def test_a_collective_that_is_not_checked_in_place_counts_where_it_is() -> None:
    tests = parse_nccl_tests(WHOLE.replace("       0\n", "     N/A\n"), "perf.txt")
    assert [row.wrong for row in tests.rows] == [0, None] * 3
    assert all(check.passed for check in judge_nccl_tests(tests))


@pytest.mark.parametrize("cut", [pytest.param(99, id="blank-columns"), pytest.param(0, id="no-such-columns")])
def test_a_collective_that_is_measured_in_place_alone_has_one_measurement_a_row(cut: int) -> None:
    rows = "".join(f"{row[:52]}{' ' * 33 if cut else ''}{row[85:]}\n" for row in ROWS.splitlines())
    text = WHOLE.replace(ROWS, rows)
    if not cut:
        text = text.replace("time   algbw   busbw  #wrong     time", "time").replace("out-of-place", "")
    rows_read = parse_nccl_tests(text, "perf.txt").rows
    assert [(row.place, row.busbw_gb_s) for row in rows_read] == [
        ("in place", 0.0),
        ("in place", 6.32),
        ("in place", 20.97),
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            WHOLE.replace("6.29       0", "6.29       3").replace(": 0 OK", ": 3 FAILED"),
            {RIGHT: "float sum of 512 KiB out of place: 3 wrong values"},
            id="wrong",
        ),
        pytest.param(
            WHOLE.replace("6.29       0", "6.29 1.5e+06").replace(": 0 OK", ": 1500000 FAILED"),
            {RIGHT: "float sum of 512 KiB out of place: 1500000 wrong values"},
            id="very-wrong",
        ),
        pytest.param(WHOLE.replace(": 0 OK", ": 7 FAILED"), {RIGHT: "7 wrong values"}, id="wrong-on-another-rank"),
        pytest.param(
            WHOLE.replace("    0.00       0", "    0.00     N/A")
            .replace("       0\n", "     N/A\n")
            .replace("6.29       0", "6.29     N/A")
            .replace("20.94       0", "20.94     N/A"),
            {RIGHT: "no value was looked at: run it without -c 0"},
            id="unchecked",
        ),
        pytest.param(
            WHOLE.partition("# Out of")[0],
            {ENDED: "it ends after 6 measurements, without the number of wrong values"},
            id="no-end",
        ),
        pytest.param(
            WHOLE.partition("   1602.1")[0],
            {
                ENDED: "line 26: 33554432 8388608 float sum -1; "
                "it ends after 4 measurements, without the number of wrong values"
            },
            id="cut-in-a-row",
        ),
        pytest.param(
            WHOLE.replace("82.95    6.32    6.32       0", "nan    nan    nan       0"),
            {ENDED: "line 25: 524288 131072 float sum -1 83.40 6.29 6.29 0 nan nan nan 0"},
            id="no-numbers",
        ),
        pytest.param(
            WHOLE.replace("-1    83.40", "-1nid002:3377:3377 [0] NCCL INFO comm 0x1\n    83.40"),
            {ENDED: "line 25: 524288 131072 float sum -1nid002:3377:3377 [0] NCCL INFO comm 0x1"},
            id="torn-by-another-rank",
        ),
        pytest.param(WHOLE.replace(ROWS, ""), {ENDED: "the table has no row"}, id="no-row"),
        pytest.param(
            WHOLE.partition("    33554432 ")[0]
            + "nid002: Test NCCL failure all_reduce.cu:44 'unhandled system error / '\n",
            {
                ENDED: "nid002: Test NCCL failure all_reduce.cu:44 'unhandled system error / '; "
                "it ends after 4 measurements, without the number of wrong values"
            },
            id="failure",
        ),
        pytest.param(
            WHOLE.replace("9.08667", "9.08667 FAILED"), {FAST: "9.08667 GB/s on average"}, id="slower-than-asked"
        ),
        pytest.param(WHOLE.replace("9.08667", "9.08667 OK"), {}, id="as-fast-as-asked"),
        pytest.param(
            WHOLE.replace(CLASSIC, ""),
            {NAMED: "no line of NCCL's log names a network: run it with NCCL_DEBUG=INFO, its log on the output"},
            id="no-log",
        ),
        pytest.param(
            WHOLE.replace(CLASSIC, SOCKETS),
            {NAMED: "network Socket, which no plugin brought; no line of aws-ofi-nccl; 1 connection via NET/Socket"},
            id="sockets",
        ),
        pytest.param(
            WHOLE.replace(CLASSIC, CLASSIC + SOCKETS),
            {NAMED: "network Socket, which no plugin brought; 1 connection via NET/Socket"},
            id="sockets-on-one-node",
        ),
        pytest.param(
            WHOLE.replace("via NET/AWS Libfabric", "via P2P/CUMEM"),
            {
                NAMED: "no connection via a network: run it on several nodes, or with "
                "NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1"
            },
            id="past-the-network",
        ),
        pytest.param(
            WHOLE.replace("NET/OFI ", "NET/IB "), {NAMED: "no line of aws-ofi-nccl"}, id="another-plugin"
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(text: str, expected: dict[str, str]) -> None:
    assert verdicts(text) == expected


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        pytest.param("", "perf.txt: has no table of nccl-tests", "give the whole output", id="empty"),
        pytest.param("\x00\x01" * 99, "perf.txt: has no table of nccl-tests", "give the whole output", id="binary"),
        pytest.param("execve(): all_reduce_perf: No such file", "has no table", "give", id="no-program"),
        pytest.param(WHOLE + WHOLE, "perf.txt: has 2 tables, expected one", "a build without MPI=1", id="two-tables"),
        pytest.param(
            WHOLE.replace("#wrong", "error"), "has no column #wrong but size, count, type", "2.12 or later", id="old"
        ),
    ],
)  # fmt: skip
def test_what_is_no_output_of_one_run_is_one_error(text: str, message: str, hint: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        parse_nccl_tests(text, "perf.txt")
    assert hint in str(caught.value.hint)


def test_a_folder_is_no_output(tmp_path: Path) -> None:
    with pytest.raises(FileAccessError, match="expected a regular file"):
        read_nccl_tests(tmp_path)
