#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Builds a C program against the installed package, through pkg-config and
# through CMake, and compares what it says with the recipe.
set -euo pipefail

expect() {
  if [[ "$2" != "$3" ]]; then
    echo "$1: got '$2', expected '$3'" >&2
    exit 1
  fi
}

export PKG_CONFIG_PATH="${PREFIX}/lib/pkgconfig"
expect "pkg-config --modversion" "$(pkg-config --modversion switchml) $(pkg-config --variable=abi_version switchml) $(pkg-config --variable=transport switchml)" "${EXPECTED}"

# shellcheck disable=SC2046
"${CC}" -std=c99 -pedantic-errors -Wall -Werror tests/consume.c $(pkg-config --cflags --libs switchml) \
  "-Wl,-rpath,${PREFIX}/lib" "-Wl,-rpath-link,${PREFIX}/lib" -o consume
expect "the program built through pkg-config" "$(./consume)" "${EXPECTED}"

cmake -G Ninja -S tests -B from-cmake -DCMAKE_PREFIX_PATH="${PREFIX}" -DCMAKE_EXE_LINKER_FLAGS="-Wl,-rpath-link,${PREFIX}/lib"
cmake --build from-cmake
expect "the program built through CMake" "$(from-cmake/consume)" "${EXPECTED}"
