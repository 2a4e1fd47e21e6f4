#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Builds a program against the installed package through CMake and sums over two ranks with it, over MPI and over
# libfabric's TCP provider, with the libraries of this environment and no other.
set -euo pipefail

cmake -G Ninja -S tests -B consumer -DCMAKE_PREFIX_PATH="${PREFIX}" \
  -DCMAKE_EXE_LINKER_FLAGS="-Wl,-rpath,${PREFIX}/lib -Wl,-rpath-link,${PREFIX}/lib"
cmake --build consumer

# Whatever the shell of the builder names.
unset LD_LIBRARY_PATH I_MPI_ROOT CCL_ROOT CCL_MPI_LIBRARY_PATH CCL_OFI_LIBRARY_PATH
# Both ranks are here: oneCCL looks for another interface than the loopback's, which a machine without a network lacks.
export CCL_LOG_LEVEL=info FI_PROVIDER=tcp CCL_KVS_IFACE=lo

sum() {
  local transport=$1
  CCL_ATL_TRANSPORT=${transport} mpiexec -n 2 consumer/allreduce "result-${transport}" \
    "${PREFIX}/lib/libccl.so" "${PREFIX}/lib/libmpi.so.12" "${PREFIX}/lib/libfabric.so.1" >"${transport}.log" 2>&1 ||
    { cat "${transport}.log" >&2; exit 1; }
  if [[ ! -s result-${transport}.0 || ! -s result-${transport}.1 ]]; then
    echo "over ${transport}: not both ranks came to their end:" >&2
    cat "${transport}.log" >&2
    exit 1
  fi
  # oneCCL falls back to its other transport when one does not start
  if ! grep -q "finalized atl-${transport}" "${transport}.log"; then
    echo "something else than ${transport} carried it:" >&2
    cat "${transport}.log" >&2
    exit 1
  fi
}

sum mpi
sum ofi
