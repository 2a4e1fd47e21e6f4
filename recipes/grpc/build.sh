#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
set -euo pipefail

# Messages of assertions name source files and headers.
maps="-ffile-prefix-map=${SRC_DIR}=grpc -ffile-prefix-map=${PREFIX}=host"
export CFLAGS="${CFLAGS:-} ${maps}" CXXFLAGS="${CXXFLAGS:-} ${maps}"

# Only tests use the protocol that is missing from the tarball; CMake would download it, were the folder not there.
mkdir -p third_party/opencensus-proto/src

options=(
  -DCMAKE_BUILD_TYPE=Release
  -DCMAKE_CXX_STANDARD=17
  -DBUILD_SHARED_LIBS=ON
  -DgRPC_BUILD_TESTS=OFF
  -DgRPC_BUILD_UNSECURE=OFF
  -DCMAKE_BUILD_RPATH_USE_ORIGIN=ON
)
for provider in ABSL CARES PROTOBUF RE2 SSL ZLIB; do
  options+=("-DgRPC_${provider}_PROVIDER=package")
done
for language in CSHARP NODE OBJECTIVE_C PHP PYTHON RUBY; do
  options+=("-DgRPC_BUILD_GRPC_${language}_PLUGIN=OFF")
done

if [[ "${CONDA_BUILD_CROSS_COMPILATION:-0}" == 1 ]]; then
  # gRPC generates sources of its own with the plugin that it finds on the PATH
  env -u CFLAGS -u CXXFLAGS -u CPPFLAGS -u LDFLAGS CC="${CC_FOR_BUILD}" CXX="${CXX_FOR_BUILD}" \
    cmake -G Ninja -S . -B _plugin "${options[@]}" -DCMAKE_PREFIX_PATH="${BUILD_PREFIX}"
  cmake --build _plugin --target grpc_cpp_plugin
  export PATH="${PWD}/_plugin:${PATH}"
fi

# CMAKE_ARGS is a list of options, set by the compilers' activation.
# shellcheck disable=SC2086
cmake -G Ninja -S . -B _build ${CMAKE_ARGS:-} "${options[@]}" \
  -DCMAKE_INSTALL_PREFIX="${PREFIX}" -DCMAKE_PREFIX_PATH="${PREFIX}"
cmake --build _build
cmake --install _build --strip
