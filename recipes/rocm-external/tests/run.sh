#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The check and both scripts against folders made here: none, another version, the right one; and everything put back.
set -euo pipefail

root=$(mktemp -d)
trap 'rm -rf "${root}"' EXIT
check=${PREFIX}/bin/rocm-external-check
unset ROCM_PATH HIP_PATH CHANNEL_ROCM_DIR
soname=libamdhip64.so.${PKG_VERSION}

fail() {
  echo "failed: $*" >&2
  exit 1
}

library() { # FILE SONAME
  mkdir -p "$(dirname "$1")"
  echo "int hip;" | "${CC}" -shared -fPIC -x c - -Wl,-soname,"$2" -o "$1"
}

expect() { # CODE TEXT COMMAND...
  local wanted=$1 text=$2 code=0 output
  shift 2
  output=$("$@" 2>&1) || code=$?
  [[ "${code}" == "${wanted}" ]] || fail "$*: exit code ${code}, expected ${wanted}: ${output}"
  [[ "${output}" == *"${text}"* ]] || fail "$*: '${output}' lacks '${text}'"
}

expect 2 usage "${check}" --nonsense
expect 3 "there is no such folder" env CHANNEL_ROCM_DIR="${root}/none" "${check}"
mkdir -p "${root}/empty" "${root}/good/include/hip"
expect 3 "no libamdhip64.so" env CHANNEL_ROCM_DIR="${root}/empty" "${check}"
# the soname counts, not the file's name
library "${root}/other/lib/${soname}" libamdhip64.so.999
expect 4 "has the soname libamdhip64.so.999" env CHANNEL_ROCM_DIR="${root}/other" "${check}"
mkdir -p "${root}/junk/lib64"
echo "no library" > "${root}/junk/lib64/libamdhip64.so"
expect 4 "is no ELF file" env CHANNEL_ROCM_DIR="${root}/junk" "${check}"
library "${root}/good/lib/${soname}" "${soname}"
expect 0 "headers:  none" env CHANNEL_ROCM_DIR="${root}/good" "${check}"
touch "${root}/good/include/hip/hip_runtime_api.h"
expect 0 "${root}/good/include/hip/hip_runtime_api.h" env ROCM_PATH="${root}/good" "${check}"
# a module of another version before it
expect 0 "${root}/good" env ROCM_PATH="${root}/other" HIP_PATH="${root}/good" "${check}"
# the override is final
expect 3 "${root}/empty" env CHANNEL_ROCM_DIR="${root}/empty" ROCM_PATH="${root}/good" "${check}"

for shell in bash sh; do
  for before in unset "" /before; do
    CHANNEL_ROCM_DIR=${root}/good CONDA_PREFIX=${PREFIX} CONDA_SHLVL=7 BEFORE=${before} "${shell}" -euc '
      if [ "$BEFORE" = unset ]; then unset LD_LIBRARY_PATH; else export LD_LIBRARY_PATH="$BEFORE"; fi
      . "$CONDA_PREFIX/etc/conda/activate.d/activate-rocm-external.sh"
      case $LD_LIBRARY_PATH in "$CHANNEL_ROCM_DIR/lib"*) ;; *) echo "path: $LD_LIBRARY_PATH"; exit 1 ;; esac
      [ "$ROCM_PATH" = "$CHANNEL_ROCM_DIR" ]
      . "$CONDA_PREFIX/etc/conda/deactivate.d/deactivate-rocm-external.sh"
      [ "${LD_LIBRARY_PATH-unset}" = "$BEFORE" ]
      [ -z "${ROCM_PATH+set}" ]
      ! env | grep -q "^CONDA_ROCM"
    ' || fail "activation in ${shell}, LD_LIBRARY_PATH ${before}"
  done
done

# without ROCm the environment still activates, says why, and changes nothing
output=$(CHANNEL_ROCM_DIR=${root}/none CONDA_PREFIX=${PREFIX} CONDA_SHLVL=7 bash -euc '
  . "$CONDA_PREFIX/etc/conda/activate.d/activate-rocm-external.sh"
  [ -z "${ROCM_PATH+set}" ]' 2>&1)
[[ "${output}" == *"no ROCm that this environment can use"* ]] || fail "silent without ROCm: ${output}"
