# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from pathlib import Path

import pytest

from channel_tools.system.kernel import count_oom_kills


@pytest.mark.parametrize(
    ("membership", "file", "content", "count"),
    [
        ("0::/slurm/job_7\n", "slurm/job_7/memory.events", "oom 3\noom_kill 2\noom_group_kill 0\n", 2),
        ("3:cpu:/\n2:memory:/slurm/job_7\n", "memory/slurm/job_7/memory.oom_control", "under_oom 0\noom_kill 1\n", 1),
        ("0::/\n", "memory.other", "oom_kill 1\n", 0),
        ("", "memory.events", "oom_kill 1\n", 0),
    ],
    ids=["version 2", "version 1", "not said", "no groups"],
)
def test_kills_of_the_own_group_are_counted(
    tmp_path: Path, membership: str, file: str, content: str, count: int
) -> None:
    (tmp_path / "membership").write_text(membership)
    counted = tmp_path / "mounted" / file
    counted.parent.mkdir(parents=True)
    counted.write_text(content)
    assert count_oom_kills(membership=tmp_path / "membership", mounted=tmp_path / "mounted") == count
