# SPDX-License-Identifier: BSD-3-Clause
"""conda and micromamba go on with environments of this program, and it with theirs: nothing asked for is lost."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from channel_tools.conda.specs import read_spec, spec_name
from channel_tools.system.settings import CACHE_VARIABLE
from tests.support.command_line import run_tool
from tests.support.processes import TEST_TIMEOUT_S
from tests.support.programs import program
from tests.unit.environments.conftest import make_channel
from tests.unit.environments.toychannel import ToyChannel

pytestmark = pytest.mark.integration


@dataclass(frozen=True, kw_only=True, slots=True)
class Client:
    """A program that installs packages, with one of its solvers where it has several."""

    name: str
    solver: str = ""

    def run(self, *words: str, prefix: Path, channel: ToyChannel) -> str:
        command = [program(self.name), *words, "--prefix", str(prefix)]
        takes_channels = ("create", "install", "update", *(("remove",) if self.name == "conda" else ()))
        if words[0] in takes_channels:
            command += ["--override-channels", "--channel", channel.address]
        environ = {
            **os.environ,
            "HOME": str(prefix.parent),
            "CONDA_PKGS_DIRS": str(prefix.parent / "pkgs"),
            "CONDA_ALWAYS_YES": "true",
            "MAMBA_ALWAYS_YES": "true",
            **({"CONDA_SOLVER": self.solver} if self.solver else {}),
        }
        done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=TEST_TIMEOUT_S)
        if self.solver and f"({self.solver}) but it was not recognized" in done.stderr:
            pytest.skip(f"this conda has no solver {self.solver}")
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


CLIENTS = (
    *(Client(name="conda", solver=solver) for solver in ("rattler", "classic", "libmamba")),
    Client(name="micromamba"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Environment:
    """An environment that a client and this program change in turns, and the channel that it is from."""

    client: Client
    channel: ToyChannel
    prefix: Path

    def theirs(self, *words: str) -> str:
        return self.client.run(*words, prefix=self.prefix, channel=self.channel)

    def ours(self, *words: str) -> str:
        folder = self.prefix.parent
        environ = {CACHE_VARIABLE: str(folder / "cache")}
        done = run_tool("env", words[0], self.prefix, *words[1:], cwd=folder, environ=environ)
        assert done.returncode == 0, done.stderr
        return done.stdout

    @property
    def versions(self) -> dict[str, str]:
        records = [json.loads(path.read_text()) for path in (self.prefix / "conda-meta").glob("*.json")]
        return {str(record["name"]): str(record["version"]) for record in records}

    @property
    def packages(self) -> set[str]:
        return {*self.versions}

    @property
    def asked_for(self) -> set[str]:
        """What the client says that the environment was asked for, each in the same form from all clients."""
        exported = yaml.safe_load(self.theirs("env", "export", "--from-history"))
        return in_one_form(exported["dependencies"])


def in_one_form(specs: list[str]) -> set[str]:
    return {str(read_spec(spec)) for spec in specs}


def make_environment(folder: Path, client: Client) -> Environment:
    """None yet, in a folder of its own, with a channel of its own."""
    toy = make_channel(folder / "channel")
    toy.add("other", depends=["needed"], index=False)
    toy.add("needed")
    return Environment(client=client, channel=toy, prefix=folder / "env")


@pytest.fixture(params=CLIENTS, ids=lambda client: f"{client.name}-{client.solver}".rstrip("-"))
def client(request: pytest.FixtureRequest) -> Client:
    chosen: Client = request.param
    program(chosen.name)
    return chosen


def test_a_client_removes_from_ours_what_it_is_told_to_and_nothing_else(tmp_path: Path, client: Client) -> None:
    env = make_environment(tmp_path, client)
    env.ours("create", "tool >=1", "other", "-c", str(env.channel.root))
    env.ours("add", "library >=2")
    assert env.asked_for == {"other", "tool >=1", "library >=2"}
    env.theirs("remove", "other")
    assert env.packages == {"tool", "library"}
    env.theirs("remove", "tool")
    assert env.packages == {"library"}
    env.ours("add", "other")
    assert env.packages == {"library", "other", "needed"}
    env.theirs("remove", "needed")
    assert env.packages == {"library"}
    assert env.asked_for == {"library >=2"}


def test_a_client_adds_to_ours_and_updates_it_as_its_own(tmp_path: Path, client: Client) -> None:
    left = []
    for maker in ("theirs", "ours"):
        env = make_environment(tmp_path / maker, client)
        if maker == "ours":
            env.ours("create", "tool", "library <3", "-c", str(env.channel.root))
        else:
            env.theirs("create", "tool", "library <3")
        env.theirs("install", "other")
        before = env.versions
        env.channel.add("library", version="2.5", index=False)
        env.channel.add("needed", version="2.0")
        env.theirs("update", "--all")
        after = env.versions
        env.theirs("remove", "tool")
        left.append((before, after, env.versions, env.asked_for))
    made_by_theirs, made_by_ours = left
    assert made_by_ours == made_by_theirs
    before, after, finally_there, asked_for = made_by_ours
    assert before == {"tool": "1.0", "library": "2.0", "other": "1.0", "needed": "1.0"}
    assert after == before | {"library": "2.5", "needed": "2.0"}
    assert finally_there.keys() == {"library", "other", "needed"}
    # conda's classic solver forgets the version where it removes another package
    assert {spec_name(spec) for spec in asked_for} == {"library", "other"}


def test_ours_adds_to_what_a_client_was_asked_for(tmp_path: Path, client: Client) -> None:
    env = make_environment(tmp_path, client)
    env.theirs("create", "tool", "library<3")
    env.ours("add", "other")
    env.ours("update")
    assert env.packages == {"tool", "library", "other", "needed"}
    env.ours("add", "needed")
    env.theirs("remove", "tool")
    env.ours("update")
    assert env.packages == {"library", "other", "needed"}
    env.theirs("remove", "other")
    assert env.packages == {"library", "needed"}
    revisions = json.loads(env.theirs("list", "--revisions", "--json"))
    # a revision that only asks for more lists all packages, which micromamba leaves out
    unchanged = [4] if client.name == "conda" else []
    assert [len(row["install"]) for row in revisions] == [2, 2, *unchanged, 0, 0]


def test_ours_updates_what_a_client_made_within_what_that_was_asked_for(tmp_path: Path, client: Client) -> None:
    env = make_environment(tmp_path, client)
    env.theirs("create", "library<2", "other")
    env.channel.add("library", version="1.5", index=False)
    env.channel.add("needed", version="2.0")
    env.ours("update")
    assert env.versions == {"library": "1.5", "other": "1.0", "needed": "2.0"}


def test_ours_lists_and_exports_what_a_client_was_asked_for(tmp_path: Path, client: Client) -> None:
    env = make_environment(tmp_path, client)
    env.theirs("create", "tool", "library<2")
    env.theirs("install", "other>=1")
    env.theirs("remove", "tool")
    wanted = {"library <2", "other >=1"}
    listed = json.loads(env.ours("list", "--json"))
    assert {package["name"] for package in listed["packages"]} == {"library", "other", "needed"}
    assert in_one_form([spec for specs in listed["requested"].values() for spec in specs]) == wanted
    exported = yaml.safe_load(env.ours("export", "--from-history"))
    assert exported["channels"] == [env.channel.address]
    assert in_one_form(exported["dependencies"]) == wanted


def test_a_client_goes_on_with_ours_whatever_that_was_asked_for(tmp_path: Path, client: Client) -> None:
    env = make_environment(tmp_path, client)
    by_address = env.channel.archive("other").as_uri()
    env.ours("create", by_address, "library[build_number=0]", "tool * 0*", "-c", str(env.channel.root))
    env.theirs("remove", "tool")
    assert env.packages == {"library", "other", "needed"}


def test_ours_goes_on_with_theirs_whatever_that_was_asked_for(tmp_path: Path, client: Client) -> None:
    env = make_environment(tmp_path, client)
    env.theirs("create", "library[build_number=0]", "tool=1.*=0*")
    env.ours("add", "other")
    env.ours("remove", "tool")
    assert env.packages == {"library", "other", "needed"}


def test_ours_removes_from_theirs_the_same_as_the_client(tmp_path: Path, client: Client) -> None:
    left = []
    for remover in ("theirs", "ours"):
        env = make_environment(tmp_path / remover, client)
        env.theirs("create", "tool", "other")
        remove = env.ours if remover == "ours" else env.theirs
        remove("remove", "library")
        remove("remove", "other")
        left.append(env.packages)
    assert left == [set(), set()]
