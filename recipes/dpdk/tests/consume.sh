#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Builds a program against the installed archives through pkg-config and runs it; builds a library of C and C++ with
# the installed make rules; and looks that no archive is left out of libdpdk.pc.
set -euo pipefail

expect() {
  if [[ "$2" != "$3" ]]; then
    echo "$1: got '$2', expected '$3'" >&2
    exit 1
  fi
}

export PKG_CONFIG_PATH="${PREFIX}/lib/pkgconfig"
expect "pkg-config --modversion" "$(pkg-config --modversion libdpdk)" "${EXPECTED_VERSION}"
expect "pkg-config's drivers" "$(pkg-config --variable=drivers libdpdk)" "${EXPECTED_DRIVERS}"

# each archive exactly once, libdpdk.a being the list of the others
expect "archives in libdpdk.pc" \
  "$(sed -n 's/^Libs: //p' "${PREFIX}/lib/pkgconfig/libdpdk.pc" | tr ', ' '\n\n' \
    | sed -n -E 's,^(-l|.*/lib)(rte_[a-z0-9_]+)(\.a)?$,\2,p' | sort | tr '\n' ' ')" \
  "$(cd "${PREFIX}/lib" && printf '%s\n' librte_*.a | sed -E 's/^lib(.*)\.a$/\1/' | sort | tr '\n' ' ')"

# as a program with no other flags, as a position-independent library with the compilers' usual ones, and by CMake
read -r -a cflags <<<"$(pkg-config --cflags libdpdk)"
read -r -a libs <<<"$(pkg-config --libs libdpdk)"
runpath=("-Wl,-rpath,${PREFIX}/lib" "-Wl,-rpath-link,${PREFIX}/lib")
"${CC}" -O2 -Wall -Werror "${cflags[@]}" tests/loop.c "${libs[@]}" "${runpath[@]}" -o loop
expect "the program" "$(./loop)" "DPDK ${EXPECTED_VERSION}.0"
# shellcheck disable=SC2086
"${CC}" ${CFLAGS:-} "${cflags[@]}" -fPIC -shared -Dmain=loop_main tests/loop.c ${LDFLAGS:-} "${libs[@]}" "${runpath[@]}" \
  -Wl,-z,defs -Wl,-z,text -o libloop.so
echo 'int loop_main(void); int main(void) { return loop_main(); }' >main.c
"${CC}" main.c -L. -lloop "-Wl,-rpath,${PWD}" "-Wl,-rpath-link,${PREFIX}/lib" -o from-library
expect "the program through a shared library" "$(./from-library)" "DPDK ${EXPECTED_VERSION}.0"

cmake -G Ninja -S tests -B from-cmake -DCMAKE_PREFIX_PATH="${PREFIX}" -DCMAKE_BUILD_TYPE=Release \
  -DCMAKE_EXE_LINKER_FLAGS="-Wl,-rpath-link,${PREFIX}/lib"
cmake --build from-cmake
expect "the program built by CMake" "$(from-cmake/loop)" "DPDK ${EXPECTED_VERSION}.0"

RTE_SDK=$(pkg-config --variable=rte_sdk libdpdk) RTE_TARGET=$(pkg-config --variable=rte_target libdpdk)
export RTE_SDK RTE_TARGET
make -C tests/extlib O="${PWD}/extlib" CC="${CC}" CXX="${CXX}" AR="${AR}" EXTRA_CXXFLAGS="-std=c++17 -Werror"
expect "what the make rules built" "$("${AR}" t extlib/lib/libextlib.a | sort | tr '\n' ' ')" "in_c.o in_cxx.o "
