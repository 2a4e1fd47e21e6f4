# SPDX-License-Identifier: BSD-3-Clause
"""``validate --all-variants`` of a channel that has packages for two Pythons, and nothing that they need."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from channel_tools.channel import add_set, channel_writer
from channel_tools.system.errors import SolveError
from tests.support.command_line import run_tool
from tests.support.packages import make_conda, new_channel, own
from tests.unit.matrix.toytree import FILES, write_tree

VERSIONS = ("3.12", "3.11")
PLUGIN = "recipes/toy-plugin/recipe.yaml"


@pytest.fixture(scope="module")
def root() -> Iterator[Path]:
    """With a short path, as places that other machines see need one."""
    with tempfile.TemporaryDirectory(prefix="variants-") as folder:
        changed = {
            "variants/pins.yaml": FILES["variants/pins.yaml"] + 'pytorch: ["2.13"]\n',
            PLUGIN: FILES[PLUGIN].replace("[python, torch,", "[python, pytorch, torch,"),
        }
        tree = write_tree(Path(folder), changed).root
        (tree / "output").mkdir()
        packages = [
            make_conda(
                tree / "made",
                "toy-plugin",
                build=f"py{number}",
                about=own(f"digest{number}"),
                variant={"python": f"{version}.*", "pytorch": "2.13"},
            )
            for number, version in enumerate(VERSIONS)
        ]
        with channel_writer(new_channel(tree / "output")) as writer:
            add_set(writer, packages)
        yield tree


def test_each_variant_has_its_result_and_the_exit_code_is_that_of_the_worst(root: Path) -> None:
    done = run_tool("validate", "--all-variants", "--json", cwd=root)
    assert done.returncode == SolveError.exit_code, done.stderr
    assert "error: 2 of 2 variants did not pass\n    pytorch 2.13, python 3.12: " in done.stderr
    said = json.loads(done.stdout)
    assert said["reports"] == []
    assert [(one["python"], one["pytorch"], one["passed"]) for one in said["variants"]] == [
        (version, "2.13", False) for version in VERSIONS
    ]
    assert all("toy-meta" in one["error"] for one in said["variants"])
    table = run_tool("validate", "--all-variants", cwd=root).stdout.splitlines()
    assert [line.split() for line in table if line.startswith("3.")] == [
        [version, "2.13", "NOT", "VALIDATED"] for version in VERSIONS
    ]


def test_one_job_validates_all_variants_and_has_time_for_each(root: Path) -> None:
    written = run_tool("validate", "--all-variants", "--emit", "slurm", cwd=root)
    assert written.returncode == 0, written.stderr
    assert "#SBATCH --time=01:00:00\n" in written.stdout
    command = written.stdout.splitlines()[-1]
    assert " validate --on job " in command
    assert command.endswith(" --all-variants")


@pytest.mark.parametrize(
    ("words", "limit"),
    [
        ((), "00:30:00"),
        (("--timeout", "90"), "00:30:00"),
        (("--timeout", "3600"), "01:20:00"),
        (("--timeout", "3600.5"), "01:21:00"),
        (("--timeout", "3600", "--all-variants"), "02:40:00"),
        (("--timeout", "3600", "--time", "01:30:00"), "01:30:00"),
        (("--time", "00:05:00"), "00:05:00"),
    ],
)
def test_a_job_has_time_for_its_run(root: Path, words: tuple[str, ...], limit: str) -> None:
    written = run_tool("validate", "--emit", "slurm", *words, cwd=root)
    assert written.returncode == 0, written.stderr
    assert f"#SBATCH --time={limit}\n" in written.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("--timeout", "3600", "--time", "01:00:00"),
            "--time 01:00:00 ends the job before its run's --timeout of 3600 s",
        ),
        (("--timeout", "inf"), "--timeout inf: a job may take at most 999:59:59"),
        (("--timeout", "3600", "--time", "90"), "--time: found '90', expected HH:MM:SS"),
    ],
    ids=["shorter", "endless", "another form"],
)
def test_a_job_that_would_end_before_its_run_is_refused(root: Path, words: tuple[str, ...], message: str) -> None:
    refused = run_tool("validate", "--emit", "slurm", *words, cwd=root)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert message in refused.stderr


def test_a_job_runs_this_program_whatever_lies_in_the_folder(root: Path, tmp_path: Path) -> None:
    written = run_tool("validate", "--root", str(root), "--emit", "slurm", cwd=tmp_path)
    assert written.returncode == 0, written.stderr
    (tmp_path / "channel_tools.py").write_text("raise SystemExit('of the folder')\n")
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "PBS"))}
    done = subprocess.run(["bash", "-c", written.stdout], env=environ, capture_output=True, text=True, check=False)
    assert "this is not running in a job of Slurm or PBS" in done.stderr


@pytest.mark.parametrize(("scheduler", "directive"), [("slurm", "#SBATCH"), ("pbs", "#PBS")])
def test_a_written_job_asks_for_what_the_user_adds(scheduler: str, directive: str, root: Path) -> None:
    options = ("--submit-option=-A", "--submit-option=fabrics", "--submit-option=--comment=for us")
    written = run_tool("validate", "--emit", scheduler, *options, cwd=root)
    assert written.returncode == 0, written.stderr
    asked = [line for line in written.stdout.splitlines() if line.startswith(directive)]
    assert asked[-1] == f"{directive} -A fabrics '--comment=for us'"


def test_a_job_prints_the_tables_if_its_user_does(root: Path) -> None:
    written = run_tool("validate", "--details", "--emit", "slurm", cwd=root)
    assert " --details" in written.stdout.splitlines()[-1], written.stderr
    refused = run_tool("validate", "--details", "--json", cwd=root)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "--details prints tables, --json prints only JSON" in refused.stderr


def test_all_variants_are_those_of_the_local_channel(root: Path) -> None:
    refused = run_tool("validate", "--all-variants", "--python", "3.11", cwd=root)
    assert refused.returncode == 2
    assert "leave out --channel, --python, --pytorch and --prefix" in refused.stderr
