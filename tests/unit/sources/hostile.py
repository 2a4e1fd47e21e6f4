# SPDX-License-Identifier: BSD-3-Clause
"""Git trees that no git command makes: entries that would be written elsewhere, or taken for git's own files."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.unit.sources.toys import git

if TYPE_CHECKING:
    from pathlib import Path

FILE, LINK, FOLDER = "100644", "120000", "40000"
EVIL = b"written where it must not be\n"


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """An entry of a folder: a file or link with ``content``, or a folder with ``below``."""

    name: bytes
    mode: str = FILE
    content: bytes = EVIL
    below: tuple[Entry, ...] | None = None


def named(name: str | bytes) -> tuple[Entry, ...]:
    """A folder with a harmless file and one of this name."""
    return (Entry(name=b"a-file"), Entry(name=os.fsencode(name)))


def nested(depth: int) -> tuple[Entry, ...]:
    """Folders in folders, with a file in the last."""
    entries: tuple[Entry, ...] = (Entry(name=b"file"),)
    for _ in range(depth):
        entries = (Entry(name=b"f" * 200, below=entries),)
    return entries


NAMES = {
    "dot-dot": "..",
    "dot": ".",
    "git": ".git",
    "git-in-capitals": ".GIT",
    "git-with-an-ignored-letter": ".g\u200cit",
    "git-short-name": "git~1",
    "git-short-name-in-capitals": "GIT~1",
    "git-with-a-blank": ".git ",
    "git-with-dots": ".git. .",
    "git-with-a-stream": ".git::$INDEX_ALLOCATION",
}
"""Names that git refuses for any entry, also where it asks nothing but the name."""
HOSTILE: dict[str, tuple[tuple[Entry, ...], str]] = {
    **{f"file-{kind}": (named(name), f"/{ascii(name)[1:-1]}'") for kind, name in NAMES.items()},
    **{
        f"folder-{kind}": ((Entry(name=os.fsencode(name), below=named("x")),), f"/{ascii(name)[1:-1]}")
        for kind, name in NAMES.items()
    },
    "folder-up-and-down": ((Entry(name=b"..", below=(Entry(name=b"..", below=named("x")),)),), ".."),
    "git-behind-a-backslash": (named("x\\.git"), "x\\\\.git"),
    "slash": (named("../escaped"), "../escaped"),
    "slash-inside": (named("more/recipe.yaml"), "more/recipe.yaml"),
    "absolute": (named("/escaped"), "/escaped"),
    "nameless": (named(""), "has no name"),
    "twice": ((Entry(name=b"x"), Entry(name=b"x", content=b"other\n")), "x"),
    "file-and-folder": ((Entry(name=b"x"), Entry(name=b"x", below=named("y"))), "x"),
    "gitmodules-as-a-link": ((Entry(name=b".gitmodules", mode=LINK, content=b"a-file"),), ".gitmodules"),
    "folder-that-is-a-file": ((Entry(name=b"x", mode=FOLDER),), "x"),
    "path-too-long": (nested(30), "4096 bytes"),
}
"""What a folder has in it, and what the error must name; git makes no files of any of them."""
UNSENT = frozenset({"nameless", "folder-that-is-a-file"})
"""What git's own programs cannot even send."""
LINKS: dict[str, tuple[tuple[Entry, ...], str]] = {
    "link-to-a-folder-above": ((Entry(name=b"x", mode=LINK, content=b"../../../escaped"),), "x"),
    "link-to-an-absolute-path": ((Entry(name=b"x", mode=LINK, content=b"/etc/hostname"),), "/etc/hostname"),
}
"""Links that lead out of the tree, which git would make."""
CLASHES: dict[str, tuple[tuple[Entry, ...], str]] = {
    "files": ((Entry(name=b"Recipe.yaml"), Entry(name=b"recipe.yaml")), "Recipe.yaml"),
    "folders": ((Entry(name=b"X", below=named("y")), Entry(name=b"x", below=named("z"))), "X"),
    "letters-of-other-languages": (
        (Entry(name="\u00c4".encode()), Entry(name="\u00e4".encode())),
        "\u00c4",
    ),
}
"""Files that are one where case is not told, which git makes where it is."""


def write_object(repository: Path, kind: str, content: bytes) -> str:
    """Write an object whatever is in it; its name."""
    result = subprocess.run(
        ["git", "hash-object", "-t", kind, "-w", "--stdin", "--literally"],
        cwd=repository,
        input=content,
        capture_output=True,
        check=True,
    )
    return result.stdout.decode().strip()


def write_folder(repository: Path, entries: tuple[Entry, ...]) -> str:
    """Write a tree object with these entries, as they are; its name."""
    content = b""
    for entry in entries:
        if entry.below is None:
            mode, name = entry.mode, write_object(repository, "blob", entry.content)
        else:
            mode, name = FOLDER, write_folder(repository, entry.below)
        content += mode.encode() + b" " + entry.name + b"\0" + bytes.fromhex(name)
    return write_object(repository, "tree", content)


def commit_with(repository: Path, place: str, entries: tuple[Entry, ...], *, tag: str) -> str:
    """Tag a commit that has what HEAD has, and a folder ``hostile`` with these entries below ``place``; its name."""
    lines = git(repository, "ls-tree", "HEAD").splitlines()
    added = f"40000 tree {write_folder(repository, entries)}\thostile"
    if place:
        inner = git(repository, "ls-tree", f"HEAD:{place}").splitlines()
        name = _tree(repository, [*inner, added])
        lines = [line for line in lines if not line.endswith(f"\t{place}")]
        added = f"40000 tree {name}\t{place}"
    commit = git(repository, "commit-tree", "-m", "hostile", _tree(repository, [*lines, added]))
    git(repository, "tag", tag, commit)
    return commit


def _tree(repository: Path, lines: list[str]) -> str:
    result = subprocess.run(
        ["git", "mktree"], cwd=repository, input="\n".join(lines).encode(), capture_output=True, check=True
    )
    return result.stdout.decode().strip()
