# SPDX-License-Identifier: BSD-3-Clause
"""Mirroring through the command line; the importing site runs in a network namespace where not even loopback is up."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from channel_tools.channel import Channel, open_channel, verify_channel
from channel_tools.system.files import sha256_of_file
from tests.support.command_line import run_tool
from tests.support.packages import make_conda
from tests.support.processes import RANDOM_KILLS, TEST_TIMEOUT_S
from tests.support.programs import in_namespaces, program
from tests.support.serving import make_token, running
from tests.support.tars import unpack_tar
from tests.support.toy_tree import write_toy_tree
from tests.support.wheelhouse import fill_wheel_cache
from tests.unit.mirror.bundles import add_toys, foreign_channel, listed, toy_channel

pytestmark = pytest.mark.integration


class Tool:
    """The command line in a tree of its own, or with ``tree`` in that folder, which need not have one."""

    def __init__(self, folder: Path, *, tree: Path | None = None) -> None:
        self.folder = folder
        self.tree = tree or folder / "tree"
        if tree is None:
            self.recipe = write_toy_tree(self.tree)

    def __call__(
        self, *words: object, code: int = 0, offline: bool = False, environ: Mapping[str, str] | None = None
    ) -> str:
        result = self.run(*words, offline=offline, environ=environ)
        assert result.returncode == code, result.stderr
        return result.stdout if code == 0 else result.stderr

    def run(
        self, *words: object, offline: bool = False, environ: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        own = {"CHANNEL_TOOLS_CACHE": str(self.folder / "cache"), **(environ or {})}
        if not offline:
            return run_tool(*map(str, words), cwd=self.tree, environ=own)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("CHANNEL_TOOLS_")}
        return subprocess.run(
            [*in_namespaces("net"), sys.executable, "-m", "channel_tools", *map(str, words)],
            cwd=self.tree,
            env={**kept, **own},
            capture_output=True,
            text=True,
            check=False,
            timeout=TEST_TIMEOUT_S,
        )


@pytest.fixture
def tool(tmp_path: Path) -> Tool:
    return Tool(tmp_path)


@pytest.fixture
def channel(tmp_path: Path) -> Channel:
    return toy_channel(tmp_path)


def test_the_far_side_needs_no_network(tmp_path: Path, tool: Tool, channel: Channel) -> None:
    keys, bundle, destination = tmp_path / "keys", tmp_path / "bundle.tar", tmp_path / "destination"
    fingerprint = json.loads(tool("mirror", "keys", "create", "--keys", keys, "--json"))["fingerprint"]
    tool("mirror", "create", "--keys", keys, "--to", bundle, "--channel", channel.path, "--without-tool")
    shutil.move(channel.path, tmp_path / "out of reach")
    tool("mirror", "verify", bundle, "--root-sha256", fingerprint, offline=True)
    words = ("mirror", "import", bundle, "--to", destination, "--root-sha256", fingerprint, "--json")
    address = json.loads(tool(*words, offline=True))["addresses"]["channel"]
    tool("env", "create", "--channel", address, tmp_path / "env", offline=True)
    assert (tmp_path / "env" / "share" / "toy.txt").read_text() == "hello\n"
    assert (tmp_path / "env" / "share" / "zlib.txt").read_text() == "hello\n"


def test_the_far_sides_locks_name_its_own_channel(tmp_path: Path, tool: Tool, channel: Channel) -> None:
    keys, destination = tmp_path / "keys", tmp_path / "destination"
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
    tool("mirror", "import", tmp_path / "bundle", "--to", destination, "--root-sha256", fingerprint, offline=True)
    names = {"conda-lock.yml", "environment.yml", "explicit.txt", "pixi.lock", "pixi.toml"}
    # pip's constraints are versions, of no channel
    assert names | {"pip-constraints.txt"} == {path.name for path in (destination / "locks" / "toy").iterdir()}
    for name in names:
        text = (destination / "locks" / "toy" / name).read_text()
        assert (destination / "channels" / "channel").as_uri() in text
        assert channel.address not in text


@pytest.mark.slow
def test_what_is_exported_for_a_paper_is_made_again_from_a_bundle_in_an_empty_place_without_a_network(
    tmp_path: Path, tool: Tool, channel: Channel
) -> None:
    keys, destination, paper = tmp_path / "keys", tmp_path / "destination", tmp_path / "paper"
    fingerprint = json.loads(tool("mirror", "keys", "create", "--keys", keys, "--json"))["fingerprint"]
    tool("env", "create", tmp_path / "env", "toy", "-c", channel.path)
    tool("export", "paper", tmp_path / "env", "-o", paper)
    add_toys(channel, ["toy"], version="2.0")  # what the channel has later is not meant
    bundle = ("--keys", keys, "--to", tmp_path / "bundle", "-c", channel.path, "--without-tool")
    tool("mirror", "create", *bundle, "--lock", paper / "conda-lock.yml")
    shutil.move(channel.path, tmp_path / "out of reach")
    empty = tmp_path / "another place"
    empty.mkdir()
    for name in ("paper", "bundle"):
        shutil.move(tmp_path / name, empty / name)
    environ = {"CHANNEL_TOOLS_CACHE": str(empty / "cache")}
    words = ("mirror", "import", empty / "bundle", "--to", destination, "--root-sha256", fingerprint, "--json")
    address = json.loads(tool(*words, offline=True, environ=environ))["addresses"]["channel"]
    lock = empty / "paper" / "conda-lock.yml"
    tool("env", "create", empty / "env", "--lock", lock, "-c", address, offline=True, environ=environ)
    again, before = (
        sorted(path.name for path in (place / "env/conda-meta").glob("*.json")) for place in (empty, tmp_path)
    )
    assert again == before == ["toy-1.0-0.json", "zlib-1.0-0.json"]


@pytest.mark.slow
def test_an_import_killed_at_random_moments_leaves_sound_channels_that_the_next_one_completes(tmp_path: Path) -> None:
    rounds = RANDOM_KILLS // 2
    drivers = [start_driver("imports", tmp_path / seed, rounds, seed) for seed in ("1", "2")]
    for outcome in map(outcome_of, drivers):
        assert (outcome["rounds"], outcome["faults"]) == (rounds, [])
        assert outcome["steps"] > rounds


@pytest.mark.slow
def test_a_bundle_whose_making_was_killed_is_completed_by_the_next_run(tmp_path: Path) -> None:
    outcome = outcome_of(start_driver("creates", tmp_path, 20, 1))
    assert (outcome["rounds"], outcome["faults"]) == (20, [])
    assert outcome["steps"] > 30


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "expected"),
    [
        ("disk-full", {"done", "before"}),
        ("disk-full-unasked", {"done", "midway"}),
    ],
)
def test_a_full_disk_breaks_nothing_and_is_said(tmp_path: Path, what: str, expected: set[str]) -> None:
    script = f'{program("mount")} -t tmpfs -o size=20m none "$0" || exit 99; exec "$@"'
    (tmp_path / "disk").mkdir()
    driver = [sys.executable, "-m", "tests.integration.mirror.kills", what, str(tmp_path), str(tmp_path / "disk")]
    command = [*in_namespaces("mount"), "sh", "-c", script, str(tmp_path / "disk"), *driver]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TEST_TIMEOUT_S)
    if result.returncode == 99:
        pytest.skip(f"no small disk can be mounted: {result.stderr}")
    assert result.returncode == 0, result.stderr
    outcome = json.loads(result.stdout)
    assert outcome["faults"] == []
    assert outcome["refusals"] > 3
    assert expected <= set(outcome["outcomes"]) <= expected | {"before"}


def start_driver(*words: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.integration.mirror.kills", *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def outcome_of(driver: subprocess.Popen[str]) -> dict[str, Any]:
    printed, _ = driver.communicate(timeout=TEST_TIMEOUT_S)
    assert driver.returncode == 0
    outcome: dict[str, Any] = json.loads(printed)
    return outcome


def test_from_a_server_with_a_token_to_a_server(tmp_path: Path, tool: Tool) -> None:
    connected, destination = tmp_path / "connected", tmp_path / "destination"
    channel = toy_channel(connected, foundation=["zlib"], build="h1234567_0")
    destination.mkdir()
    reading, writing = make_token(connected, "channel"), make_token(destination, "ours", access="write")
    secrets = tmp_path / "credentials.json"
    fingerprint = json.loads(tool("mirror", "keys", "create", "--keys", tmp_path / "keys", "--json"))["fingerprint"]
    (tmp_path / "work connected").mkdir()
    (tmp_path / "work destination").mkdir()
    with (
        running(connected, work=tmp_path / "work connected") as source,
        running(destination, work=tmp_path / "work destination") as goal,
    ):
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
        assert listed(destination / "ours") == ["toy-1.0-h1234567_0.conda", "zlib-1.0-0.conda"]
        add_toys(channel, ["more"], build="h1234567_0")
        since = ("--since", report["received"], "--to", tmp_path / "second.tar")
        lock = lock_all(channel.path, address, tmp_path / "toy.txt")
        tool("mirror", "update", *create, "--lock", lock, *since, environ=environ)
        tool("mirror", "import", tmp_path / "second.tar", *words, environ=upload)
    assert listed(destination / "ours") == ["more-1.0-h1234567_0.conda", "toy-1.0-h1234567_0.conda", "zlib-1.0-0.conda"]
    assert verify_channel(open_channel(destination / "ours")) == []
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


@pytest.mark.slow
def test_a_machine_with_python_alone_installs_the_tool_and_imports(
    tmp_path: Path, tool: Tool, channel: Channel
) -> None:
    bundle, destination = tmp_path / "bundle.tar", tmp_path / "destination"
    fingerprint = json.loads(tool("mirror", "keys", "create", "--keys", tmp_path / "keys", "--json"))["fingerprint"]
    fill_wheel_cache(tmp_path / "cache" / "mirror" / "wheels", os.uname().machine)
    printed = tool("mirror", "create", "--keys", tmp_path / "keys", "--to", bundle, "-c", channel.path)
    with tarfile.open(bundle) as tar:
        unpack_tar(tar, tmp_path, ("bootstrap.py",))
    assert f"sha256 of bootstrap.py {sha256_of_file(tmp_path / 'bootstrap.py')}" in printed
    words = ["--bundle", bundle, "--to", destination, "--root-sha256"]
    command = [*in_namespaces("net"), sys.executable, "-I", tmp_path / "bootstrap.py", *words]

    def run(root_sha256: str) -> subprocess.CompletedProcess[str]:
        given = list(map(str, [*command, root_sha256]))
        return subprocess.run(given, capture_output=True, text=True, check=False, timeout=TEST_TIMEOUT_S, cwd=tmp_path)

    refused = run("0" * 64)
    assert refused.returncode == 6, refused.stderr
    assert "wrong keys" in refused.stderr
    assert [path.name for path in destination.iterdir()] == ["tool"]
    installed = run(fingerprint)
    assert installed.returncode == 0, installed.stderr
    assert listed(destination / "channels" / "channel") == ["toy-1.0-0.conda", "zlib-1.0-0.conda"]
    theirs = destination / "tool" / "venv" / "bin" / "channel_tools"
    verified = subprocess.run(
        [theirs, "mirror", "verify", bundle, "--to", destination], check=False, capture_output=True
    )
    assert verified.returncode == 0, verified.stderr


def test_sources_and_recipes_come_along(tmp_path: Path, tool: Tool, channel: Channel) -> None:
    with tarfile.open(tmp_path / "upstream.tar", "w") as tar:
        tar.add(__file__, arcname="toy-1.0/toy.py")
    sha256 = sha256_of_file(tmp_path / "upstream.tar")
    source = f"source: [{{url: 'file://{tmp_path}/upstream.tar', sha256: {sha256}}}]\n"
    with tool.recipe.open("a") as stream:
        stream.write(source)
    script = tool.recipe.with_name("build.sh")
    script.write_text("true\n")
    script.chmod(0o755)
    fingerprint = json.loads(tool("mirror", "keys", "create", "--keys", tmp_path / "keys", "--json"))["fingerprint"]
    create = ("--keys", tmp_path / "keys", "-c", channel.path, "--without-tool", "--with-sources")
    tool("mirror", "create", *create, "--to", tmp_path / "bundle")
    since = ("--since", tmp_path / "bundle", "--to", tmp_path / "again", "--json")
    assert json.loads(tool("mirror", "update", *create, *since))["nothing_new"]
    tool("mirror", "import", tmp_path / "bundle", "--to", tmp_path / "destination", "--root-sha256", fingerprint)
    sources = tmp_path / "destination" / "sources"
    assert sorted(path.name for path in sources.iterdir()) == [f"sha256-{sha256}.tar", "tree.tar"]
    with tarfile.open(sources / "tree.tar") as tar:
        unpack_tar(tar, tmp_path / "their tree")
    assert (tmp_path / "their tree" / "recipes" / "toy" / "recipe.yaml").read_text() == tool.recipe.read_text()
    assert os.access(tmp_path / "their tree" / "recipes" / "toy" / "build.sh", os.X_OK)
    theirs = {"CHANNEL_TOOLS_CACHE": str(tmp_path / "their cache"), "CHANNEL_TOOLS_ROOT": str(tmp_path / "their tree")}
    tool("sources", "import", sources / f"sha256-{sha256}.tar", environ=theirs)
    row = json.loads(tool("sources", "list", "--json", environ=theirs))["sources"][0]
    assert row["present"]
    assert Path(row["path"]).read_bytes() == (tmp_path / "upstream.tar").read_bytes()


def test_a_channel_is_mirrored_without_a_tree(tmp_path: Path, channel: Channel) -> None:
    keys, nowhere = tmp_path / "keys", tmp_path / "no tree"
    nowhere.mkdir()
    environ = {"CHANNEL_TOOLS_CACHE": str(tmp_path / "cache")}

    def mirror(*words: str | Path, code: int = 0) -> str:
        result = run_tool("mirror", *words, cwd=nowhere, environ=environ)
        assert result.returncode == code, result.stderr
        return result.stdout or result.stderr

    fingerprint = json.loads(mirror("keys", "create", "--keys", keys, "--json"))["fingerprint"]
    given = ("--keys", keys, "--without-tool")
    mirror("create", "toy", *given, "-c", channel.path, "--to", tmp_path / "bundle")
    imported = ("--to", tmp_path / "destination", "--root-sha256", fingerprint, "--json")
    address = json.loads(mirror("import", tmp_path / "bundle", *imported))["addresses"]["channel"]
    packages = {path.name for path in Path(address.removeprefix("file://")).glob("*/*.conda")}
    assert {"toy-1.0-0.conda"} < packages  # and what it depends on
    since = ("--since", tmp_path / "bundle", "--to", tmp_path / "again")
    assert "has everything" in mirror("update", "toy", *given, "-c", channel.path, *since)
    lock = nowhere / "list.txt"
    files = sorted(channel.path.glob("*/*.conda"))
    lines = [f"{path.as_uri()}#{sha256_of_file(path)}" for path in files if path.name in packages]
    lock.write_text("\n".join(["# platform: linux-64", "@EXPLICIT", *lines]))
    mirror("create", *given, "--lock", lock, "--to", tmp_path / "of a lock")  # from the channels of the lock
    assert {path.name for path in (tmp_path / "of a lock").rglob("*.conda")} == packages
    for words, what in (
        ((), "a stack needs a tree"),
        (("toy",), "for lack of --channel, needs a tree"),
        (("--lock", lock, "--with-sources"), "--with-sources needs a tree"),
    ):
        said = mirror("create", *words, *given, "--to", tmp_path / "none", code=2)
        assert what in said
        assert "--root" in said


_STACKS = b"""\
default_stack: toy
stacks:
  toy:
    description: a toy
    packages: [toy]
    install: [toy]
    validate: {method: distributed, backend: gloo, launcher: torchrun, dtypes: [float32], libraries: []}
