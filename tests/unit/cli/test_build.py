# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command_line import run_tool
from tests.support.toy_tree import write_toy_tree


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--emit", "snakemake"], "--emit snakemake and --output-dir FOLDER go together"),
        (["--output-dir", "workflow"], "--emit snakemake and --output-dir FOLDER go together"),
        (["--on", "slurm", "--emit", "snakemake", "-o", "workflow"], "--emit only writes the workflow"),
        (["--emit", "snakemake", "-o", "recipes"], "contains files that are not part of a workflow of builds"),
    ],
    ids=["nowhere", "nothing", "both", "taken"],
)
@pytest.mark.parametrize("dry_run", [[], ["--dry-run"]], ids=["build", "dry run"])
def test_options_that_contradict_each_other_are_an_error(
    tmp_path: Path, words: list[str], message: str, dry_run: list[str]
) -> None:
    write_toy_tree(tmp_path)
    result = run_tool("build", *words, *dry_run, cwd=tmp_path)
    assert result.returncode == 2
    assert message in result.stderr
    assert not (tmp_path / "output").exists()


def test_an_option_after_the_package_is_not_run_as_a_command(tmp_path: Path) -> None:
    result = run_tool("debug", "toy", "--output", str(tmp_path), cwd=tmp_path)
    assert result.returncode == 2
    assert result.stderr.splitlines() == [
        "error: --output: stands after the package, where the command begins",
        "hint: give options before the package: channel_tools debug [OPTIONS] toy",
    ]
