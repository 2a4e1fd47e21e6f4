#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The search and the activation against folders laid out as a Cray system's, with libraries of several ABIs.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "${work}"' EXIT
for variable in CHANNEL_CRAY_MPICH_DIR CRAY_MPICH_DIR MPICH_DIR CRAY_MPICH_PREFIX CRAY_MPICH_ROOTDIR \
  LD_LIBRARY_PATH CRAY_LD_LIBRARY_PATH CHANNEL_CRAY_MPICH_GTL MPICH_GPU_SUPPORT_ENABLED; do
  unset "${variable}"
done
export CHANNEL_CRAY_PE_ROOT=${work}/pe
# with compilers in a build environment beside it, that one is the active one
export CONDA_PREFIX=${PREFIX}

library() { # FILE SONAME VERSION STANDARD [OPTION...]
  mkdir -p "$(dirname "$1")"
  "${CC}" -shared -fPIC -DLIBRARY="\"$3\"" -DSTANDARD="$4" "${here}/libmpi.c" -Wl,-soname,"$2" "${@:5}" -o "$1"
}

fails() { # CODE TEXT ENVIRONMENT...
  local code=0
  env "${@:3}" mpich-external-check > "${work}/out" 2> "${work}/err" || code=$?
  [[ ${code} == "$1" ]] || { echo "exit code ${code}, expected $1"; cat "${work}/out" "${work}/err"; exit 1; }
  grep -qF -- "$2" "${work}/err" || { echo "expected: $2"; cat "${work}/err"; exit 1; }
  [[ $(grep -c "^mpich-external-check:" "${work}/err") == 1 ]]
}

finds() { # LINE ENVIRONMENT...
  env "${@:2}" mpich-external-check > "${work}/out" 2> "${work}/err" || { cat "${work}/err"; exit 1; }
  grep -qxF -- "$1" "${work}/out" || { echo "expected: $1"; cat "${work}/out"; exit 1; }
}

code=0
mpich-external-check --nonsense 2> /dev/null || code=$?
[[ ${code} == 2 ]]

# nothing on the machine: told where was looked, and what to do
fails 3 "module load cray-mpich"
fails 3 "${work}/pe/mpich/*/ofi/*/*/lib-abi-mpich: nothing there"
fails 3 "CHANNEL_CRAY_MPICH_DIR=${work}/none: there is no such folder" CHANNEL_CRAY_MPICH_DIR="${work}/none"

# another ABI
library "${work}/open/lib/libmpi.so.40" libmpi.so.40 "Open MPI" 310
fails 4 "libmpi.so.40 has the SONAME libmpi.so.40" MPICH_DIR="${work}/open/lib"
library "${work}/liar/lib-abi-mpich/libmpi.so.12" libmpi.so.40 "Open MPI" 310
fails 4 "has the SONAME libmpi.so.40" MPICH_DIR="${work}/liar"
mkdir -p "${work}/junk"
echo "no library" > "${work}/junk/libmpi.so.12"
fails 4 "is no ELF file" CHANNEL_CRAY_MPICH_DIR="${work}/junk"
library "${work}/cut/whole" libmpi.so.12 x 310
head -c 1000 "${work}/cut/whole" > "${work}/cut/libmpi.so.12"
fails 4 "is cut short or damaged" CHANNEL_CRAY_MPICH_DIR="${work}/cut"

# the right one, several of it: the newest, GNU's of one version
for place in 8.1.9/ofi/gnu/9.1 8.1.27/ofi/cray/10.0 8.1.27/ofi/gnu/9.1; do
  library "${work}/pe/mpich/${place}/lib-abi-mpich/libmpi.so.12" libmpi.so.12 "CRAY MPICH ${place}" 400
done
chosen=${work}/pe/mpich/8.1.27/ofi/gnu/9.1/lib-abi-mpich
finds "version:      CRAY MPICH 8.1.27/ofi/gnu/9.1"
finds "not taken:    ${work}/pe/mpich/8.1.9/ofi/gnu/9.1/lib-abi-mpich/libmpi.so.12"
finds "GPU (GTL):    none"
# a module's choice comes first, a user's before it and alone
finds "version:      CRAY MPICH 8.1.9/ofi/gnu/9.1" MPICH_DIR="${work}/pe/mpich/8.1.9/ofi/gnu/9.1"
finds "version:      CRAY MPICH 8.1.27/ofi/cray/10.0" LD_LIBRARY_PATH="/x:${work}/pe/mpich/8.1.27/ofi/cray/10.0/lib-abi-mpich"
finds "version:      CRAY MPICH 8.1.9/ofi/gnu/9.1" CHANNEL_CRAY_MPICH_DIR="${work}/pe/mpich/8.1.9" MPICH_DIR="${chosen}"
fails 3 "no libmpi there" CHANNEL_CRAY_MPICH_DIR="${here}"
# one of another ABI does not hide the one that fits
finds "version:      CRAY MPICH 8.1.27/ofi/gnu/9.1" MPICH_DIR="${work}/open/lib"

# an older MPI than the package's is usable and said
library "${work}/old/lib-abi-mpich/libmpi.so.12" libmpi.so.12 "CRAY MPICH old" 300
MPICH_DIR="${work}/old" mpich-external-check 2>&1 > /dev/null | grep -qF "offers MPI 3.0"

# its own libraries are missing here
library "${work}/needy/gone/libpmi.so.0" libpmi.so.0 x 310
library "${work}/needy/lib-abi-mpich/libmpi.so.12" libmpi.so.12 x 310 -Wl,--no-as-needed "${work}/needy/gone/libpmi.so.0"
rm -r "${work}/needy/gone"
fails 5 "libpmi.so.0: cannot open shared object file" MPICH_DIR="${work}/needy"

gtl=${work}/pe/mpich/8.1.27/gtl/lib
library "${gtl}/libmpi_gtl_cuda.so.0" libmpi_gtl_cuda.so.0 x 310
finds "GPU (GTL):    ${gtl}/libmpi_gtl_cuda.so.0" MPICH_DIR="${chosen}/.."

# activation, in every shell that conda serves with these files
export CHOSEN=${chosen} GTL=${gtl} WORK=${work}
tested=0
for shell in bash dash "busybox sh"; do
  command -v "${shell%% *}" > /dev/null || { echo "no ${shell} here: not tested with it"; continue; }
  ${shell} -eu "${here}/activation.sh"
  tested=$((tested + 1))
done
[[ ${tested} -gt 0 ]]
