# SPDX-License-Identifier: BSD-3-Clause
"""Debian's gcc, binutils and glibc headers as conda-forge's compiler packages, cut off from the host's.

gcc finds its parts relative to its own place (it was made relocatable), so the whole toolchain keeps Debian's inner
shape below ``<triple>/``; only ``--sysroot`` has to be said, which small wrappers in ``bin/`` do. The sysroot keeps
Debian's shape too: glibc's linker scripts name absolute paths, which ld looks up below the sysroot.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from channel_tools.foundation.repairs.layout import Placement, drop_unused, native_place, relayout, step_error
from channel_tools.foundation.repairs.scripts import FIND_PREFIX, write_program

if TYPE_CHECKING:
    from pathlib import Path

    from channel_tools.foundation.model import Repair, RepairContext

_TRIPLES = {"linux-64": "x86_64-conda-linux-gnu", "linux-aarch64": "aarch64-conda-linux-gnu"}
_VERSIONED = re.compile(r"-\d+$")
_WRAPPER = """\
#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Runs this environment's {program} with this environment's headers and libraries, not the host's.
{find_prefix}\
exec "$prefix/{triple}/bin/{program}" --sysroot="$prefix/{triple}/sysroot" "$@"
"""
_WITH_SYSROOT = frozenset({"gcc", "g++", "cpp", "ld", "ld.bfd", "ld.gold"})
_ALIASES = {"gcc": ("cc",), "g++": ("c++",)}
# What the toolchain's own programs are for is compiling and inspecting; profilers and offline viewers stay out.
_LEFT_OUT = frozenset({"gp-archive", "gp-collect-app", "gp-display-html", "gp-display-src", "gp-display-text"})
_LEFT_OUT_MORE = frozenset({"gprofng", "gold", "lto-dump"})


def conda_triple(context: RepairContext) -> str:
    """conda-forge's name of the machine in program names: ``x86_64-conda-linux-gnu``."""
    if context.subdir not in _TRIPLES:
        raise step_error(context, f"no compiler triple for {context.subdir}; known: {', '.join(sorted(_TRIPLES))}")
    return _TRIPLES[context.subdir]


def place_sysroot(tree: Path, context: RepairContext) -> None:
    """Move glibc, its headers or the kernel's into ``<triple>/sysroot``, in Debian's own shape."""
    drop = PurePosixPath("usr/share")
    root = PurePosixPath(conda_triple(context), "sysroot")

    def place(path: PurePosixPath) -> PurePosixPath | None:
        return None if path.is_relative_to(drop) or path.parts[0] == "etc" else root / path

    relayout(tree, context, place)
    if not any(tree.iterdir()):
        raise step_error(context, "nothing is left for the sysroot")


def place_compiler(tree: Path, context: RepairContext) -> None:
    """Move a part of gcc below ``<triple>/``; links to runtime libraries lead to the prefix's ``lib``."""
    triple = conda_triple(context)
    _place_toolchain(tree, context, lambda path: _compiler_place(path, triple, context))


def place_binutils(tree: Path, context: RepairContext) -> None:
    """Move binutils below ``<triple>/``, its private libraries too, and show gcc where its assembler and linker are."""
    triple = conda_triple(context)
    _place_toolchain(tree, context, lambda path: _binutils_place(path, triple, context))
    tools = tree / triple / context.multiarch
    tools.mkdir(parents=True)
    (tools / "bin").symlink_to("../bin")


def _place_toolchain(tree: Path, context: RepairContext, place: Placement) -> None:
    drop_unused(tree / "usr", context)
    relayout(tree, context, place)


def _compiler_place(path: PurePosixPath, triple: str, context: RepairContext) -> PurePosixPath | None:
    if path.is_relative_to("usr/bin"):
        return _program_place(path.name, triple, context)
    if path.is_relative_to("usr/lib/gcc") or path.is_relative_to("usr/include"):
        return PurePosixPath(triple, *path.parts[1:])
    if path.is_relative_to("usr/share"):
        return None
    return native_place(path, context)


def _binutils_place(path: PurePosixPath, triple: str, context: RepairContext) -> PurePosixPath | None:
    if path.is_relative_to("usr/bin"):
        return _program_place(path.name, triple, context)
    folder = PurePosixPath("usr/lib", context.multiarch)
    if path.parent == folder:
        return PurePosixPath(triple, "lib", path.name)
    return None


def _program_place(name: str, triple: str, context: RepairContext) -> PurePosixPath | None:
    """``x86_64-linux-gnu-gcc-12`` becomes ``<triple>/bin/gcc``; the names without the machine go."""
    plain = name.removeprefix(f"{context.multiarch}-")
    short = _VERSIONED.sub("", plain)
    return None if plain == name or short in _LEFT_OUT | _LEFT_OUT_MORE else PurePosixPath(triple, "bin", short)


def wrap_tools(tree: Path, context: RepairContext) -> None:
    """Make every toolchain program callable as ``bin/<triple>-<name>``, with the sysroot where it matters."""
    triple = conda_triple(context)
    programs = sorted(path.name for path in (tree / triple / "bin").glob("*"))
    if not programs:
        raise step_error(context, f"no programs in {triple}/bin")
    (tree / "bin").mkdir(exist_ok=True)
    for program in programs:
        wrapper = tree / "bin" / f"{triple}-{program}"
        if program in _WITH_SYSROOT:
            write_program(wrapper, _WRAPPER.format(program=program, triple=triple, find_prefix=FIND_PREFIX))
        else:
            wrapper.symlink_to(f"../{triple}/bin/{program}")
        for alias in _ALIASES.get(program, ()):
            (tree / "bin" / f"{triple}-{alias}").symlink_to(wrapper.name)


def link_libgcc(tree: Path, context: RepairContext) -> None:
    """Let the linker script libgcc_s.so find its library, which lies in the prefix's ``lib``."""
    scripts = list((tree / conda_triple(context) / "lib" / "gcc").glob("*/*/libgcc_s.so"))
    if len(scripts) != 1:
        raise step_error(context, f"expected one linker script libgcc_s.so, found {len(scripts)}")
    beside = scripts[0].parent
    up = "/".join([".."] * len(beside.relative_to(tree).parts))
    (beside / "libgcc_s.so.1").symlink_to(f"{up}/lib/libgcc_s.so.1")


def link_plain_names(tree: Path, context: RepairContext) -> None:
    """The package without a machine in its name: ``bin/gcc`` for ``bin/<triple>-gcc`` and so on."""
    names = {
        "gcc": ("gcc", "cc", "cpp", "gcc-ar", "gcc-nm", "gcc-ranlib", "gcov"),
        "gxx": ("g++", "c++"),
        "binutils": ("addr2line", "ar", "as", "c++filt", "ld", "nm", "objcopy", "objdump", "ranlib", "readelf", "size",
                     "strings", "strip"),
    }.get(context.entry.name)  # fmt: skip
    if names is None:
        raise step_error(context, "no plain program names are known for this package")
    (tree / "bin").mkdir(exist_ok=True)
    for name in names:
        (tree / "bin" / name).symlink_to(f"{conda_triple(context)}-{name}")


STEPS: dict[str, Repair] = {
    "place_sysroot": place_sysroot,
    "place_compiler": place_compiler,
    "place_binutils": place_binutils,
    "wrap_tools": wrap_tools,
    "link_libgcc": link_libgcc,
    "link_plain_names": link_plain_names,
}
