#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
set -euo pipefail

# Messages of assertions name source files and headers.
maps="-ffile-prefix-map=${SRC_DIR}=grpc -ffile-prefix-map=${PREFIX}=host"
export CFLAGS="${CFLAGS:-} ${maps}" CXXFLAGS="${CXXFLAGS:-} ${maps}"

options=(
  -DCMAKE_BUILD_TYPE=Release
  -DCMAKE_CXX_STANDARD=17
  -DCMAKE_INSTALL_PREFIX="${PREFIX}"
  -DCMAKE_PREFIX_PATH="${PREFIX}"
  -DBUILD_SHARED_LIBS=ON
  -DgRPC_BUILD_TESTS=OFF
  -DgRPC_BUILD_UNSECURE=OFF
)
for provider in ABSL CARES PROTOBUF RE2 SSL ZLIB; do
  options+=("-DgRPC_${provider}_PROVIDER=package")
done
for language in CSHARP NODE OBJECTIVE_C PHP PYTHON RUBY; do
  options+=("-DgRPC_BUILD_GRPC_${language}_PLUGIN=OFF")
done

# CMAKE_ARGS is a list of options, set by the compilers' activation.
# shellcheck disable=SC2086
cmake -G Ninja -S . -B _build ${CMAKE_ARGS:-} "${options[@]}"
cmake --build _build
cmake --install _build --strip
