#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Builds a C++ program against the installed headers for several instruction sets, through pkg-config and through
# CMake, and runs each that this processor can run.
set -euo pipefail

run() {
  local what="$1" program="$2" instruction_set="$3" status=0 said
  said=$("${program}") || status=$?
  if [[ "${said}" != "${EXPECTED_HEADER} ${instruction_set}" ]]; then
    echo "${what}: says '${said}', expected '${EXPECTED_HEADER} ${instruction_set}'" >&2
    exit 1
  fi
  if [[ "${status}" == 3 ]]; then
    echo "${what}: built; this processor cannot run it"
  elif [[ "${status}" != 0 ]]; then
    echo "${what}: exit code ${status}" >&2
    exit 1
  fi
}

if [[ "$(uname -m)" != x86_64 ]]; then
  echo "not an x86 processor: the headers are for x86 alone, and nothing is compiled here"
  exit 0
fi

export PKG_CONFIG_PATH="${PREFIX}/share/pkgconfig"
version=$(pkg-config --modversion vectorclass)
if [[ "${version}" != "${EXPECTED_VERSION}" ]]; then
  echo "pkg-config: version ${version}, expected ${EXPECTED_VERSION}" >&2
  exit 1
fi
detect=$(pkg-config --variable=detect_source vectorclass)

# The compiler's options by default name a processor of their own, which these must not meet.
unset CFLAGS CXXFLAGS CPPFLAGS
# the numbers are the library's own: 2 is SSE2, 6 is SSE4.2, 8 is AVX2
for each in "2 -march=x86-64" "6 -march=x86-64-v2" "8 -mavx2 -mfma"; do
  read -r number options <<<"${each}"
  # shellcheck disable=SC2046,SC2086
  "${CXX}" -std=c++17 -O2 -Wall ${options} $(pkg-config --cflags vectorclass) tests/consume.cpp "${detect}" -o "consume-${number}"
  run "pkg-config, ${options}" "./consume-${number}" "${number}"
  cmake -G Ninja -S tests -B "cmake-${number}" -DCMAKE_PREFIX_PATH="${PREFIX}" -DCMAKE_BUILD_TYPE=Release \
    -DINSTRUCTION_SET="${options// /;}"
  cmake --build "cmake-${number}"
  run "CMake, ${options}" "cmake-${number}/consume" "${number}"
done