"""


def test_a_site_without_a_tree_installs_the_stack_that_a_bundle_brought(tmp_path: Path, channel: Channel) -> None:
    """The commands of docs/how-to/mirror.md, each side in a folder without a tree."""
    files = {"share/channel_tools/variants/stacks.yaml": _STACKS}
    stacks = make_conda(tmp_path, "channel_tools-stacks", subdir="noarch", files=files, index={"noarch": "generic"})
    nowhere, keys = tmp_path / "no tree", tmp_path / "keys"
    nowhere.mkdir()
    environ = {"CHANNEL_TOOLS_CACHE": str(tmp_path / "cache")}

    def here(*words: str | Path) -> str:
        result = run_tool(*words, cwd=nowhere, environ=environ)
        assert result.returncode == 0, result.stderr
        return result.stdout

    here("publish", stacks, "--to", channel.path)
    fingerprint = json.loads(here("mirror", "keys", "create", "--keys", keys, "--json"))["fingerprint"]
    bundle, mirror = tmp_path / "bundle", tmp_path / "mirror"
    here("mirror", "create", "toy", "-c", channel.path, "--keys", keys, "--to", bundle, "--without-tool")
    shutil.move(channel.path, tmp_path / "out of reach")
    site = Tool(tmp_path / "site", tree=nowhere)  # another user, with a cache of their own
    site("mirror", "import", bundle, "--to", mirror, "--root-sha256", fingerprint, offline=True)
    words = ("env", "create", "--variant", "toy", "--channel", mirror / "channels" / "channel", tmp_path / "env")
    made = json.loads(site(*words, "--json", offline=True))
    assert {row["name"] for row in made["packages"]} == {"toy", "zlib", "channel_tools-stacks"}
    assert (tmp_path / "env" / "share" / "toy.txt").read_text() == "hello\n"


def test_what_was_imported_can_be_served(tmp_path: Path, tool: Tool, channel: Channel) -> None:
    foreign_channel(tmp_path / "conda-forge", ["numpy"])
    fingerprint = json.loads(tool("mirror", "keys", "create", "--keys", tmp_path / "keys", "--json"))["fingerprint"]
    both = ("-c", channel.path, "-c", tmp_path / "conda-forge")
    tool("mirror", "create", "--keys", tmp_path / "keys", *both, "--to", tmp_path / "bundle", "--without-tool")
    tool("mirror", "import", tmp_path / "bundle", "--to", tmp_path / "destination", "--root-sha256", fingerprint)
    root = tmp_path / "destination" / "channels"
    (tmp_path / "work").mkdir()
    with running(root, "--public", "channel", "--public", "conda-forge", work=tmp_path / "work") as server:
        ours = f"{server.address}/channel"
        tool("env", "create", "-c", ours, "-c", f"{server.address}/conda-forge", tmp_path / "env")
    assert (tmp_path / "env" / "share" / "toy.txt").read_text() == "hello\n"
