# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from channel_tools.requests.launch import ScriptRequest
from channel_tools.system.errors import UsageError


def test_a_script_is_run_in_the_folder_of_the_command() -> None:
    assert ScriptRequest(words=("train.py",)).folder == Path.cwd()


def test_the_hosts_of_a_job_script_are_the_schedulers() -> None:
    assert ScriptRequest(words=("train.py",), hosts_file=Path("hosts")).emit is None
    with pytest.raises(UsageError, match="--hosts and --emit together"):
        ScriptRequest(words=("train.py",), hosts_file=Path("hosts"), emit="slurm")


def test_a_job_script_has_one_node_for_an_hour_unless_asked() -> None:
    request = ScriptRequest(words=("train.py",), emit="pbs")
    assert (request.node_count, request.time_limit) == (1, "01:00:00")
    request = ScriptRequest(words=("train.py",), emit="pbs", nodes=2, time="00:10:00")
    assert (request.node_count, request.time_limit) == (2, "00:10:00")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"to": Path("job.sh")}, "-o without --emit"),
        ({"nodes": 1}, "--nodes without --emit"),
        ({"time": "01:00:00"}, "--time without --emit"),
        ({"emit": "slurm", "dry_run": True}, "--dry-run and --emit together"),
    ],
    ids=["file", "nodes", "time", "dry run"],
)
def test_what_is_for_a_job_script_starts_no_ranks_and_a_dry_run_writes_none(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        ScriptRequest(words=("train.py",), **options)
