#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
set -euo pipefail

xrt=OFF
if [[ "${ACCL_XRT}" == external ]]; then
  # the activation of the package xrt-external, in the host environment, has looked for it
  if [[ ! -d "${XILINX_XRT:-}/include/xrt" ]]; then
    echo "accl_xrt=external needs the site's XRT with its headers on this machine: XILINX_XRT is '${XILINX_XRT:-}'." >&2
    echo "Install XRT, or name its folder in CHANNEL_XRT_DIR; accl_xrt=none builds without it." >&2
    exit 1
  fi
  xrt=ON
fi

# Messages of exceptions and assertions name source files.
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
  -DACCL_DRIVER=ON \
  -DACCL_EMULATOR=OFF \
  -DACCL_XRT="${xrt}"
cmake --build _build
cmake --install _build --strip
