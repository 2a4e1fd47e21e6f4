# SPDX-License-Identifier: BSD-3-Clause
"""The steps of RELEASING.md on a copy of the tree: the changelog's section, what is built, and what stops a release."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
VENV = Path(sys.prefix)
VERSION = "987.6.5"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """What git knows of this tree, committed in a repository of its own, with one change that waits for a release."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    copy = tmp_path / "tree"
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).exists() and not name.startswith("changes/+"):
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name)
    (copy / "changes" / "+answer.added.md").write_text("`plan` says the answer.\n")
    _git(copy, "init", "--quiet")
    _commit(copy)
    return copy


def _git(tree: Path, *words: str) -> str:
    who = ("-c", "user.name=tests", "-c", "user.email=tests@example.invalid")
    return subprocess.run(["git", *who, *words], cwd=tree, capture_output=True, text=True, check=True).stdout


def _commit(tree: Path) -> None:
    _git(tree, "add", "--all")
    _git(tree, "commit", "--quiet", "--message=as it is")


def _make(tree: Path, target: str, version: str = VERSION) -> subprocess.CompletedProcess[str]:
    installed = ("-o", str(VENV / ".installed"))
    words = ["make", "--no-print-directory", *installed, target, f"VENV={VENV}", f"VERSION={version}"]
    return subprocess.run(words, cwd=tree, capture_output=True, text=True, check=False)


def test_a_release_is_made_and_checked(tree: Path) -> None:
    assert _make(tree, "changelog").returncode == 0
    changelog = tree / "CHANGELOG.md"
    assert re.search(rf"\n## {VERSION} \([-\d]+\)\s+### Added\s+- `plan` says the answer\.\n", changelog.read_text())
    assert not (tree / "changes" / "+answer.added.md").exists()
    changelog.write_text(re.sub(rf"## {VERSION} \(.*\)", f"## {VERSION} (2001-01-01)", changelog.read_text()))
    _commit(tree)

    result = _make(tree, "release-python")

    assert result.returncode == 0, result.stderr
    dist = tree / "output" / "release"
    wheel, source = dist / f"channel_tools-{VERSION}-py3-none-any.whl", dist / f"channel_tools-{VERSION}.tar.gz"
    assert result.stdout.count(f"installed, it says channel_tools {VERSION}") == 2
    assert result.stdout.count("PASSED") == 2
    with zipfile.ZipFile(wheel) as archive:
        assert {name.split("/")[0] for name in archive.namelist()} == {
            "channel_tools",
            f"channel_tools-{VERSION}.dist-info",
        }
    with tarfile.open(source) as files:
        assert {"recipes", "variants", "patches", "tests", "docs"} <= {name.split("/")[1] for name in files.getnames()}
    assert f"## {VERSION} (2001-01-01)" not in changelog.read_text()
    assert _git(tree, "diff", "--name-only").split() == [
        "CHANGELOG.md",
        "channel_tools/__init__.py",
        "recipes/channel_tools/recipe.yaml",
    ]
    made = _make(tree, "release-conda")
    assert made.returncode == 0, made.stderr
    assert len(list(dist.glob(f"channel_tools-{VERSION}-*.conda"))) == 1


def _as_it_is(_tree: Path) -> None:
    """A change waits."""


def _no_section(tree: Path) -> None:
    (tree / "changes" / "+answer.added.md").unlink()
    _commit(tree)


def _a_changed_file(tree: Path) -> None:
    with (tree / "CHANGELOG.md").open("a") as file:
        file.write(f"\n## {VERSION} (2001-01-01)\n")
    _no_section(tree)
    (tree / "README.md").write_text("changed")


@pytest.mark.parametrize(
    ("version", "prepare", "message"),
    [
        ("1.2", _as_it_is, "VERSION must have three numbers (VERSION=0.3.0), got '1.2'"),
        (
            VERSION,
            _as_it_is,
            "changes/ has files that are in no section of CHANGELOG.md (1, first +answer.added.md): make",
        ),
        (VERSION, _no_section, f"CHANGELOG.md has no section '## {VERSION} (DATE)': make changelog VERSION={VERSION}"),
        (VERSION, _a_changed_file, "these files have changes that are not committed:\n M README.md"),
    ],
    ids=["number", "waiting", "section", "changed"],
)
def test_what_is_not_ready_is_named_and_nothing_changes(
    tree: Path, version: str, prepare: Callable[[Path], None], message: str
) -> None:
    prepare(tree)
    before = _git(tree, "status", "--porcelain")

    result = _make(tree, "release-python", version)

    assert result.returncode != 0
    assert f"release: {message}" in result.stderr
    assert _git(tree, "status", "--porcelain") == before
    assert not (tree / "output").exists()
