#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
set -euo pipefail

# What upstream's tree brings ready-made is never used: a clone has it, the source store leaves most of it out.
# The headers of PMIx stay; they are compiled against, and not installed.
find deps -mindepth 1 -maxdepth 1 ! -name pmix -exec rm -rf {} +
rm -rf src/kernels/kernels.spv .git

# config.h names the time of the build and the commit: make both the same everywhere.
export SOURCE_DATE_EPOCH=1730889732
export GIT_CEILING_DIRECTORIES="${SRC_DIR%/*}"

# Messages of the log name source files.
map="-ffile-prefix-map=${SRC_DIR}=oneccl -ffile-prefix-map=${PREFIX}=host"
export CFLAGS="${CFLAGS:-} ${map}" CXXFLAGS="${CXXFLAGS:-} ${map}"

# dlopen looks along the library's own rpath: libmpi and libfabric of the prefix, wherever it lies.
export LDFLAGS="${LDFLAGS:-} -Wl,-rpath,\$ORIGIN"

# CMAKE_ARGS is a list of options, set by the compilers' activation.
# shellcheck disable=SC2086
cmake -G Ninja -S . -B _build ${CMAKE_ARGS:-} -DCMAKE_BUILD_RPATH_USE_ORIGIN=ON \
  -DCMAKE_POLICY_VERSION_MINIMUM=3.5 \
  -DCMAKE_BUILD_TYPE=Release \
  -DCMAKE_PREFIX_PATH="${PREFIX}" \
  -DCMAKE_INSTALL_PREFIX="${SRC_DIR}/_stage" \
  -DMPI_DIR="${PREFIX}" \
  -DLIBFABRIC_DIR="${PREFIX}" \
  -DDRM_INCLUDE_DIR="${SRC_DIR}/absent" \
  -DBUILD_EXAMPLES=OFF \
  -DBUILD_FT=OFF \
  -DENABLE_ITT=OFF \
  -DENABLE_MPI_TESTS=OFF \
  -DENABLE_OFI_HMEM=OFF
# The shared library alone: a static one would bring its own copy of the process-wide state into each program.
cmake --build _build --target ccl
cmake --install _build --strip

if [[ "$(readlink _stage/lib/libccl.so)" != "libccl.so.${ONECCL_ABI}" ]]; then
  echo "libccl.so is a link to $(readlink _stage/lib/libccl.so), recipe.yaml has abi ${ONECCL_ABI}" >&2
  exit 1
fi

# Only these: upstream also installs set-up scripts, module files and CMake modules that name other places.
mkdir -p "${PREFIX}/include" "${PREFIX}/lib/cmake/oneCCL"
cp -R _stage/include/oneapi "${PREFIX}/include/"
cp -P _stage/lib/libccl.so* "${PREFIX}/lib/"
for file in oneCCLConfig.cmake oneCCLConfigVersion.cmake; do
  install -m 644 "_stage/lib/cmake/oneCCL/${file}" "${PREFIX}/lib/cmake/oneCCL/${file}"
done
