# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from pathlib import Path

import pytest

from channel_tools.requests.launch import ScriptRequest
from channel_tools.system.errors import UsageError


def test_a_script_is_run_in_the_folder_of_the_command() -> None:
    assert ScriptRequest(words=("train.py",)).folder == Path.cwd()


def test_the_hosts_of_a_job_script_are_the_schedulers() -> None:
    assert ScriptRequest(words=("train.py",), hosts_file=Path("hosts")).emit is None
    with pytest.raises(UsageError, match="--hosts and --emit together"):
        ScriptRequest(words=("train.py",), hosts_file=Path("hosts"), emit="slurm")
