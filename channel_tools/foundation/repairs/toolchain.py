# SPDX-License-Identifier: BSD-3-Clause
"""Debian's gcc, binutils and glibc headers as conda-forge's compiler packages, cut off from the host's.

gcc finds its parts relative to its own place (it was made relocatable), so the whole toolchain keeps Debian's inner
shape below ``<triple>/``; only ``--sysroot`` has to be given, which small wrappers in ``bin/`` do. The sysroot keeps
Debian's shape too: glibc's linker scripts name absolute paths, which ld looks up below the sysroot.

Activation sets the variables and flags that recipes written for conda-forge expect, under conda-forge's names.
``-ffile-prefix-map`` stands where they have ``-fdebug-prefix-map``: it also rewrites ``__FILE__``, which else carries
the build folder into programs.
"""

from __future__ import annotations

import os
import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from channel_tools.foundation.repairs.layout import Placement, drop_unused, native_place, relayout, step_error
from channel_tools.foundation.repairs.scripts import FIND_PREFIX, Setting, write_activation, write_program

if TYPE_CHECKING:
    from pathlib import Path

    from channel_tools.foundation.model import Repair, RepairContext

VERSION = 1
"""Raised with each change of what a step here makes of a tree."""

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
_BINUTILS = {
    "ADDR2LINE": "addr2line",
    "AR": "ar",
    "AS": "as",
    "CXXFILT": "c++filt",
    "ELFEDIT": "elfedit",
    "GPROF": "gprof",
    "LD": "ld",
    "LD_GOLD": "ld.gold",
    "NM": "nm",
    "OBJCOPY": "objcopy",
    "OBJDUMP": "objdump",
    "RANLIB": "ranlib",
    "READELF": "readelf",
    "SIZE": "size",
    "STRINGS": "strings",
    "STRIP": "strip",
}
_GCC = {
    "CC": "cc",
    "CPP": "cpp",
    "GCC": "gcc",
    "GCC_AR": "gcc-ar",
    "GCC_NM": "gcc-nm",
    "GCC_RANLIB": "gcc-ranlib",
}
_GXX = {"CXX": "c++", "GXX": "g++"}
_MARCH = {
    "linux-64": "-march=nocona -mtune=haswell",
    "linux-aarch64": "-march=armv8-a",
}
_COMMON = "-ftree-vectorize -fPIC -fstack-protector-strong -fno-plt -O2 -ffunction-sections -pipe"
_CXX_ONLY = "-fvisibility-inlines-hidden -fmessage-length=0"
_DEBUG = "-Og -g -Wall -Wextra -fvar-tracking-assignments -ffunction-sections -pipe"
_CPPFLAGS = "-DNDEBUG -D_FORTIFY_SOURCE=2 -O2 -isystem $_ct_prefix/include"
_LDFLAGS = (
    "-Wl,-O2 -Wl,--sort-common -Wl,--as-needed -Wl,-z,relro -Wl,-z,now -Wl,--disable-new-dtags -Wl,--gc-sections"
    " -Wl,--allow-shlib-undefined -Wl,-rpath,$_ct_prefix/lib -Wl,-rpath-link,$_ct_prefix/lib -L$_ct_prefix/lib"
)
# In a build PREFIX is the environment that is built for; else it is the user's own variable and means nothing here.
_PRELUDE = """\
_ct_prefix="$CONDA_PREFIX"
_ct_maps=""
_ct_cmake=""
_ct_meson=""
if [ "${CONDA_BUILD:-}" = 1 ] && [ -n "${PREFIX:-}" ]; then
  _ct_prefix="$PREFIX"
  _ct_build="${BUILD_PREFIX:-$CONDA_PREFIX}"
  _ct_maps=" -ffile-prefix-map=${SRC_DIR:-$PWD}=/usr/local/src/conda/${PKG_NAME:-package}-${PKG_VERSION:-0}"
  _ct_maps="$_ct_maps -ffile-prefix-map=$_ct_build=/usr/local/src/conda-build-prefix"
  _ct_maps="$_ct_maps -ffile-prefix-map=$PREFIX=/usr/local/src/conda-prefix"
  _ct_cmake=" -DCMAKE_FIND_ROOT_PATH_MODE_PROGRAM=NEVER -DCMAKE_FIND_ROOT_PATH_MODE_LIBRARY=ONLY"
  _ct_cmake="$_ct_cmake -DCMAKE_FIND_ROOT_PATH_MODE_INCLUDE=ONLY"
  _ct_cmake="$_ct_cmake -DCMAKE_FIND_ROOT_PATH=$PREFIX;$_ct_build/{triple}/sysroot"
  _ct_cmake="$_ct_cmake -DCMAKE_INSTALL_PREFIX=$PREFIX -DCMAKE_INSTALL_LIBDIR=lib"
  _ct_cmake="$_ct_cmake -DCMAKE_PROGRAM_PATH=$_ct_build/bin;$PREFIX/bin"
  _ct_meson=" --prefix=$PREFIX -Dlibdir=lib"
fi
"""
_EPILOGUE = "unset _ct_prefix _ct_maps _ct_cmake _ct_meson _ct_build\n"
_WHAT = "The {tools} of this environment, under the names that build systems look for."


