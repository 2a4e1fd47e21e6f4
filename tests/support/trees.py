# SPDX-License-Identifier: BSD-3-Clause
"""Trees of files for tests, written and read as a mapping of names."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def make_tree(root: Path, files: Mapping[str, str | bytes]) -> Path:
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
