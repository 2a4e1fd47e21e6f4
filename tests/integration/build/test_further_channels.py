# SPDX-License-Identifier: BSD-3-Clause
"""``-c`` for builds: requirements from further channels, which the channel, the lock and the package then name."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

from channel_tools.channel import open_channel
from tests.integration.foundation.test_conda_forge_foundation import (
    BASE,
    content_of,
    make_tree,
    stand_in,  # noqa: F401 - a fixture
    tool,
)
from tests.support.command_line import run_tool

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.conftest import Served

pytestmark = [pytest.mark.integration, pytest.mark.slow]

EMPTY = '{"info": {}, "packages": {}, "packages.conda": {}}'
ABOVE = """\
schema_version: 1
package: {name: above, version: '1.0'}
build: {number: 0, script: cat $PREFIX/share/base $PREFIX/share/lab > $PREFIX/share/above}
requirements:
  host: [base-files, lab-files]
  run: [lab-files]
tests:
  - script: test "$(tail -n 1 $PREFIX/share/above)" = lab
about: {license: BSD-3-Clause}
"""
LAB = BASE.replace("base-files", "lab-files").replace("echo base", "echo lab").replace("share/base", "share/lab")


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    """The channel of a lab: its own package, and a base-files that the foundation has, too."""
    empty = tmp_path / "nothing"
    for subdir in ("linux-64", "noarch"):
        (empty / subdir).mkdir(parents=True)
        (empty / subdir / "repodata.json").write_text(EMPTY)
    tree = make_tree(tmp_path / "of-lab", "lab-files", LAB)
    made = tool(tree, "build", "--foundation", "conda-forge", "--foundation-channel", empty)
    assert made.returncode == 0, made.stderr
    return shutil.copytree(tree / "output" / "channel", tmp_path / "served" / "lab").parent


def change_script(tree: Path) -> None:
    recipe = tree / "recipes" / "above" / "recipe.yaml"
    recipe.write_text(recipe.read_text().replace("number: 0", "number: 1"))


def test_requirements_come_from_a_further_channel(
    stand_in: Path,  # noqa: F811
    lab: Path,
    served: Served,
    tmp_path: Path,
) -> None:
    tree = make_tree(tmp_path / "above", "above", ABOVE)
    with served(stand_in) as address, served(lab) as further:
        options = ("--foundation", "conda-forge", "--foundation-channel", address)
        lacking = tool(tree, "build", *options)
        assert lacking.returncode != 0
        assert "the conda-forge foundation has no package of this name" in lacking.stderr
        planned = tool(tree, "plan", "-c", f"{further}/lab", "--json")
        assert planned.returncode == 0, planned.stderr
        built = tool(tree, "build", "-c", f"{further}/lab")
        assert built.returncode == 0, built.stderr
        (package,) = (tree / "output/channel/linux-64").glob("above-*.conda")
        assert json.loads(planned.stdout)["packages"][0]["file_name"] == package.name
        assert content_of(package, "share/above") == b"base\nlab\n"
        about = json.loads(content_of(package, "info/about.json", part="info"))
        assert [one.rstrip("/") for one in about["channels"]][1:] == [f"{further}/lab", address]
        lock = json.loads((tree / "locks" / "conda-forge-linux-64.json").read_text())
        assert sorted(key.rpartition("-1.0-")[0] for key in lock["records"]) == [
            "lab/noarch/lab-files",
            "noarch/base-files",
        ]
        again = tool(tree, "build")  # the channel knows them
        assert "0 to build" in again.stderr, again.stderr
        installed = tool(tree, "env", "create", tmp_path / "env")
        assert installed.returncode == 0, installed.stderr
        rebuilt = tool(tree, "rebuild", "above")
        assert rebuilt.returncode == 0, rebuilt.stdout + rebuilt.stderr
        keys = run_tool("mirror", "keys", "create", "--keys", tmp_path / "keys", cwd=tmp_path)
        assert keys.returncode == 0, keys.stderr
        bundle = (
            "mirror",
            "create",
            "--without-tool",
            "--with-sources",
            "--keys",
            tmp_path / "keys",
            "--to",
            tmp_path / "stick",
        )
        exported = tool(tree, *bundle)
        assert exported.returncode == 0, exported.stderr
        shown = json.loads(
            run_tool("mirror", "keys", "show", "--keys", tmp_path / "keys", "--json", cwd=tmp_path).stdout
        )
    assert (tmp_path / "env" / "share" / "lab").read_text() == "lab\n"
    # from here on nothing is served
    trust = ("--root-sha256", shown["fingerprint"])
    imported = run_tool("mirror", "import", tmp_path / "stick", "--to", tmp_path / "air", *trust, cwd=tmp_path)
    assert imported.returncode == 0, imported.stderr
    air = tmp_path / "air" / "channels"
    assert open_channel(air / "channel").foundation.further == ((air / "lab").as_uri(),)
    change_script(tree)
    offline = ("build", "--offline", "--foundation", "conda-forge", "--foundation-channel", air / "127.0.0.1")
    needing = tool(tree, *offline, "--output", tmp_path / "inside", "-c", f"{further}/lab")
    assert needing.returncode == 5, needing.stderr
    assert f"{further}/lab/noarch/lab-files-1.0-" in needing.stderr
    assert "Traceback" not in needing.stderr
    built = tool(tree, *offline, "--output", tmp_path / "inside", "-c", air / "lab")
    assert built.returncode == 0, built.stderr
    (package,) = (tmp_path / "inside" / "channel" / "linux-64").glob("above-*_1.conda")
    assert content_of(package, "share/above") == b"base\nlab\n"
