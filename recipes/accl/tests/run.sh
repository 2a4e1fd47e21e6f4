#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Builds the allreduce with what is installed, by CMake and by pkg-config, and runs two ranks on the emulator.
set -euo pipefail
cd tests

# CXXFLAGS and LDFLAGS are lists of options, set by the compilers' activation.
# shellcheck disable=SC2046,SC2086
"${CXX}" ${CXXFLAGS:-} -fsyntax-only -x c++ allreduce.cpp $(pkg-config --cflags accl)
cmake -G Ninja -S . -B _build -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH="${PREFIX}" >/dev/null
cmake --build _build

accl-emulator --ranks 2 -- bash ranks.sh _build/allreduce
