#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Generates, builds and runs a service with the installed package, through CMake, and compares versions.
set -euo pipefail

expect() {
  if [[ "$2" != "$3" ]]; then
    echo "$1: got '$2', expected '$3'" >&2
    exit 1
  fi
}

export PKG_CONFIG_PATH="${PREFIX}/lib/pkgconfig"
expect "pkg-config --modversion" "$(pkg-config --modversion grpc++)" "${EXPECTED_VERSION}"
expect "pkg-config's prefix" "$(realpath "$(pkg-config --variable=prefix grpc++)")" "$(realpath "${PREFIX}")"

cmake -G Ninja -S tests -B greeting -DCMAKE_PREFIX_PATH="${PREFIX}" -DCMAKE_BUILD_TYPE=Release \
  -DCMAKE_EXE_LINKER_FLAGS="-Wl,-rpath-link,${PREFIX}/lib"
cmake --build greeting
expect "the program" "$(greeting/greeting)" "${EXPECTED_VERSION}"
