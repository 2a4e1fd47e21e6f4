# SPDX-License-Identifier: BSD-3-Clause
"""A channel on a conda-forge foundation: any address with those names will do; here a small one served over HTTP."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from channel_tools.conda.archive import Component, stream_component
from tests.integration.conftest import Served
from tests.support.command_line import run_tool
from tests.support.programs import path_without

pytestmark = [pytest.mark.integration, pytest.mark.slow]

BASE = """\
schema_version: 1
package: {name: base-files, version: '1.0'}
build: {noarch: generic, number: 0, script: mkdir -p $PREFIX/share && echo base > $PREFIX/share/base}
about: {license: BSD-3-Clause}
"""
ABOVE = """\
schema_version: 1
package: {name: above, version: '1.0'}
build: {noarch: generic, number: 0, script: cp $PREFIX/share/base $PREFIX/share/above}
requirements:
  host: [base-files]
  run: [base-files]
tests:
  - script: test "$(cat $PREFIX/share/above)" = base
about: {license: BSD-3-Clause}
"""
STACKS = """\
default_stack: only
stacks:
  only:
    description: one package
    variants: []
    packages: [{name}]
    install: [{name}]
    validate: {{method: switchml}}
"""


def make_tree(folder: Path, name: str, recipe: str) -> Path:
    (folder / "recipes" / name).mkdir(parents=True)
    (folder / "variants").mkdir()
    (folder / "recipes" / name / "recipe.yaml").write_text(recipe)
    (folder / "variants" / "stacks.yaml").write_text(STACKS.format(name=name))
    return folder


def tool(tree: Path, *arguments: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    # a cache of its own: what one test put into the source store must not serve the next
    environ = {"CHANNEL_TOOLS_CACHE": str(tree.parent / "cache"), **variables}
    return run_tool(*arguments, "--root", tree, cwd=tree, environ=environ)


def content_of(package: Path, name: str, *, part: Component = "pkg") -> bytes:
    """A file in a package."""
    found = [stream.read() for member, stream in stream_component(package, part) if member.name == name and stream]
    assert len(found) == 1
    return found[0]


@pytest.fixture
def stand_in(tmp_path: Path, served: Served) -> Path:
    """A channel folder that plays conda-forge; made by this tool itself, on an empty address."""
    tree = make_tree(tmp_path / "base", "base-files", BASE)
    empty = tmp_path / "empty"
    for subdir in ("linux-64", "noarch"):
        (empty / subdir).mkdir(parents=True)
        (empty / subdir / "repodata.json").write_text('{"info": {}, "packages": {}, "packages.conda": {}}')
    with served(empty) as address:
        result = tool(tree, "build", "--foundation", "conda-forge", "--foundation-channel", address)
    assert result.returncode == 0, result.stderr
    return tree / "output" / "channel"


def test_builds_and_installs_with_both_channels(stand_in: Path, served: Served, tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "above", "above", ABOVE)
    with served(stand_in) as address:
        options = ("--foundation", "conda-forge", "--foundation-channel", address)
        built = tool(tree, "build", *options)
        assert built.returncode == 0, built.stderr
        assert [path.name.split("-")[0] for path in (tree / "output/channel/noarch").glob("*.conda")] == ["above"]
        again = tool(tree, "build")  # the channel knows its foundation
        assert "0 to build" in again.stderr, again.stderr
        installed = tool(tree, "env", "create", tmp_path / "env")
        assert installed.returncode == 0, installed.stderr
    assert (tmp_path / "env" / "share" / "above").read_text() == "base\n"
    refused = tool(tree, "build", "--foundation", "registry")
    assert refused.returncode == 4
    assert "was made with the foundation conda-forge at" in refused.stderr


def test_an_address_out_of_reach_names_the_other_foundation(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "above", "above", ABOVE)
    result = tool(tree, "build", "--foundation", "conda-forge", "--foundation-channel", "http://127.0.0.1:9/none")
    assert result.returncode == 5, result.stderr
    assert "http://127.0.0.1:9/none" in result.stderr
    assert "--foundation registry" in result.stderr
    assert "Traceback" not in result.stderr


FETCHED = """\
schema_version: 1
package: {{name: fetched, version: '1.0'}}
source:
  - url: {address}/fetched.txt
    sha256: {sha256}
