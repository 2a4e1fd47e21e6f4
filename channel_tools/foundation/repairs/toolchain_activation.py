# SPDX-License-Identifier: BSD-3-Clause
"""What activating the compiler packages sets: the variables and flags that recipes written for conda-forge expect.

Names and meaning follow conda-forge's compilers. ``-ffile-prefix-map`` stands where they say ``-fdebug-prefix-map``: it
also rewrites ``__FILE__``, which else carries the build folder into programs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from channel_tools.foundation.repairs.activation import Setting, write_activation
from channel_tools.foundation.repairs.compiler import conda_triple

if TYPE_CHECKING:
    from pathlib import Path

    from channel_tools.foundation.model import Repair, RepairContext

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


def activate_binutils(tree: Path, context: RepairContext) -> None:
    """AR, LD, STRIP and the others."""
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
    """CXX and its flags."""
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
    said = [f"-DCMAKE_{name}=$CONDA_PREFIX/bin/{triple}-{program}" for name, program in programs.items()]
    return " ".join([*said, "-DCMAKE_BUILD_TYPE=Release"]) + "$_ct_cmake"


def _write(tree: Path, context: RepairContext, settings: list[Setting], *, tools: str) -> None:
    write_activation(
        tree,
        context.entry.name,
        settings,
        what=_WHAT.format(tools=tools),
        before=_PRELUDE.replace("{triple}", conda_triple(context)),
        after=_EPILOGUE,
    )


STEPS: dict[str, Repair] = {
    "activate_binutils": activate_binutils,
    "activate_gcc": activate_gcc,
    "activate_gxx": activate_gxx,
}
