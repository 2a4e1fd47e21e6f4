# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec

from channel_tools.publish.third_party.worker import UploadJob
from tests.support.processes import TEST_TIMEOUT_S


def ended(function: str, path: Path) -> subprocess.CompletedProcess[bytes]:
    """The worker, after this job with an address that nobody listens at."""
    arguments: dict[str, str | list[str]] = {"url": "http://127.0.0.1:9", "channels": "ours", "api_key": "a secret"}
    job = UploadJob(function=function, path=str(path), arguments=arguments, limit_s=60)
    worker = [sys.executable, "-m", "channel_tools.publish.third_party.worker"]
    return subprocess.run(
        worker, input=msgspec.json.encode(job), capture_output=True, check=False, timeout=TEST_TIMEOUT_S
    )


def test_what_the_engine_says_is_the_result(tmp_path: Path) -> None:
    done = ended("upload_package_to_quetz", tmp_path / "absent-1.0-0.conda")
    assert (done.returncode, done.stderr) == (0, b"")
    assert "No such file or directory" in msgspec.json.decode(done.stdout, type=str)


def test_a_defect_is_no_answer_of_a_server(tmp_path: Path) -> None:
    done = ended("upload_package_to_nowhere", tmp_path / "absent-1.0-0.conda")
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"upload_package_to_nowhere" in done.stderr
    assert b"a secret" not in done.stderr
