# SPDX-License-Identifier: BSD-3-Clause
"""MPICH under its own names and those of the MPICH ABI, with compiler wrappers that find the prefix.

The wrappers call the conda compilers by name and not by ``$CC``, which people set to ``mpicc`` itself; ``MPICH_CC`` and
``MPICH_CXX`` choose another, as in every MPICH. Debian names the libraries otherwise than the ABI on which MPICH and
its relatives agreed, also inside: what is linked with ``libmpich.so.12`` would not start on another MPI with the same
ABI, a site's Cray MPICH among them.
"""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING

from channel_tools.foundation.repairs.elf import dynamic_elf_files, edit_elf
from channel_tools.foundation.repairs.layout import files_in, relative_to_tree, step_error, way_up
from channel_tools.foundation.repairs.pkgconfig import relocatable_pkgconfig
from channel_tools.foundation.repairs.scripts import FIND_PREFIX
from channel_tools.foundation.repairs.toolchain import conda_triple

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from channel_tools.foundation.model import Repair, RepairContext

VERSION = 2
"""Raised with each change of what a step here makes of a tree."""

_SUFFIX = ".mpich"
_WRAPPERS = {"mpicc": ("CC", "cc"), "mpicxx": ("CXX", "c++")}
_FORTRAN = re.compile(r"mpif\w+$|.*\.mod$|mpif\.h$|mpiof\.h$")
_LIBMPI_LINKS = ("libmpi.so", "libmpi.so.12")
_PREFIX_LINES = re.compile(r"^prefix=.*\nexec_prefix=.*\nsysconfdir=.*\nincludedir=.*\nlibdir=.*\n", re.MULTILINE)
_PACKAGE_FOLDERS = {"include/mpich": "include", "lib/mpich/include": "include", "lib/mpich/lib": "lib"}
_LIBRARIES: Mapping[str, str] = {"libmpich": "libmpi", "libmpichcxx": "libmpicxx", "libmpichfort": "libmpifort"}
_ABI = "12"


def relocate_mpich(tree: Path, context: RepairContext) -> None:
    """Bring Debian's MPICH into the shape that programs built elsewhere expect of an MPICH installation."""
    _use_plain_names(tree / "bin")
    _drop_fortran_compiling(tree)
    _move_headers(tree, context)
    for program, (variable, compiler) in _WRAPPERS.items():
        wrapper = tree / "bin" / program
        if not wrapper.is_file():
            raise step_error(context, f"expected the compiler wrapper bin/{program}")
        name = f"{conda_triple(context)}-{compiler}"
        wrapper.write_text(_relocatable_wrapper(wrapper.read_text(), variable, name, context))
    if not (tree / "lib" / "libmpich.so.12").exists():
        raise step_error(context, "expected lib/libmpich.so.12")
    for link in _LIBMPI_LINKS:
        (tree / "lib" / link).unlink(missing_ok=True)  # Debian has some of them since 4.2
        (tree / "lib" / link).symlink_to("libmpich.so.12")


def _use_plain_names(folder: Path) -> None:
    """Debian's alternatives choose among MPIs; a prefix has one."""
    for path in sorted(folder.glob(f"*{_SUFFIX}")):
        plain = path.with_name(path.name.removesuffix(_SUFFIX))
        if path.is_symlink():
            plain.symlink_to(path.readlink().as_posix().removesuffix(_SUFFIX))
            path.unlink()
        else:
            path.rename(plain)


def _drop_fortran_compiling(tree: Path) -> None:
    # the foundation has no Fortran compiler; the library for programs that are already built stays
    for path in list(files_in(tree)):
        if _FORTRAN.match(path.name):
            path.unlink()


def _move_headers(tree: Path, context: RepairContext) -> None:
    headers = tree / "include" / "mpich"
    if not (headers / "mpi.h").is_file():
        raise step_error(context, "expected include/mpich/mpi.h")
    # up to 4.0 lib/mpich has a link to the headers; later it has them, the file for pkg-config, and links to libraries
    folder, package = headers.resolve(), tree / "lib" / "pkgconfig" / "mpich.pc"
    text = package.read_text()
    if package.is_symlink():
        text = relocatable_pkgconfig(text, up=way_up(relative_to_tree(package, tree)), multiarch=context.multiarch)
    for path in list(folder.iterdir()):
        path.rename(tree / "include" / path.name)
    headers.unlink() if headers.is_symlink() else headers.rmdir()
    package.unlink()
    shutil.rmtree(tree / "lib" / "mpich")
    for old, new in _PACKAGE_FOLDERS.items():
        text = text.replace(f"${{prefix}}/{old}", f"${{prefix}}/{new}")
    package.write_text(text)


def _relocatable_wrapper(text: str, variable: str, compiler: str, context: RepairContext) -> str:
    folders = (
        f'{FIND_PREFIX}exec_prefix="$prefix"\nsysconfdir="$prefix/etc/mpich"\n'
        'includedir="$prefix/include"\nlibdir="$prefix/lib"\n'
    )
    text, replaced = _PREFIX_LINES.subn(lambda _: folders, text)
    text, chosen = re.subn(rf'^{variable}="g\S+"$', f'{variable}="{compiler}"', text, flags=re.MULTILINE)
    if (replaced, chosen) != (1, 1):
        raise step_error(
            context, f"the wrapper for {variable} has another shape: {replaced} prefixes, {chosen} compilers"
        )
    return text.replace(" -L/usr/lib", "").replace(" ${wrapper_dl_type_flags}", " -Wl,-rpath,$libdir")


def use_mpich_abi_names(tree: Path, context: RepairContext) -> None:
    """Rename MPICH's libraries and what asks for them; Debian's names stay as links."""
    replaced: list[str] = []
    for debian, name in _LIBRARIES.items():
        _rename(tree / "lib", debian, name, context)
        replaced += ["--replace-needed", f"{debian}.so.{_ABI}", f"{name}.so.{_ABI}"]
    edit_elf(replaced, [path for path, info in dynamic_elf_files(tree) if info.needed])


def _rename(folder: Path, debian: str, name: str, context: RepairContext) -> None:
    libraries = [path for path in folder.glob(f"{debian}.so.{_ABI}.*") if not path.is_symlink()]
    if len(libraries) != 1:
        raise step_error(context, f"expected one lib/{debian}.so.{_ABI}.*, found {len(libraries)}")
    others = [other for other in folder.iterdir() if other.is_symlink() and other.readlink().name == libraries[0].name]
    path = libraries[0].rename(folder / libraries[0].name.replace(debian, name, 1))
    for other in others:
        other.unlink()
        other.symlink_to(path.name)
    edit_elf(["--set-soname", f"{name}.so.{_ABI}"], [path])
    for link in (f"{name}.so", f"{name}.so.{_ABI}", f"{debian}.so", f"{debian}.so.{_ABI}"):
        (folder / link).unlink(missing_ok=True)
        (folder / link).symlink_to(path.name)


STEPS: dict[str, Repair] = {
    "relocate_mpich": relocate_mpich,
    "use_mpich_abi_names": use_mpich_abi_names,
}
