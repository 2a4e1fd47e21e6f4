# SPDX-License-Identifier: BSD-3-Clause
"""``make test-clients`` fails where a client is missing, and where a test skips for want of what it needs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import TEST_TIMEOUT_S

pytestmark = [pytest.mark.integration, pytest.mark.slow]

_ROOT = Path(__file__).parents[2]


def run(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """``python -m tests.clients``; with its temporary files in ``folder`` pytest removes none of earlier runs."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CHANNEL_TOOLS_TEST_")}
    command = [
        sys.executable,
        "-m",
        "tests.clients",
        "-p",
        "no:cacheprovider",
        f"--basetemp={folder / 'pytest'}",
        *arguments,
    ]
    return subprocess.run(
        command, cwd=_ROOT, env=kept | variables, capture_output=True, text=True, timeout=TEST_TIMEOUT_S, check=False
    )


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("", "no client is named"),
        ("/nowhere/conda", "/nowhere/conda: cannot be started"),
        ("/bin/false", "/bin/false --version: exit code 1"),
    ],
)
def test_a_client_that_is_missing_is_an_error(program: str, said: str, tmp_path: Path) -> None:
    done = run(tmp_path, CHANNEL_TOOLS_TEST_CONDA=program)
    assert done.returncode == 1
    assert said in done.stderr


def test_a_test_that_skips_for_want_of_records_is_an_error(tmp_path: Path) -> None:
    smithy = tmp_path / "conda-smithy"
    smithy.write_text("#!/bin/sh\necho 1.0\n")
    smithy.chmod(0o755)
    done = run(tmp_path, "-k", "gives and vectorclass", CHANNEL_TOOLS_TEST_CONDA_SMITHY=str(smithy))
    assert done.returncode == 1, done.stdout
    assert f"conda-smithy: 1.0 ({smithy})" in done.stdout
    _before, said, tests = done.stdout.partition(
        "skipped for want of a program that was named, or of what its tests need:"
    )
    assert said, done.stdout
    assert "vectorclass" in tests
