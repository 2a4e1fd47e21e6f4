# SPDX-License-Identifier: BSD-3-Clause
"""Commands that need no tree of recipes, in a folder that has none."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from rattler.index import index_fs

from channel_tools.foundation.table import load_table
from tests.support.command_line import output_of, run_tool
from tests.support.packages import make_conda, old_format


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty folder with two packages in it."""
    here = tmp_path / "here"
    here.mkdir()
    made = [make_conda(tmp_path, "toy", index={"depends": ["old"]}), old_format(make_conda(tmp_path, "old"))]
    for package in made:
        package.rename(here / package.name)
    return here


def test_packages_are_published_installed_and_maintained(folder: Path) -> None:
    files = ("toy-1.0-0.conda", "old-1.0-0.tar.bz2")
    output_of(folder, "publish", *files, "--to", "channel", "--foundation", "conda-forge")
    output_of(folder, "publish", *files, "--to", "channel", "--dry-run")
    output_of(folder, "channel", "index", "--at", "channel")
    output_of(folder, "channel", "verify", "--at", "channel")
    result = json.loads(output_of(folder, "env", "create", "env", "toy >=1", "-c", "channel", "--json"))
    assert sorted(row["name"] for row in result["packages"]) == ["old", "toy"]
    output_of(folder, "channel", "page", "--at", "channel")
    yank = ("yank", "old", "--at", "channel")
    assert output_of(folder, *yank, "--reason", "wrong").splitlines()[-1].endswith("channel: 1 yanked")
    assert output_of(folder, *yank, "--reason", "wrong").splitlines()[-1].endswith("channel: 0 yanked")
    again = run_tool(*yank, "--reason", "another", cwd=folder)
    assert again.stderr == (
        "all packages that match 'old' are yanked already; the reason that was given first is kept\n"
    )
    output_of(folder, "retain", "--at", "channel", "--keep", "1", "--dry-run")
    output_of(folder, "promote", "main", "testing", "--at", "channel")
    output_of(folder, "sbom", "toy-1.0-0.conda", "--format", "spdx")


def test_the_foundations_table_is_shown(folder: Path) -> None:
    rows = json.loads(output_of(folder, "foundation", "list", "--json"))["packages"]
    assert {row["name"] for row in rows} == {entry.name for entry in load_table().entries}
    assert {row["state"] for row in rows} == {"not made"}


def test_a_channel_of_another_tool_is_adopted_and_damaged_packages_end_with_8(folder: Path) -> None:
    one = make_conda(folder / "channel", "one")
    asyncio.run(index_fs(folder / "channel"))
    adopt = ("channel", "index", "--adopt", "--at", "channel")
    assert "--foundation conda-forge" in output_of(folder, *adopt, code=2)
    assert "channel index --adopt --at channel" in output_of(folder, "channel", "index", "--at", "channel", code=8)
    assert "would be adopted" in output_of(folder, *adopt, "--foundation", "conda-forge", "--dry-run")
    (one.parent / "bad-1.0-0.conda").write_bytes(b"")
    assert "bad-1.0-0.conda: not a complete" in output_of(folder, *adopt, "--foundation", "conda-forge", code=8)
    assert "bad-1.0-0.conda: not a complete" in output_of(folder, *adopt, code=8)
    (one.parent / "bad-1.0-0.conda").unlink()
    [channel] = json.loads(output_of(folder, *adopt, "--json"))["channels"]
    assert (channel["already"], channel["remarks"]) == (True, [])
    output_of(folder, "channel", "verify", "--at", "channel")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("env", "create", "env", "toy"), "no channel is given"),
        (("env", "create", "env", "toy", "-c", ".", "--variant", "udp"), "only one of these says what to install"),
        (("env", "create", "env", "toy", "-c", ".", "--lock", "x.yml"), "only one of these says what to install"),
        (("publish", "toy-1.0-0.conda", "--to", "channel"), "does not say on which foundation"),
        (("publish", "--to", "channel", "--foundation", "registry"), "--foundation without package files"),
        (("channel", "index", "--at", ".", "--dry-run"), "without --adopt"),
        (("publish", "--to", "channel"), "neither this folder nor any above it"),
    ],
)
def test_what_is_missing_is_named(folder: Path, arguments: tuple[str, ...], said: str) -> None:
    assert said in output_of(folder, *arguments, code=2)