build: {{noarch: generic, number: 0, script: mkdir -p $PREFIX/share && cp fetched.txt $PREFIX/share/}}
about: {{license: BSD-3-Clause}}
"""


@pytest.mark.parametrize(
    ("content", "code", "message"),
    [
        (b"the same\n", 0, "built fetched-1.0-"),
        (b"cut sh", 6, "got 6 bytes with sha256 "),
        (None, 5, "fetched.txt: HTTP status 404"),
    ],
    ids=["right", "other-bytes", "absent"],
)
def test_a_source_is_what_the_recipe_names(
    stand_in: Path, served: Served, tmp_path: Path, content: bytes | None, code: int, message: str
) -> None:
    sources = tmp_path / "sources"
    sources.mkdir()
    if content is not None:
        (sources / "fetched.txt").write_bytes(content)
    sha256 = hashlib.sha256(b"the same\n").hexdigest()
    with served(sources) as address, served(stand_in) as foundation:
        tree = make_tree(tmp_path / "tree", "fetched", FETCHED.format(address=address, sha256=sha256))
        path = path_without("apt-get", tmp_path / "bin")  # it would fetch the indexes of three of Debian's releases
        result = tool(tree, "build", "--foundation", "conda-forge", "--foundation-channel", foundation, PATH=path)
    assert result.returncode == code, result.stderr
    assert message in result.stderr, result.stderr
    assert ("apt-get is not installed" in result.stderr) is (code != 0)
    assert "Traceback" not in result.stderr
    assert len(list((tree / "output/channel/noarch").glob("*.conda"))) == (1 if code == 0 else 0)


def add_newer(channel: Path, served: Served, tmp_path: Path) -> None:
    """Add base-files 2.0, made elsewhere, to a channel's folder and its index."""
    newer = BASE.replace("'1.0'", "'2.0'").replace("echo base", "echo newer")
    tree = make_tree(tmp_path / "newer", "base-files", newer)
    with served(tmp_path / "empty") as address:
        result = tool(tree, "build", "--foundation", "conda-forge", "--foundation-channel", address)
    assert result.returncode == 0, result.stderr
    made = tree / "output" / "channel" / "noarch"
    for package in made.glob("*.conda"):
        shutil.copyfile(package, channel / "noarch" / package.name)
    for shard in (channel / "noarch").glob("repodata_shards*"):
        shard.unlink()
    for packed in (channel / "noarch").glob("repodata.json.*"):
        packed.unlink()
    for name in ("repodata.json", "run_exports.json"):
        index = json.loads((channel / "noarch" / name).read_bytes())
        index["packages.conda"] |= json.loads((made / name).read_bytes())["packages.conda"]
        write_as_later(channel / "noarch" / name, index)


def write_as_later(path: Path, index: object) -> None:
    """Write an index that is a minute newer than the one there: HTTP's dates, which clients ask with, have seconds."""
    later = path.stat().st_mtime + 60
    path.write_text(json.dumps(index))
    os.utime(path, (later, later))


def test_a_build_has_what_is_locked_and_says_what_is_gone(stand_in: Path, served: Served, tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "above", "above", ABOVE)
    recipe = tree / "recipes" / "above" / "recipe.yaml"
    with served(stand_in) as address:
        options = ("--foundation", "conda-forge", "--foundation-channel", address)
        first = tool(tree, "build", *options)
        assert first.returncode == 0, first.stderr
        assert "locks/conda-forge-linux-64.json: recorded what" in first.stderr
        add_newer(stand_in, served, tmp_path)
        recipe.write_text(ABOVE.replace("number: 0", "number: 1"))
        again = tool(tree, "build")
        assert again.returncode == 0, again.stderr
        (built,) = (tree / "output/channel/noarch").glob("above-*_1.conda")
        assert content_of(built, "share/above") == b"base\n"
        about = json.loads(content_of(built, "info/about.json", part="info"))
        assert about["channels"][-1].rstrip("/") == address
        update = tool(tree, "foundation", "update", "base-files")
        assert update.returncode == 0, update.stderr
        assert "base-files: 1.0 " in update.stdout
        assert "changed: foundation host/base-files 1.0-" in update.stdout
        index = stand_in / "noarch" / "repodata.json"
        write_as_later(index, {"info": {"subdir": "noarch"}, "packages": {}, "packages.conda": {}})
        gone = tool(tree, "build")
    assert gone.returncode == 4, gone.stderr
    assert "noarch/base-files-2.0-" in gone.stderr
    assert "channel_tools foundation update base-files" in gone.stderr
