# SPDX-License-Identifier: BSD-3-Clause
"""What py-rattler 0.28 leaves unsaid of the files that it links: that a cached one was cut short, that two clash."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from rattler import RepoDataRecord

_CLOBBERS = "__clobbers__"
"""Where rattler puts the files of a package that another package's stand in the place of, by the package's name."""
_SHOWN = 5


class _File(msgspec.Struct, kw_only=True):
    path: str = msgspec.field(name="_path")
    path_type: str
    size_in_bytes: int | None = None


class _Paths(msgspec.Struct):
    paths: list[_File]


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
        content = msgspec.json.decode((folder / "info/paths.json").read_bytes(), type=_Paths)
        files = [one for one in content.paths if one.path_type == "hardlink" and one.size_in_bytes is not None]
        return any((folder / one.path).stat().st_size != one.size_in_bytes for one in files)
    except (OSError, msgspec.MsgspecError):  # absent or not readable: rattler unpacks it again
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
