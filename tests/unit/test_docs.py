# SPDX-License-Identifier: BSD-3-Clause
"""What the documents say exists: their links, the commands and options they name, the folders of the layout."""

from __future__ import annotations

import re
import shlex
from functools import cache
from pathlib import Path

import pytest
from typer.testing import CliRunner

from channel_tools.cli.app import app_for
from tests.support.shell_blocks import shell_blocks

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted(
    [
        *ROOT.glob("*.md"),
        *(path for folder in ("docs", "benchmarks", "tests") for path in (ROOT / folder).glob("**/*.md")),
        *ROOT.glob("recipes/*/README.md"),
    ]
)
GROUPS = {"attest", "channel", "env", "export", "foundation", "mirror", "sources", "token"}


@cache
def help_of(command: tuple[str, ...]) -> str:
    words = [*command, "--help"]
    result = CliRunner().invoke(app_for(words), words)
    return result.stdout if result.exit_code == 0 else ""


def named_commands(document: Path) -> set[str]:
    """``channel_tools ...`` in code: indented lines and between back quotes."""
    text = document.read_text(encoding="utf-8")
    lines = [line.strip() for block in shell_blocks(text) for line in block.text.splitlines()]
    quoted = re.findall(r"`([^`]+)`", text)
    starts = [piece.partition("#")[0].strip() for piece in (*lines, *quoted)]
    return {piece for piece in starts if re.match(r"channel_tools [a-z-]", piece)}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)[^)]*\)", document.read_text(encoding="utf-8"))
    local = [target for target in targets if "://" not in target]
    assert [target for target in local if not (document.parent / target).exists()] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_commands_and_their_options_exist(document: Path) -> None:
    for command in sorted(named_commands(document)):
        words = shlex.split(command.replace("\\|", "|"))[1:]
        if words[0].startswith("-"):
            continue
        depth = 2 if words[0] in GROUPS and len(words) > 1 else 1
        depth += words[:2] == ["mirror", "keys"] and len(words) > depth
        for name in words[depth - 1].split("|"):
            text = help_of((*words[: depth - 1], name))
            assert text, f"{command}: no such command"
            for option in [word for word in words[depth:] if word.startswith("-")]:
                assert re.search(rf"(?<![\w-]){re.escape(option)}(?![\w-])", text), f"{command}: no option {option}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_drawn_folder_has_one_entry_in_each_line(document: Path) -> None:
    lines = document.read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if len(re.findall("[├└]─", line)) > 1] == []


def test_the_paths_that_a_newcomer_is_sent_to_exist() -> None:
    """Files below the tree or the program; what has a word in capitals stands for the writer's own name."""
    quoted = re.findall(r"`([\w.*-]+/[\w./*-]+\.[a-z]+)`", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    named = [path for path in quoted if not re.search(r"[A-Z]{4,}", path)]
    assert len(named) > 10
    assert [path for path in named if not any(any(base.glob(path)) for base in (ROOT, ROOT / "channel_tools"))] == []


@pytest.mark.parametrize(
    ("title", "base"),
    [("| folder |", ROOT), ("| folder of `channel_tools/` |", ROOT / "channel_tools")],
    ids=["top", "program"],
)
def test_the_folders_are_those_of_the_map(title: str, base: Path) -> None:
    table = (ROOT / "CONTRIBUTING.md").read_text().partition(title)[2].partition("\n\n")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    folders = [name for row in rows for name in re.findall(r"`([a-z_]+)/`", row)]
    assert folders
    assert [name for name in folders if not (base / name).is_dir()] == []
    ours = {path.name for path in base.iterdir() if path.is_dir() and any(path.rglob("*.py"))}
    assert base == ROOT or ours <= set(folders)
