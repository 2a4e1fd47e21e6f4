# SPDX-License-Identifier: BSD-3-Clause
"""Mirroring through the command line; the far side runs in a network namespace where not even loopback is up."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from channel_tools.channel import Channel, open_channel, verify_channel
from tests.integration.serving import make_token, running
from tests.unit.mirror.bundles import add_toys, listed, toy_channel

pytestmark = pytest.mark.integration

_LIMIT_S = 120
_STACKS = """\
default_stack: toy
stacks:
  toy:
    description: toys
    packages: [toy]
    install: [toy]
"""
_RECIPE = """\
schema_version: 1
package: {name: toy, version: '1.0'}
build: {noarch: generic, number: 0}
about: {license: BSD-3-Clause}
"""


class Tool:
    """The command line in a tree of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tree = folder / "tree"
        (self.tree / "recipes" / "toy").mkdir(parents=True)
        (self.tree / "variants").mkdir()
        (self.tree / "recipes" / "toy" / "recipe.yaml").write_text(_RECIPE)
        (self.tree / "variants" / "stacks.yaml").write_text(_STACKS)

    def __call__(
        self, *words: object, code: int = 0, offline: bool = False, environ: Mapping[str, str] | None = None
    ) -> str:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("CHANNEL_TOOLS_")}
        outside = ["unshare", "--user", "--map-root-user", "--net"] if offline else []
        result = subprocess.run(
            [*outside, sys.executable, "-m", "channel_tools", *map(str, words)],
            cwd=self.tree,
            env={**kept, "CHANNEL_TOOLS_CACHE": str(self.folder / "cache"), **(environ or {})},
            capture_output=True,
            text=True,
            check=False,
            timeout=_LIMIT_S,
        )
        assert result.returncode == code, result.stderr
        return result.stdout if code == 0 else result.stderr


@pytest.fixture
def tool(tmp_path: Path) -> Tool:
    return Tool(tmp_path)


@pytest.fixture
def channel(tmp_path: Path) -> Channel:
    return toy_channel(tmp_path)


@pytest.fixture
def needs_namespaces() -> None:
    if shutil.which("unshare") is None:
        pytest.skip("network namespaces need util-linux's unshare")
    refused = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--net", "true"], capture_output=True, text=True, check=False
    )
    if refused.returncode != 0:
        pytest.skip(f"no network namespaces: {refused.stderr.strip()}")


@pytest.mark.usefixtures("needs_namespaces")
def test_the_far_side_needs_no_network(tmp_path: Path, tool: Tool, channel: Channel) -> None:
    keys, bundle, far = tmp_path / "keys", tmp_path / "bundle.tar", tmp_path / "far"
    fingerprint = json.loads(tool("mirror", "keys", "create", "--keys", keys, "--json"))["fingerprint"]
    tool("mirror", "create", "--keys", keys, "--to", bundle, "--channel", channel.path, "--without-tool")
    shutil.move(channel.path, tmp_path / "out of reach")
    tool("mirror", "verify", bundle, "--root-sha256", fingerprint, offline=True)
    words = ("mirror", "import", bundle, "--to", far, "--root-sha256", fingerprint, "--json")
    address = json.loads(tool(*words, offline=True))["addresses"]["channel"]
    tool("env", "create", "--channel", address, tmp_path / "env", offline=True)
    assert (tmp_path / "env" / "share" / "toy.txt").read_text() == "hello\n"
    assert (tmp_path / "env" / "share" / "zlib.txt").read_text() == "hello\n"


@pytest.mark.usefixtures("needs_namespaces")
def test_the_far_sides_locks_name_its_own_channel(tmp_path: Path, tool: Tool, channel: Channel) -> None:
    keys, far = tmp_path / "keys", tmp_path / "far"
    fingerprint = json.loads(tool("mirror", "keys", "create", "--keys", keys, "--json"))["fingerprint"]
    tool("pins", "--channel", channel.path, "-o", tmp_path / "pins")
    lock = tmp_path / "pins" / "conda-lock.yml"
    tool(
        "mirror",
        "create",
        "--keys",
        keys,
        "--to",
        tmp_path / "bundle",
        "-c",
        channel.path,
        "--lock",
        lock,
        "--without-tool",
    )
    shutil.move(channel.path, tmp_path / "out of reach")
    tool("mirror", "import", tmp_path / "bundle", "--to", far, "--root-sha256", fingerprint, offline=True)
    names = {"conda-lock.yml", "environment.yml", "explicit.txt", "pixi.lock", "pixi.toml"}
    assert names == {path.name for path in (far / "locks" / "toy").iterdir()}
    for name in names:
        text = (far / "locks" / "toy" / name).read_text()
        assert (far / "channels" / "channel").as_uri() in text
        assert channel.address not in text


