#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
set -euo pipefail

header_abi=$(sed -n 's/^#define SWITCHML_ABI_VERSION //p' include/switchml.h)
if [[ "${header_abi}" != "${SWITCHML_ABI}" ]]; then
  echo "switchml.h has ABI version ${header_abi}, recipe.yaml has ${SWITCHML_ABI}: set context.abi" >&2
  exit 1
fi

# What is linked statically or is headers alone; Boost's are in a package of their own on conda-forge.
[[ "${SWITCHML_TRANSPORT}" == udp ]] || bash compiled-in.sh dpdk vectorclass libboost-devel libboost-headers

# Headers of the host environment name themselves in messages of assertions.
export CXXFLAGS="${CXXFLAGS:-} -ffile-prefix-map=${PREFIX}=host"

# The vector class library knows x86 only.
vcl=OFF
[[ "${target_platform}" == linux-64 ]] && vcl=ON

# gRPC's headers take longer to compile than what includes them: one compilation for each of our libraries. The published
# client's sources are not made for that.
unity=OFF
[[ "${SWITCHML_TRANSPORT}" == udp ]] && unity=ON

# CMAKE_ARGS is a list of options, set by the compilers' activation.
# shellcheck disable=SC2086
cmake -G Ninja -S . -B _build ${CMAKE_ARGS:-} -DCMAKE_BUILD_RPATH_USE_ORIGIN=ON \
  -DCMAKE_BUILD_TYPE=Release \
  -DCMAKE_PREFIX_PATH="${PREFIX}" \
  -DCMAKE_INSTALL_PREFIX="${PREFIX}" \
  -DCMAKE_INSTALL_LIBDIR=lib \
  -DCMAKE_UNITY_BUILD="${unity}" -DCMAKE_UNITY_BUILD_BATCH_SIZE=0 \
  -DSWITCHML_TRANSPORT="${SWITCHML_TRANSPORT}" \
  -DSWITCHML_VCL="${vcl}"
cmake --build _build
if [[ "${CONDA_BUILD_CROSS_COMPILATION:-0}" != 1 ]]; then
  ctest --test-dir _build --output-on-failure
fi
cmake --install _build --strip