def conda_triple(context: RepairContext) -> str:
    """conda-forge's name of the machine in program names: ``x86_64-conda-linux-gnu``."""
    if context.subdir not in _TRIPLES:
        raise step_error(context, f"no compiler triple for {context.subdir}; known: {', '.join(sorted(_TRIPLES))}")
    return _TRIPLES[context.subdir]


def place_sysroot(tree: Path, context: RepairContext) -> None:
    """Move glibc, its headers or the kernel's into ``<triple>/sysroot``, in Debian's own shape."""
    drop = PurePosixPath("usr/share")
    root = PurePosixPath(conda_triple(context), "sysroot")

    def placement(path: PurePosixPath) -> PurePosixPath | None:
        return None if path.is_relative_to(drop) or path.parts[0] == "etc" else root / path

    relayout(tree, context, placement)
    if not any(tree.iterdir()):
        raise step_error(context, "nothing is left for the sysroot")


def link_sysroot_folders(tree: Path, context: RepairContext) -> None:
    """Have the sysroot's ``lib``, and ``lib64`` if any, hold what is in ``usr``: since 13, Debian has all files there.

    glibc's linker scripts name its libraries without ``usr``.
    """
    root = tree / conda_triple(context) / "sysroot"
    if not (root / "usr" / "lib").is_dir() or os.path.lexists(root / "lib"):
        raise step_error(context, "expected usr/lib in the sysroot, and no lib beside usr")
    (root / "lib").symlink_to("usr/lib")
    for path in sorted((root / "usr").glob("lib64/*")):
        (root / "lib64").mkdir(exist_ok=True)
        (root / "lib64" / path.name).symlink_to(f"../usr/lib64/{path.name}")


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


def _place_toolchain(tree: Path, context: RepairContext, placement: Placement) -> None:
    drop_unused(tree / "usr", context)
    relayout(tree, context, placement)


def _compiler_place(path: PurePosixPath, triple: str, context: RepairContext) -> PurePosixPath | None:
    if path.is_relative_to("usr/bin"):
        return _program_place(path.name, triple, context)
    if any(path.is_relative_to(folder) for folder in ("usr/lib/gcc", "usr/libexec/gcc", "usr/include")):
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


def activate_binutils(tree: Path, context: RepairContext) -> None:
    """Activation sets AR, LD, STRIP and the other binary tools."""
    _write(tree, context, _programs(_BINUTILS, conda_triple(context)), tools="binary tools")


