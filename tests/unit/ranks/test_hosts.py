# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import socket
from pathlib import Path

import pytest

from channel_tools.ranks.hosts import hosts_of_this_job, own_host_names, read_hosts, spread_ranks
from channel_tools.system.errors import ConfigError, UsageError


def hosts_file(folder: Path, text: str) -> Path:
    path = folder / "hosts"
    path.write_text(text)
    return path


def test_a_line_is_a_host_with_or_without_a_number_of_ranks(tmp_path: Path) -> None:
    text = "n1\nn2:3  # a comment\nn3 slots=4\n[fd00::5]:2\n\nn1\n"
    assert read_hosts(hosts_file(tmp_path, text)) == {"n1": 2, "n2": 3, "n3": 4, "fd00::5": 2}


@pytest.mark.parametrize(
    ("text", "message", "line"),
    [("n1\nn2 3\n", "found 'n2 3'", 2), ("n1:0\n", "n1: 0 ranks", 1), ("# none\n", "names no host", None)],
    ids=["form", "zero", "empty"],
)
def test_a_file_that_names_no_hosts_is_an_error_with_its_line(
    tmp_path: Path, text: str, message: str, line: int | None
) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        read_hosts(hosts_file(tmp_path, text))
    assert caught.value.line == line


def test_ranks_are_spread_in_blocks_and_hosts_without_any_are_left_out() -> None:
    even = spread_ranks({"n1": 0, "n2": 0, "n3": 0}, 4, own_names=frozenset({"n2"}))
    assert [(host.name, host.ranks, host.is_local) for host in even] == [
        ("n1", 2, False), ("n2", 1, True), ("n3", 1, False),
    ]  # fmt: skip
    stated = spread_ranks({"n1": 2, "n2": 8, "n3": 8}, 5, own_names=frozenset())
    assert [(host.name, host.ranks) for host in stated] == [("n1", 2), ("n2", 3)]
    with pytest.raises(UsageError, match="room for 3 ranks, but 4 are requested"):
        spread_ranks({"n1": 1, "n2": 2}, 4, own_names=frozenset())


def test_a_job_has_the_nodes_that_were_asked_for(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not running in a job"):
        hosts_of_this_job(2, 2, {})
    here = socket.gethostname()
    environ = {"PBS_NODEFILE": str(hosts_file(tmp_path, f"{here}\n"))}
    assert hosts_of_this_job(1, 1, environ) is None
    with pytest.raises(UsageError, match=r"the job has 1 node .*, expected 2"):
        hosts_of_this_job(2, 1, {"PBS_NODEFILE": str(hosts_file(tmp_path, f"{here} slots=2\n"))})
    assert here in own_host_names()
