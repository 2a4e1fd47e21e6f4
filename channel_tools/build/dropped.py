# SPDX-License-Identifier: BSD-3-Clause
"""Finds what a build left in its prefix that its package does not have: empty folders, modes other than 0644 and 0755.

Packages list files, so clients make a folder only for a file in it. py-rattler-build 0.73 packs a file with the mode
0755 if anyone may execute it, else 0644 (crates/rattler_build_core/src/packaging). Neither is said anywhere.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from channel_tools.build.special_files import shown_name
from channel_tools.system.document import decode_json

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

_PREFIXES = "bld/*/host_env*"
_META = "conda-meta"
_PACKED = (0o644, 0o755)
_WRITE = 0o222
"""Bits that may be missing: installers protect files that way, and clients have to replace prefixes in them."""
_SHOWN = 5


def dropped_notes(output: Path) -> tuple[str, ...]:
    """Sentences on what the prefix in the engine's ``output`` folder has and the package will not have.

    To be called when the script has ended and the prefix still exists. Files of the host environment do not count.
    """
    notes: list[str] = []
    for prefix in sorted(output.glob(_PREFIXES)):
        owned = _files_of_packages(prefix)
        if folders := sorted(_empty_folders(prefix)):
            notes.append(
                f"its package has no empty folders, so these are left out: {_shown(folders)}; "
                "put a file into each, or have the program make them"
            )
        if modes := sorted(_other_modes(prefix, owned, granted=_granted_to_all())):
            notes.append(f"its package has only the modes 0644 and 0755, so these are changed: {_shown(modes)}")
    return tuple(notes)


def _files_of_packages(prefix: Path) -> set[str]:
    owned: set[str] = set()
    for record in (prefix / _META).glob("*.json"):
        content = decode_json(record.read_bytes())
        owned.update(map(str, (content.get("files") or ()) if isinstance(content, dict) else ()))
    return owned


def _empty_folders(prefix: Path) -> Iterator[str]:
    for folder, folders, files in os.walk(prefix):
        if not folders and not files and Path(folder) != prefix:
            yield shown_name(folder, prefix)


def _other_modes(prefix: Path, owned: Collection[str], *, granted: int) -> Iterator[str]:
    for folder, _folders, files in os.walk(prefix):
        for path in (Path(folder, name) for name in files):
            name, mode = path.relative_to(prefix).as_posix(), path.lstat().st_mode
            if name in owned or name.startswith(f"{_META}/") or not stat.S_ISREG(mode):
                continue
            mode = stat.S_IMODE(mode)
            packed = _PACKED[bool(mode & 0o111)]
            if mode & ~packed & ~granted or packed & ~mode & ~_WRITE:
                yield f"{shown_name(path, prefix)} ({mode:04o})"


def _granted_to_all() -> int:
    """The permissions that every new file has here because of the umask, such as the group's to write."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    umask = next(line.split()[1] for line in status.splitlines() if line.startswith("Umask:"))
    return 0o022 & ~int(umask, 8)


def _shown(names: list[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
