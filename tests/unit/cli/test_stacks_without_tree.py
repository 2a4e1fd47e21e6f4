# SPDX-License-Identifier: BSD-3-Clause
"""The commands on stacks in a folder without a tree: a channel or an environment has what they must know."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.command_line import output_of
from tests.support.packages import make_conda
from tests.unit.matrix.toytree import write_tree

STACKS = b"""\
default_stack: toy
stacks:
  toy:
    extends: base
    install: ["toy >=1"]
    overrides: {base: {patches: patches/base}}
"""
BASE = b"""\
default_stack: base
stacks:
  base:
    description: sums over gloo
    packages: [base]
    install: [base]
    validate: {method: distributed, backend: gloo, launcher: torchrun, dtypes: [float32], libraries: []}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with nothing but a channel: a site's stack that extends one of its upstream's."""
    here = tmp_path / "here"
    here.mkdir()
    files = {"share/channel_tools/variants/stacks.yaml": STACKS}
    files["share/channel_tools/upstreams/up/variants/stacks.yaml"] = BASE
    publish(here, "channel", stacks_package(tmp_path, files), *toys(tmp_path))
    publish(here, "bare", toys(tmp_path)[0])
    return here


def stacks_package(folder: Path, files: dict[str, bytes]) -> Path:
    return make_conda(folder, "channel_tools-stacks", subdir="noarch", files=files, index={"noarch": "generic"})


def toys(folder: Path) -> list[Path]:
    return [make_conda(folder, name) for name in ("toy", "base")]


def publish(folder: Path, channel: str, *packages: Path) -> None:
    output_of(folder, "publish", *map(str, packages), "--to", channel, "--foundation", "conda-forge")


def installed(folder: Path, *arguments: str) -> set[str]:
    result = json.loads(output_of(folder, "env", "create", *arguments, "--json"))
    return {row["name"] for row in result["packages"]}


def test_a_channel_says_what_its_stacks_install(folder: Path) -> None:
    assert installed(folder, "env", "--variant", "toy", "-c", "channel") == {"toy", "base", "channel_tools-stacks"}
    assert "examined as the stack toy" in output_of(folder, "doctor", "env")
    lines = output_of(folder, "launch", "--prefix", "env", "--dry-run", "train.py")
    assert lines.splitlines()[-1].endswith("/bin/python train.py")
    assert "'nix' is not a stack" in output_of(
        folder, "env", "create", "e", "--variant", "nix", "-c", "channel", code=2
    )
    assert sorted(path.name for path in folder.iterdir()) == ["bare", "channel", "env"]


def test_an_environment_of_no_stack_is_not_taken_for_one_in_silence(folder: Path) -> None:
    installed(folder, "part", "toy", "channel_tools-stacks", "-c", "channel")
    said = output_of(folder, "doctor", "part")
    assert "2 packages, but those of no stack; examined as the default stack toy" in " ".join(said.split())
    assert f"channel_tools doctor --stack NAME {folder}/part" in " ".join(said.split())
    assert "of no stack" not in output_of(folder, "doctor", "part", "--stack", "toy")


def test_an_environment_says_what_its_stacks_are(folder: Path) -> None:
    installed(folder, "env", "toy", "base", "channel_tools-stacks", "-c", "channel")
    lines = output_of(folder, "launch", "--prefix", "env", "--dry-run", "train.py", "--epochs", "2")
    assert lines.splitlines()[-1].endswith("/bin/python train.py --epochs 2")
    assert "examined as the stack toy" in output_of(folder, "doctor", "env")
    script = output_of(folder, "launch", "--prefix", "env", "--emit", "slurm", "train.py")
    assert "--prefix" in script
    assert "--stack" not in script  # the environment says it on the job's host, too
    assert "--root" not in script


def test_an_environment_made_from_names_takes_the_stacks_of_its_channel_and_stays_as_it_is(folder: Path) -> None:
    installed(folder, "env", "toy", "base", "-c", "channel")
    before = sorted(path.name for path in (folder / "env/conda-meta").iterdir())
    assert "examined as the stack toy" in output_of(folder, "doctor", "env")
    lines = output_of(folder, "launch", "--prefix", "env", "--dry-run", "train.py")
    assert lines.splitlines()[-1].endswith("/bin/python train.py")
    assert sorted(path.name for path in (folder / "env/conda-meta").iterdir()) == before
    installed(folder, "other", "toy", "-c", "bare")
    said = output_of(folder, "doctor", "other", code=2)
    assert "nothing here says what a stack is" in said
    assert "bare: has no package channel_tools-stacks" in said
    (folder / "channel").rename(folder / "gone")
    said = output_of(folder, "doctor", "env", code=2)
    assert f"{folder}/channel" in said


OWN = (
    BASE
    + b"""\
  toy:
    description: sums over MPI
    packages: [toy]
    install: [toy]
    validate: {method: distributed, backend: mpi, launcher: mpiexec, dtypes: [float32], libraries: []}
