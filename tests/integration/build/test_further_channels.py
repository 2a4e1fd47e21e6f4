# SPDX-License-Identifier: BSD-3-Clause
"""``-c`` for builds: requirements from further channels, which the channel, the lock and the package then name."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

from tests.integration.foundation.test_conda_forge_foundation import (
    BASE,
    add_newer,
    content_of,
    make_tree,
    stand_in,  # noqa: F401 - a fixture
    tool,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.integration.conftest import Served

pytestmark = pytest.mark.integration

EMPTY = '{"info": {}, "packages": {}, "packages.conda": {}}'
ABOVE = """\
schema_version: 1
package: {name: above, version: '1.0'}
build: {noarch: generic, number: 0, script: cat $PREFIX/share/base $PREFIX/share/lab > $PREFIX/share/above}
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


def inputs_of(package: Path) -> Mapping[str, str]:
    about = json.loads(content_of(package, "info/about.json", part="info"))
    found: Mapping[str, str] = about["extra"]["channel_tools"]["inputs"]
    return found


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
        (package,) = (tree / "output/channel/noarch").glob("above-*.conda")
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
    assert (tmp_path / "env" / "share" / "lab").read_text() == "lab\n"
