#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
set -euo pipefail

# the activation of the package rocm-external, in the host environment, has looked for it
if ! found=$("${PREFIX}/bin/rocm-external-check" --folder); then
  echo "This build needs the site's ROCm ${ROCM} with its headers on this machine: name its folder in CHANNEL_ROCM_DIR." >&2
  exit 1
fi
root=$(head -n 1 <<< "${found}")
folder=$(tail -n 1 <<< "${found}")
if [[ ! -r ${root}/include/hip/hip_runtime_api.h ]]; then
  echo "${root} has ROCm ${ROCM} without its headers (include/hip): install AMD's hip-dev, or name another folder in" >&2
  echo "CHANNEL_ROCM_DIR." >&2
  exit 1
fi

# messages name source files, and headers of the host environment name themselves
map="-ffile-prefix-map=${SRC_DIR}=. -ffile-prefix-map=${PREFIX}=host -ffile-prefix-map=${BUILD_PREFIX}=build"
export CFLAGS="${CFLAGS:-} ${map}" CXXFLAGS="${CXXFLAGS:-} ${map}"

# ROCm alone, in the shape that configure knows: in /usr are also the system's headers
mkdir -p rocm/include rocm/lib
for name in hip hsa; do
  if [[ -d ${root}/include/${name} ]]; then ln -sfn "${root}/include/${name}" "rocm/include/${name}"; fi
done
ln -sfn "${folder}/libamdhip64.so.${ROCM}" rocm/lib/libamdhip64.so
if [[ -e ${folder}/libhsa-runtime64.so.1 ]]; then ln -sfn "${folder}/libhsa-runtime64.so.1" rocm/lib/libhsa-runtime64.so; fi
# what ROCm's libraries need in turn is the site's matter
export LDFLAGS="${LDFLAGS:-} -Wl,--allow-shlib-undefined"

# what m4/get_version.sh would ask git for
echo "${PKG_VERSION}" > .release_version
autoreconf --install --force
./configure --prefix="${PREFIX}" --with-libfabric="${PREFIX}" --with-hwloc="${PREFIX}" --with-rocm="${PWD}/rocm" \
  --with-mpi=no --disable-platform-aws --disable-picky-compiler --disable-dependency-tracking ||
  { cat config.log; exit 1; }
grep -q '#define HAVE_ROCM 1' include/config.h || { cat config.log; exit 1; }
make -j"${CPU_COUNT:-1}"
make install
rm -f "${PREFIX}"/lib/librccl*.la
"${STRIP:-strip}" --strip-unneeded "${PREFIX}"/lib/librccl-*.so