def test_an_import_killed_at_200_random_moments_leaves_sound_channels_that_the_next_one_completes(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-m", "tests.integration.mirror_drivers"]
    drivers = [
        subprocess.Popen([*command, str(tmp_path / seed), "100", seed], stdout=subprocess.PIPE, text=True)
        for seed in ("1", "2")
    ]
    for driver in drivers:
        printed, _ = driver.communicate(timeout=_LIMIT_S)
        assert driver.returncode == 0
        outcome = json.loads(printed)
        assert (outcome["rounds"], outcome["faults"]) == (100, [])
        assert outcome["steps"] > 100


def test_from_a_server_with_a_token_to_a_server(tmp_path: Path, tool: Tool) -> None:
    near, far = tmp_path / "near", tmp_path / "far"
    channel = toy_channel(near, foundation=["zlib"])
    far.mkdir()
    reading, writing = make_token(near, "channel"), make_token(far, "ours", access="write")
    secrets = tmp_path / "credentials.json"
    fingerprint = json.loads(tool("mirror", "keys", "create", "--keys", tmp_path / "keys", "--json"))["fingerprint"]
    (tmp_path / "work near").mkdir()
    (tmp_path / "work far").mkdir()
    with running(near, work=tmp_path / "work near") as source, running(far, work=tmp_path / "work far") as goal:
        secrets.write_text(json.dumps({"127.0.0.1": {"BearerToken": reading}}))
        environ = {"RATTLER_AUTH_FILE": str(secrets)}
        address, target = f"{source.address}/channel", f"{goal.address}/ours"
        create = ("--keys", tmp_path / "keys", "--channel", address, "--without-tool")
        tool("mirror", "create", *create, "--to", tmp_path / "first.tar", environ=environ)
        words = ("--to", target, "--state", tmp_path / "state", "--root-sha256", fingerprint, "--json")
        upload = {"CHANNEL_TOOLS_TOKEN": writing, "RATTLER_AUTH_FILE": str(tmp_path / "write.json")}
        (tmp_path / "write.json").write_text(json.dumps({"127.0.0.1": {"BearerToken": writing}}))
        report = json.loads(tool("mirror", "import", tmp_path / "first.tar", *words, environ=upload))
        assert report["addresses"] == {"channel": target}
        assert listed(far / "ours") == ["toy-1.0-0.conda", "zlib-1.0-0.conda"]
        add_toys(channel, ["more"])
        since = ("--since", report["received"], "--to", tmp_path / "second.tar")
        lock = lock_all(channel.path, address, tmp_path / "toy.txt")
        tool("mirror", "update", *create, "--lock", lock, *since, environ=environ)
        tool("mirror", "import", tmp_path / "second.tar", *words, environ=upload)
    assert listed(far / "ours") == ["more-1.0-0.conda", "toy-1.0-0.conda", "zlib-1.0-0.conda"]
    assert verify_channel(open_channel(far / "ours")) == []
    written = [path.read_text() for path in (tmp_path / "state").rglob("*") if path.name == "conda-lock.yml"]
    assert all(target in text for text in written)
    assert len(written) == 1
    told = [path for path in tmp_path.rglob("*") if path.is_file() and reading.encode() in path.read_bytes()]
    assert told == [secrets]


def lock_all(channel: Path, address: str, file: Path) -> Path:
    """An explicit list of all that the channel has, at its address."""
    rows = json.loads((channel / "linux-64" / "repodata.json").read_bytes())["packages.conda"]
    lines = [f"{address}/linux-64/{name}#{row['sha256']}" for name, row in rows.items()]
    file.write_text("\n".join(["# platform: linux-64", "@EXPLICIT", *lines]) + "\n")
    return file
