#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
set -euo pipefail

# headers alone
bash compiled-in.sh cppzmq tclap

export CXXFLAGS="${CXXFLAGS:-} -ffile-prefix-map=${SRC_DIR}=accl -ffile-prefix-map=${PREFIX}=host"
export CXXFLAGS="${CXXFLAGS} -ffile-prefix-map=${BUILD_PREFIX}=build"

# CMAKE_ARGS is a list of options, set by the compilers' activation.
# shellcheck disable=SC2086
cmake -G Ninja -S package -B _build ${CMAKE_ARGS:-} -DCMAKE_BUILD_RPATH_USE_ORIGIN=ON \
  -DCMAKE_BUILD_TYPE=Release \
  -DCMAKE_PREFIX_PATH="${PREFIX}" \
  -DCMAKE_INSTALL_PREFIX="${PREFIX}" \
  -DCMAKE_INSTALL_LIBDIR=lib \
  -DACCL_SOURCE_DIR="${SRC_DIR}" \
  -DACCL_DRIVER=OFF \
  -DACCL_EMULATOR=ON
cmake --build _build
cmake --install _build --strip

install -D -m 644 runner/accl_emulator.py "${PREFIX}/libexec/accl-emulator/accl_emulator.py"
install -m 755 runner/accl-emulator "${PREFIX}/bin/accl-emulator"
