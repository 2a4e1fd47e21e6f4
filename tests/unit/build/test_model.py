# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from channel_tools.build.model import BuildJob, decode, encode


def test_a_job_reaches_another_machine_as_it_was() -> None:
    job = BuildJob(
        file_name="toy-1.0-h1_0.conda", subdir="linux-64", recipe_folder=Path("/recipes/toy"), waits_for=("a.conda",)
    )
    assert decode(encode(job), BuildJob) == job


def test_what_is_no_job_is_no_job() -> None:
    with pytest.raises(msgspec.MsgspecError):
        decode(b'{"file_name": 3}', BuildJob)
