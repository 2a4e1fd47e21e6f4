# SPDX-License-Identifier: BSD-3-Clause
"""conda goes on with environments of this program, and this program with those of conda: nothing asked for is lost."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from channel_tools.system.settings import CACHE_VARIABLE
from tests.support.command_line import run_tool
from tests.support.processes import TEST_TIMEOUT_S
from tests.support.programs import program
from tests.unit.environments.conftest import make_channel
from tests.unit.environments.toychannel import ToyChannel

pytestmark = pytest.mark.integration

SOLVERS = ("rattler", "classic")


@pytest.fixture
def channel(tmp_path: Path) -> ToyChannel:
    toy = make_channel(tmp_path / "channel")
    toy.add("other", depends=["needed"], index=False)
    toy.add("needed")
    return toy


def conda(*words: str, prefix: Path, solver: str = "rattler") -> str:
    command = [program("conda"), *words, "--prefix", str(prefix)]
    environ = {
        **os.environ,
        "CONDA_PKGS_DIRS": str(prefix.parent / "pkgs"),
        "CONDA_ALWAYS_YES": "true",
        "CONDA_SOLVER": solver,
    }
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=TEST_TIMEOUT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def ours(*words: str, prefix: Path) -> None:
    environ = {CACHE_VARIABLE: str(prefix.parent / "cache")}
    done = run_tool("env", words[0], prefix, *words[1:], cwd=prefix.parent, environ=environ)
    assert done.returncode == 0, done.stderr


def packages(prefix: Path) -> set[str]:
    return {str(json.loads(path.read_text())["name"]) for path in (prefix / "conda-meta").glob("*.json")}


@pytest.mark.parametrize("solver", SOLVERS)
def test_conda_removes_from_ours_what_it_is_told_to_and_nothing_else(
    tmp_path: Path, channel: ToyChannel, solver: str
) -> None:
    program("conda")
    prefix, from_channel = tmp_path / "env", ("--override-channels", "--channel", channel.address)
    ours("create", "tool >=1", "other", "-c", str(channel.root), prefix=prefix)
    ours("add", "library >=2", prefix=prefix)
    exported = conda("env", "export", "--from-history", "--json", prefix=prefix)
    assert json.loads(exported)["dependencies"] == ["other", "tool[version='>=1']", "library[version='>=2']"]
    conda("remove", *from_channel, "other", prefix=prefix, solver=solver)
    assert packages(prefix) == {"tool", "library"}
    conda("remove", *from_channel, "tool", prefix=prefix, solver=solver)
    assert packages(prefix) == {"library"}
    ours("add", "other", prefix=prefix)
    assert packages(prefix) == {"library", "other", "needed"}


@pytest.mark.parametrize("solver", SOLVERS)
def test_ours_adds_to_what_conda_was_asked_for(tmp_path: Path, channel: ToyChannel, solver: str) -> None:
    program("conda")
    prefix, from_channel = tmp_path / "env", ("--override-channels", "--channel", channel.address)
    conda("create", *from_channel, "tool", "library<3", prefix=prefix, solver=solver)
    ours("add", "other", prefix=prefix)
    ours("update", prefix=prefix)
    assert packages(prefix) == {"tool", "library", "other", "needed"}
    ours("add", "needed", prefix=prefix)
    conda("remove", *from_channel, "tool", prefix=prefix, solver=solver)
    ours("update", prefix=prefix)
    assert packages(prefix) == {"library", "other", "needed"}
    conda("remove", *from_channel, "other", prefix=prefix, solver=solver)
    assert packages(prefix) == {"library", "needed"}
    revisions = conda("list", "--revisions", "--json", prefix=prefix)
    assert [len(row["install"]) for row in json.loads(revisions)] == [2, 2, 4, 0, 0]


@pytest.mark.parametrize("solver", SOLVERS)
def test_ours_removes_from_theirs_the_same_as_conda(tmp_path: Path, channel: ToyChannel, solver: str) -> None:
    program("conda")
    from_channel = ("--override-channels", "--channel", channel.address)
    left = []
    for folder in ("theirs", "ours"):
        prefix = tmp_path / folder / "env"
        prefix.parent.mkdir()
        conda("create", *from_channel, "tool", "other", prefix=prefix, solver=solver)
        if folder == "ours":
            ours("remove", "library", prefix=prefix)
            ours("remove", "other", prefix=prefix)
        else:
            conda("remove", *from_channel, "library", prefix=prefix, solver=solver)
            conda("remove", *from_channel, "other", prefix=prefix, solver=solver)
        left.append(packages(prefix))
    assert left == [set(), set()]
