#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The check and both scripts against libraries made here: none, an older one, one that fits; and everything put back.
set -euo pipefail

root=$(mktemp -d)
trap 'rm -rf "${root}"' EXIT
unset LD_LIBRARY_PATH CRAY_LD_LIBRARY_PATH CHANNEL_LIBFABRIC_DIR
# an environment of the test's own, so that what needs libfabric is known
env=${root}/env
mkdir -p "${env}/lib" "${env}/bin" "${env}/etc"
cp "${PREFIX}/bin/libfabric-external-check" "${env}/bin/"
cp -r "${PREFIX}/etc/conda" "${env}/etc/"
export CONDA_PREFIX=${env}
check=${env}/bin/libfabric-external-check

fail() {
  echo "failed: $*" >&2
  exit 1
}

fabric() { # FILE VERSION...
  local file=$1 version
  mkdir -p "$(dirname "${file}")"
  : > "${root}/map"
  : > "${root}/source.c"
  for version in "${@:2}"; do
    echo "FABRIC_${version} { global: of_${version/./_}; };" >> "${root}/map"
    echo "int of_${version/./_}(void) { return 0; }" >> "${root}/source.c"
  done
  "${CC}" -shared -fPIC "${root}/source.c" -Wl,--version-script="${root}/map" -Wl,-soname,libfabric.so.1 -o "${file}"
}

expect() { # CODE TEXT COMMAND...
  local wanted=$1 text=$2 code=0 output
  shift 2
  output=$("$@" 2>&1) || code=$?
  [[ "${code}" == "${wanted}" ]] || fail "$*: exit code ${code}, expected ${wanted}: ${output}"
  [[ "${output}" == *"${text}"* ]] || fail "$*: '${output}' lacks '${text}'"
}

fabric "${root}/old/lib64/libfabric.so.1" 1.0 1.6
fabric "${root}/new/lib64/libfabric.so.1" 1.0 1.6 1.8
expect 2 usage "${check}" --nonsense
expect 3 "no libfabric.so.1 there" env CHANNEL_LIBFABRIC_DIR="${root}/none" "${check}"
# nothing here needs it: any is good
expect 0 "up to FABRIC_1.6" env CHANNEL_LIBFABRIC_DIR="${root}/old" "${check}"

echo "int of_1_8(void); int plugin(void) { return of_1_8(); }" > "${root}/plugin.c"
"${CC}" -shared -fPIC "${root}/plugin.c" "${root}/new/lib64/libfabric.so.1" -o "${env}/lib/libnccl-net.so"
expect 4 "has symbols up to FABRIC_1.6, and ${env}/lib/libnccl-net.so needs FABRIC_1.8" \
  env CHANNEL_LIBFABRIC_DIR="${root}/old" "${check}"
expect 0 "needed:   up to FABRIC_1.8, by ${env}/lib/libnccl-net.so" env CHANNEL_LIBFABRIC_DIR="${root}/new" "${check}"
# a module of an older one does not hide the one that fits; the override is final
expect 0 "${root}/new/lib64" env LD_LIBRARY_PATH="${root}/old/lib64:${root}/new/lib64" "${check}"
expect 4 "${root}/old" env CHANNEL_LIBFABRIC_DIR="${root}/old" LD_LIBRARY_PATH="${root}/new/lib64" "${check}"
mkdir -p "${root}/junk"
echo "no library" > "${root}/junk/libfabric.so.1"
expect 3 "is no ELF file" env CHANNEL_LIBFABRIC_DIR="${root}/junk" "${check}"

for shell in bash sh; do
  for before in unset "" /before; do
    CHANNEL_LIBFABRIC_DIR=${root}/new CONDA_SHLVL=7 BEFORE=${before} "${shell}" -euc '
      if [ "$BEFORE" = unset ]; then unset LD_LIBRARY_PATH; else export LD_LIBRARY_PATH="$BEFORE"; fi
      . "$CONDA_PREFIX/etc/conda/activate.d/activate-libfabric-external.sh"
      case $LD_LIBRARY_PATH in "$CHANNEL_LIBFABRIC_DIR/lib64"*) ;; *) echo "path: $LD_LIBRARY_PATH"; exit 1 ;; esac
      . "$CONDA_PREFIX/etc/conda/deactivate.d/deactivate-libfabric-external.sh"
      [ "${LD_LIBRARY_PATH-unset}" = "$BEFORE" ]
      ! env | grep -q "^CONDA_LIBFABRIC"
    ' || fail "activation in ${shell}, LD_LIBRARY_PATH ${before}"
  done
done

# with none that fits the environment still activates, says why, and changes nothing
output=$(CHANNEL_LIBFABRIC_DIR=${root}/old CONDA_SHLVL=7 bash -euc '
  . "$CONDA_PREFIX/etc/conda/activate.d/activate-libfabric-external.sh"
  [ -z "${LD_LIBRARY_PATH+set}" ]' 2>&1)
[[ "${output}" == *"no libfabric that this environment can use"* ]] || fail "silent without libfabric: ${output}"
