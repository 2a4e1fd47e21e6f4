# SPDX-License-Identifier: BSD-3-Clause
"""What the documents say exists: their links, the commands and options they name, the folders of the layout."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("recipes/*/README.md")])
GROUPS = {"channel", "env", "export", "foundation", "mirror", "sources", "token"}


@cache
def help_of(command: tuple[str, ...]) -> str:
    result = subprocess.run(
        [sys.executable, "-m", "channel_tools", *command, "--help"], capture_output=True, text=True, check=False
    )
    return result.stdout if result.returncode == 0 else ""


def named_commands(document: Path) -> set[str]:
    """``channel_tools ...`` in code: indented lines and between back quotes."""
    text = document.read_text(encoding="utf-8")
    lines = [line.strip() for line in text.splitlines() if line.startswith("    ")]
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
        for name in words[depth - 1].split("|"):
            text = help_of((*words[: depth - 1], name))
            assert text, f"{command}: no such command"
            for option in [word for word in words[depth:] if word.startswith("-")]:
                assert re.search(rf"(?<![\w-]){re.escape(option)}(?![\w-])", text), f"{command}: no option {option}"


def test_the_layout_is_as_the_readme_says() -> None:
    table = (ROOT / "README.md").read_text().partition("## Layout")[2].partition("## More")[0]
    folders = re.findall(r"^\| `([a-z_]+)/` \|", table, re.MULTILINE)
    assert folders
    assert [name for name in folders if not (ROOT / name).is_dir()] == []
