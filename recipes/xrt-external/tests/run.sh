#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The check and both scripts against folders made here: none, a wrong one, a right one; and everything put back.
set -euo pipefail

root=$(mktemp -d)
trap 'rm -rf "${root}"' EXIT
check=${PREFIX}/bin/xrt-external-check
unset XILINX_XRT

fail() {
  echo "failed: $*" >&2
  exit 1
}

expect() { # CODE TEXT COMMAND...
  local wanted=$1 text=$2 code=0 output
  shift 2
  output=$("$@" 2>&1) || code=$?
  [[ "${code}" == "${wanted}" ]] || fail "$*: exit code ${code}, expected ${wanted}: ${output}"
  [[ "${output}" == *"${text}"* ]] || fail "$*: '${output}' lacks '${text}'"
}

expect 2 usage "${check}" --nonsense
expect 3 "there is no such folder" env CHANNEL_XRT_DIR="${root}/none" "${check}"
mkdir -p "${root}/empty" "${root}/old/lib" "${root}/good/lib" "${root}/good/include/xrt"
expect 3 "no libxrt_coreutil.so.2" env CHANNEL_XRT_DIR="${root}/empty" "${check}"
touch "${root}/old/lib/libxrt_coreutil.so.1" "${root}/good/lib/libxrt_coreutil.so.2"
expect 4 "libxrt_coreutil.so.1" env CHANNEL_XRT_DIR="${root}/old" "${check}"
printf '{\n  "BUILD_VERSION" : "2.18.179",\n  "BUILD_BRANCH" : "x"\n}\n' >"${root}/good/version.json"
expect 0 "2.18.179" env CHANNEL_XRT_DIR="${root}/good" "${check}"
expect 0 "${root}/good/include" env XILINX_XRT="${root}/good" "${check}"
# the override is final
expect 3 "${root}/empty" env CHANNEL_XRT_DIR="${root}/empty" XILINX_XRT="${root}/good" "${check}"

for shell in bash sh; do
  for before in unset "" /before; do
    CHANNEL_XRT_DIR=${root}/good CONDA_PREFIX=${PREFIX} CONDA_SHLVL=7 BEFORE=${before} "${shell}" -euc '
      if [ "$BEFORE" = unset ]; then unset LD_LIBRARY_PATH; else export LD_LIBRARY_PATH="$BEFORE"; fi
      . "$CONDA_PREFIX/etc/conda/activate.d/activate-xrt-external.sh"
      case $LD_LIBRARY_PATH in "$CHANNEL_XRT_DIR/lib"*) ;; *) echo "path: $LD_LIBRARY_PATH"; exit 1 ;; esac
      [ "$XILINX_XRT" = "$CHANNEL_XRT_DIR" ]
      . "$CONDA_PREFIX/etc/conda/deactivate.d/deactivate-xrt-external.sh"
      [ "${LD_LIBRARY_PATH-unset}" = "$BEFORE" ]
      [ -z "${XILINX_XRT+set}" ]
      ! env | grep -q "^CONDA_XRT"
    ' || fail "activation in ${shell}, LD_LIBRARY_PATH ${before}"
  done
done

# without an XRT the environment still activates, says why, and changes nothing
output=$(CHANNEL_XRT_DIR=${root}/none CONDA_PREFIX=${PREFIX} CONDA_SHLVL=7 bash -euc '
  . "$CONDA_PREFIX/etc/conda/activate.d/activate-xrt-external.sh"
  [ -z "${XILINX_XRT+set}" ]' 2>&1)
[[ "${output}" == *"no XRT on this machine"* ]] || fail "silent without XRT: ${output}"
