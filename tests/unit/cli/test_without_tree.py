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
    output_of(folder, "sbom", "toy-1.0-0.conda")


def test_the_foundations_table_is_shown(folder: Path) -> None:
    rows = json.loads(output_of(folder, "foundation", "list", "--json"))["packages"]
    assert {row["name"] for row in rows} == {entry.name for entry in load_table(subdir="linux-64").entries}
    assert {row["state"] for row in rows} == {"not made"}


def contents_of(channel: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in channel.rglob("*") if path.is_file()}


def test_packages_of_another_tools_channel_make_a_new_one_and_a_damaged_one_none(folder: Path) -> None:
    for name in ("one", "two"):
        made = make_conda(folder / "old", name)
    asyncio.run(index_fs(folder / "old"))
    before = contents_of(folder / "old")
    assert "publish old/*/*.conda --to FOLDER" in output_of(folder, "channel", "index", "--at", "old", code=8)
    files = [str(path.relative_to(folder)) for path in sorted((folder / "old").glob("*/*.conda"))]
    publish = ("publish", *files, "--to", "new", "--foundation", "conda-forge")
    whole = made.read_bytes()
    made.write_bytes(whole[:-1])
    assert f"{made.name}: not a complete" in output_of(folder, *publish, code=6)
    assert list((folder / "new").glob("*/*.conda")) == []
    made.write_bytes(whole)
    output_of(folder, *publish)
    output_of(folder, "channel", "verify", "--at", "new")
    assert {path.name for path in (folder / "new").glob("*/*.conda")} == {Path(file).name for file in files}
    assert contents_of(folder / "old") == before


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("env", "create", "env", "toy"), "no channel is given"),
        (("env", "create", "env", "toy", "-c", ".", "--variant", "udp"), "only one of these says what to install"),
        (("env", "create", "env", "toy", "-c", ".", "--lock", "x.yml"), "only one of these says what to install"),
        (("publish", "toy-1.0-0.conda", "--to", "channel"), "does not say on which foundation"),
        (("publish", "--to", "channel", "--foundation", "registry"), "--foundation without package files"),
        (("publish", "--to", "channel"), "neither this folder nor any above it"),
    ],
)
def test_what_is_missing_is_named(folder: Path, arguments: tuple[str, ...], said: str) -> None:
    assert said in output_of(folder, *arguments, code=2)
