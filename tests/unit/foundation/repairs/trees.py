# SPDX-License-Identifier: BSD-3-Clause
"""Unpacked packages as the repair steps meet them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from channel_tools.foundation.model import Entry, RepairContext

if TYPE_CHECKING:
    from pathlib import Path

MULTIARCH = "x86_64-linux-gnu"
TRIPLE = "x86_64-conda-linux-gnu"


def context(name: str = "libdemo", *, subdir: str = "linux-64") -> RepairContext:
    """The context of a step that mends the package ``name``."""
    return RepairContext(
        entry=Entry(name=name, line=1), version="1.2.3", subdir=subdir, multiarch=MULTIARCH, python_version="3.11"
    )


def make_tree(root: Path, files: dict[str, str | bytes]) -> Path:
    """Write ``files`` below ``root``; a text that begins with ``-> `` makes a link. Programs in bin/ are executable."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            path.write_bytes(content)
        elif content.startswith("-> "):
            path.symlink_to(content[3:])
            continue
        else:
            path.write_text(content)
        path.chmod(0o755 if "/bin/" in f"/{name}" else 0o644)
    return root


def tree_state(root: Path) -> dict[str, str]:
    """Every file and link below ``root``: links as ``-> target``, files as their text."""
    found = sorted(path for path in root.rglob("*") if path.is_symlink() or path.is_file())
    return {
        path.relative_to(root).as_posix(): f"-> {path.readlink()}" if path.is_symlink() else path.read_text()
        for path in found
    }
