# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from channel_tools.requests.environment import InstallRequest
from channel_tools.requests.validate import JobRequest, ValidateRequest
from channel_tools.system.errors import UsageError


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"on": "slurm", "emit": "pbs"}, "--on runs the validation, --emit only writes a script"),
        ({"to": Path("job.sh")}, "-o without --emit"),
        ({"nodes": 2}, "--nodes is only for jobs"),
        ({"ranks_per_node": 2}, "--ranks-per-node is only for jobs"),
        ({"time": "01:00:00"}, "--time is only for jobs"),
        ({"submit_options": ("-q",)}, "--submit-option is only for jobs"),
        ({"local_scratch": "/local"}, "--local-scratch is only for jobs"),
    ],
    ids=["both", "file", "nodes", "ranks", "time", "option", "scratch"],
)
def test_options_of_a_job_are_for_a_job(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        JobRequest(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fail_on_drop": True}, "--fail-on-drop without --history"),
        ({"details": True, "as_json": True}, "--details prints tables, --json prints only JSON"),
        ({"all_variants": True, "prefix": Path("env")}, "--all-variants validates the local channel's variants"),
        (
            {"job": JobRequest(on="slurm", local_scratch="/local"), "prefix": Path("env")},
            "--local-scratch installs into a new folder",
        ),
        ({"job": JobRequest(on="slurm"), "ranks": 3}, "--ranks is for this machine"),
    ],
    ids=["drop", "details", "variants", "scratch", "ranks"],
)
def test_options_that_contradict_each_other_are_no_request(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ValidateRequest(**options)


def test_ranks_are_those_of_this_machine_or_of_all_nodes() -> None:
    assert [ValidateRequest().rank_count, ValidateRequest(ranks=5).rank_count] == [2, 5]
    assert ValidateRequest(job=JobRequest(on="slurm")).rank_count == 4
    assert ValidateRequest(job=JobRequest(emit="pbs", nodes=3, ranks_per_node=8)).rank_count == 24


def test_only_a_job_that_is_submitted_or_written_has_a_scheduler() -> None:
    jobs = [JobRequest(), JobRequest(on="job"), JobRequest(on="slurm"), JobRequest(emit="pbs")]
    assert [job.scheduler for job in jobs] == [None, None, "slurm", "pbs"]
    assert [job.is_asked for job in jobs] == [False, True, True, True]


def test_the_command_of_a_job_has_the_same_options() -> None:
    request = ValidateRequest(
        install=InstallRequest(stack="udp", channels=("a", "b"), python="3.13", pytorch="2.12"),
        prefix=Path("env"),
        timeout_s=90.0,
        keep=True,
        history=True,
        fail_on_drop=True,
        details=True,
        job=JobRequest(on="slurm"),
    )
    assert " ".join(request.words()) == (
        "--channel a --channel b --python 3.13 --pytorch 2.12 --prefix env --timeout 90.0 "
        "--keep --history --fail-on-drop --details"
    )
    scratch = ValidateRequest(all_variants=True, as_json=True, job=JobRequest(on="pbs", local_scratch="$TMPDIR"))
    assert list(scratch.words()) == ["--all-variants", "--json", "--local-scratch", "$TMPDIR"]
