# SPDX-License-Identifier: BSD-3-Clause
"""What py-rattler 0.28 leaves unsaid of the files that it links: that a cached one was cut short, that two clash."""

from __future__ import annotations

from typing import TYPE_CHECKING

from channel_tools.conda.contents import read_path_rows
from channel_tools.system.errors import IntegrityError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from rattler import RepoDataRecord

_CLOBBERS = "__clobbers__"
"""Where rattler puts the files of a package that another package's stand in the place of, by the package's name."""
_SHOWN = 5


def has_cached_file_of_other_size(records: Iterable[RepoDataRecord], package_cache: Path) -> bool:
    """Whether a file of the unpacked packages in the cache has another size than its package says.

    A full disk or a program that wrote into an environment leaves such files; rattler asks only whether they are there.
    """
    return any(
        _has_file_of_other_size(package_cache / f"{record.name.normalized}-{record.version}-{record.build}")
        for record in records
    )


def _has_file_of_other_size(folder: Path) -> bool:
    try:
        rows = read_path_rows((folder / "info/paths.json").read_bytes(), folder)
        sizes = {row.path: row.size_in_bytes for row in rows.values() if row.path_type == "hardlink"}
        return any(size is not None and (folder / path).stat().st_size != size for path, size in sizes.items())
    except (OSError, IntegrityError):  # absent or not readable: rattler unpacks it again
        return False


def clashing_files(prefix: Path) -> str:
    """Which files of which packages are not in the environment, since other packages have files there; "" for none."""
    folder = prefix / _CLOBBERS
    found = [path.relative_to(folder).parts for path in folder.rglob("*") if path.is_symlink() or not path.is_dir()]
    lost = sorted(f"{'/'.join(file)} of {package}" for package, *file in found)
    if not lost:
        return ""
    shown = ", ".join(lost[:_SHOWN]) + (f" and {len(lost) - _SHOWN} more" if len(lost) > _SHOWN else "")
    return f"{prefix}: packages have files of the same name; left out, since another's is there: {shown}"
