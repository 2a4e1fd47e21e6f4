# SPDX-License-Identifier: BSD-3-Clause
"""``channel_tools mirror`` with what it cannot use: one message, the right code, no trace."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from channel_tools.cli.app import app_for
from tests.unit.mirror.bundles import ExportingSite, exporting_site

ZEROS = "0" * 64
RECIPE = """\
schema_version: 1
package: {name: toy, version: '1.0'}
build: {noarch: generic, number: 0}
about: {license: BSD-3-Clause}
"""
TREE = """\
default_stack: toy
stacks:
  toy:
    description: toys
    packages: [toy]
    install: [toy]
"""


class Tool:
    """The command line in this process: many short commands."""

    def __init__(self, tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tree)
        monkeypatch.setenv("CHANNEL_TOOLS_CACHE", str(tree.parent / "cache"))
        monkeypatch.delenv("CHANNEL_TOOLS_ROOT", raising=False)

    def __call__(self, *words: str) -> Result:
        result = CliRunner().invoke(app_for(["mirror"]), ["mirror", *words])
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result

    def json(self, *words: str) -> dict[str, Any]:
        result = self(*words, "--json")
        assert result.exit_code == 0, result.stderr
        value: dict[str, Any] = json.loads(result.stdout)
        return value


@pytest.fixture
def tool(tree: Path, monkeypatch: pytest.MonkeyPatch) -> Tool:
    return Tool(tree, monkeypatch)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> ExportingSite:
    return exporting_site(tmp_path_factory.mktemp("site"))


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "tree" / "recipes" / "toy").mkdir(parents=True)
    (tmp_path / "tree" / "recipes" / "toy" / "recipe.yaml").write_text(RECIPE)
    (tmp_path / "tree" / "variants").mkdir()
    (tmp_path / "tree" / "variants" / "stacks.yaml").write_text(TREE)
    return tmp_path / "tree"


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["create", "--to", "b", "--keys", "nokeys", "--without-tool"], 2, "not a key folder"),
        (["create", "--to", "file/b", "--keys", "KEYS", "--without-tool"], 2, "cannot be written"),
        (["create", "--to", "file", "--keys", "KEYS"], 2, "already exists"),
        (["create", "--to", "b", "--tool-python", "eleven"], 2, "expected a version"),
        (["create", "--to", "b", "--platform", "linux-65"], 2, "is not a platform"),
        (["create", "--to", "b", "--lock", "file"], 3, "not a lock"),
        (["update", "--to", "b", "--since", "nothing"], 2, "no such file"),
        (["update", "--to", "b", "--since", "wrong.json"], 3, "cannot be read as a list of received files"),
        (["verify", "nothing"], 2, "no such file"),
        (["verify", "file"], 6, "damaged: "),
        (["verify", "BUNDLE"], 2, "which keys to trust"),
        (["verify", "BUNDLE", "--root-sha256", ZEROS], 6, "wrong keys: "),
        (["import", "BUNDLE", "--to", "destination", "--root-sha256", ZEROS], 6, "wrong keys: "),
        (["import", "BUNDLE", "--to", "ftp://host/x", "--root-sha256", ZEROS], 2, "a folder or into https://"),
    ],
)
def test_errors_are_one_message(
    tree: Path, site: ExportingSite, tool: Tool, words: list[str], code: int, message: str
) -> None:
    bundle = site.keys.path.parent / "bundle.tar"
    if not bundle.exists():
        site.bundle(bundle)
    (tree / "file").write_text("text")
    (tree / "wrong.json").write_text("{}")
    known = {"BUNDLE": str(bundle), "KEYS": str(site.keys.path)}
    arguments = [known.get(word, word) for word in words]
    if words[0] in {"create", "update"}:
        arguments += ["--channel", site.channels[0].address]
    result = tool(*arguments)
    assert (result.exit_code, result.stdout) == (code, ""), result.stderr
    assert message in result.stderr
    assert site.fingerprint not in result.stderr
    assert sorted(path.name for path in tree.iterdir()) == ["file", "recipes", "variants", "wrong.json"]


def test_results_are_json_on_demand(tree: Path, site: ExportingSite, tool: Tool) -> None:
    assert tool.json("keys", "show", "--keys", str(site.keys.path))["first_fingerprint"] == site.fingerprint
    create = ["--keys", str(site.keys.path), "--channel", site.channels[0].address, "--without-tool", "--to", "made"]
    planned = tool.json("create", *create, "--dry-run")
    assert (planned["planned"]["packages"], planned["made"]) == (2, None)
    assert not (tree / "made").exists()
    made = tool.json("create", *create)["made"]
    assert (made["fetched_files"], made["root_sha256"]) == (2, site.fingerprint)
    words = ["made", "--root-sha256", site.fingerprint]
    verified = tool.json("verify", *words)
    assert (verified["files"], verified["manifest"]["stacks"]) == (made["files"] - 4, ["toy"])
    would = tool.json("import", *words, "--to", "destination", "--dry-run")
    assert would["dry_run"]
    assert not (tree / "destination").exists()
    done = tool.json("import", *words, "--to", "destination")
    assert {**done, "dry_run": True} == would
    assert list(done["addresses"]) == ["channel"]