def activate_gcc(tree: Path, context: RepairContext) -> None:
    """CC, CPP, the C, preprocessor and linker flags, and the arguments for CMake and meson."""
    triple = conda_triple(context)
    flags = f"{_MARCH[context.subdir]} {_COMMON}"
    settings = [
        Setting(name="HOST", value=triple),
        Setting(name="BUILD", value=triple),
        Setting(name="CONDA_TOOLCHAIN_HOST", value=triple),
        Setting(name="CONDA_TOOLCHAIN_BUILD", value=triple),
        Setting(name="CONDA_BUILD_SYSROOT", value=f"$CONDA_PREFIX/{triple}/sysroot"),
        Setting(name="CONDA_BUILD_CROSS_COMPILATION", value=""),
        Setting(name="host_alias", value=triple),
        Setting(name="build_alias", value=triple),
        Setting(name="CMAKE_PREFIX_PATH", value=f"$_ct_prefix:$CONDA_PREFIX/{triple}/sysroot/usr"),
        *_programs(_GCC, triple),
        _with_own("CPPFLAGS", _CPPFLAGS),
        _with_own("CFLAGS", f"{flags} -isystem $_ct_prefix/include$_ct_maps"),
        _with_own("LDFLAGS", _LDFLAGS),
        Setting(name="DEBUG_CFLAGS", value=f"{_MARCH[context.subdir]} {_DEBUG} -isystem $_ct_prefix/include$_ct_maps"),
        Setting(name="DEBUG_CPPFLAGS", value="-D_DEBUG -D_FORTIFY_SOURCE=2 -Og -isystem $_ct_prefix/include"),
        Setting(name="CMAKE_ARGS", value=_cmake_arguments(triple)),
        Setting(name="MESON_ARGS", value="--buildtype release$_ct_meson"),
    ]
    _write(tree, context, settings, tools="C compiler")


def activate_gxx(tree: Path, context: RepairContext) -> None:
    """Activation sets CXX, GXX and the C++ flags."""
    march = _MARCH[context.subdir]
    own = "-isystem $_ct_prefix/include$_ct_maps"
    settings = [
        *_programs(_GXX, conda_triple(context)),
        _with_own("CXXFLAGS", f"{_CXX_ONLY} {march} {_COMMON} {own}"),
        Setting(name="DEBUG_CXXFLAGS", value=f"{_CXX_ONLY} {march} {_DEBUG} {own}"),
    ]
    _write(tree, context, settings, tools="C++ compiler")


def _programs(names: dict[str, str], triple: str) -> list[Setting]:
    return [Setting(name=name, value=f"$CONDA_PREFIX/bin/{triple}-{program}") for name, program in names.items()]


def _with_own(name: str, value: str) -> Setting:
    """Flags that the user has set already stay, after ours."""
    return Setting(name=name, value=f"{value}${{{name}:+ ${name}}}")


def _cmake_arguments(triple: str) -> str:
    programs = {
        "AR": "ar",
        "CXX_COMPILER_AR": "gcc-ar",
        "C_COMPILER_AR": "gcc-ar",
        "RANLIB": "ranlib",
        "CXX_COMPILER_RANLIB": "gcc-ranlib",
        "C_COMPILER_RANLIB": "gcc-ranlib",
        "LINKER": "ld",
        "STRIP": "strip",
    }
    options = [f"-DCMAKE_{name}=$CONDA_PREFIX/bin/{triple}-{program}" for name, program in programs.items()]
    return " ".join([*options, "-DCMAKE_BUILD_TYPE=Release"]) + "$_ct_cmake"


def _write(tree: Path, context: RepairContext, settings: list[Setting], *, tools: str) -> None:
    write_activation(
        tree,
        context.entry.name,
        settings,
        reason=_WHAT.format(tools=tools),
        before=_PRELUDE.replace("{triple}", conda_triple(context)),
        after=_EPILOGUE,
    )


STEPS: dict[str, Repair] = {
    "place_sysroot": place_sysroot,
    "link_sysroot_folders": link_sysroot_folders,
    "place_compiler": place_compiler,
    "place_binutils": place_binutils,
    "wrap_tools": wrap_tools,
    "link_libgcc": link_libgcc,
    "link_plain_names": link_plain_names,
    "activate_binutils": activate_binutils,
    "activate_gcc": activate_gcc,
    "activate_gxx": activate_gxx,
}