"""
)


@pytest.fixture
def both(tmp_path: Path) -> Path:
    """A folder with a channel of two stacks that share nothing, within a tree whose default stack is another."""
    here = tmp_path / "tree" / "here"
    write_tree(tmp_path / "tree")
    here.mkdir()
    stacks = stacks_package(tmp_path, {"share/channel_tools/variants/stacks.yaml": OWN})
    publish(here, "channel", stacks, *toys(tmp_path))
    return here


def test_a_script_is_run_on_the_stack_of_its_environment_not_on_the_default_one_of_a_tree(both: Path) -> None:
    installed(both, "env", "toy", "channel_tools-stacks", "-c", "channel")
    assert "has no mpiexec" in output_of(both, "launch", "--prefix", "env", "--dry-run", "train.py", code=13)
    said = output_of(both, "launch", "--prefix", "env", "--stack", "toy", "--dry-run", "train.py", code=2)
    assert "'toy' is not a stack" in said  # of the tree, in which a stack is named
    installed(both, "bare", "toy", "-c", "channel")
    said = output_of(both, "launch", "--prefix", "bare", "--dry-run", "train.py", code=2)
    assert "bare: is an environment of no stack that carries data" in said
    assert "--stack" in said


def test_an_environment_of_several_stacks_is_one_error(both: Path) -> None:
    installed(both, "env", "toy", "base", "channel_tools-stacks", "-c", "channel")
    said = output_of(both, "launch", "--prefix", "env", "--dry-run", "train.py", code=2)
    assert "env: has the packages of several stacks: base, toy" in said
    assert "say which: --stack base" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("env", "create", "e", "--variant", "toy", "-c", "bare"), "bare: has no package channel_tools-stacks"),
        (("env", "create", "e", "--variant", "toy"), "nothing here says what a stack is"),
        (("env", "create", "e", "--python", "new", "-c", "channel"), "--python new: not a version"),
        (("env", "create", "e", "--pytorch", "2.12t", "-c", "channel"), "--pytorch 2.12t: not a version"),
        (("launch", "train.py"), "nothing here says what a stack is"),
        (("launch", "--prefix", "e", "train.py"), "e: not an environment: no such folder"),
        (("doctor", "e"), "e: not an environment: no such folder"),
        (("doctor", "--root", "."), "not a tree of recipes"),
        (("validate", "--channel", "bare"), "bare: has no package channel_tools-stacks"),
        (("validate", "--as-installed"), "--as-installed without --prefix"),
        (("validate", "--as-installed", "--prefix", "e", "-c", "channel"), "--as-installed installs nothing"),
        (("bench",), "no environment is active and none is given"),
        (("bench", "e"), "e: not an environment"),
    ],
)
def test_what_is_missing_is_named(arguments: tuple[str, ...], said: str, folder: Path) -> None:
    assert said in output_of(folder, *arguments, code=2)


def test_an_environment_that_is_measured_as_it_is_has_all_that_the_stack_needs(folder: Path) -> None:
    installed(folder, "env", "base", "channel_tools-stacks", "-c", "channel")
    said = output_of(folder, "bench", "env", "--stack", "toy", code=2)
    assert "env: lacks what a run of the stack toy needs: toy >=1" in said
    assert "'nix' is not a stack" in output_of(folder, "bench", "env", "--stack", "nix", code=2)


def test_versions_without_recipes_become_specs(folder: Path) -> None:
    found = output_of(folder, "env", "create", "e", "--python", "3.13t", "--pytorch", "2.12", "-c", "channel", code=11)
    assert "python 3.13.* *_cp313t" in found
    assert "pytorch 2.12.*" in found
