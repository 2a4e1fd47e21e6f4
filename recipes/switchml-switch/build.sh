#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
set -euo pipefail

# Headers of the host environment name themselves in messages of assertions.
export CXXFLAGS="${CXXFLAGS:-} -ffile-prefix-map=${PREFIX}=host"

# gRPC's headers take longer to compile than what includes them: one compilation for each library.
# CMAKE_ARGS is a list of options, set by the compilers' activation.
# shellcheck disable=SC2086
cmake -G Ninja -S . -B _build ${CMAKE_ARGS:-} -DCMAKE_BUILD_RPATH_USE_ORIGIN=ON \
  -DCMAKE_BUILD_TYPE=Release \
  -DCMAKE_PREFIX_PATH="${PREFIX}" \
  -DCMAKE_INSTALL_PREFIX="${PREFIX}" \
  -DCMAKE_INSTALL_LIBDIR=lib \
  -DCMAKE_UNITY_BUILD=ON -DCMAKE_UNITY_BUILD_BATCH_SIZE=0
cmake --build _build
if [[ "${CONDA_BUILD_CROSS_COMPILATION:-0}" != 1 ]]; then
  ctest --test-dir _build --output-on-failure
fi
cmake --install _build --strip
