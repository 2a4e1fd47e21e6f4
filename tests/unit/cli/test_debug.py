# SPDX-License-Identifier: BSD-3-Clause
"""``channel_tools debug`` as a whole process: what of its arguments is an option, and what the command to run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.command_line import run_tool

if TYPE_CHECKING:
    from pathlib import Path


def test_an_option_after_the_package_is_not_run_as_a_command(tmp_path: Path) -> None:
    result = run_tool("debug", "toy", "--output", str(tmp_path), cwd=tmp_path)
    assert result.returncode == 2
    assert result.stderr.splitlines() == [
        "error: --output: stands after the package, where the command begins",
        "hint: give options before the package: channel_tools debug [OPTIONS] toy",
    ]
